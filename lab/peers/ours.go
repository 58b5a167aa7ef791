package peers

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
)

// Size of the model whose training is timed, here and in torch_cases.py.
const (
	layers = 6
	batch  = 8
)

// ours runs cases of farfield in this process.
type ours struct {
	sessions map[bench.Line]session // by the line without figures
}

type session struct {
	c *bench.Case
	s *bench.Session
}

// caseOf returns what a line without figures asks for.
func caseOf(l bench.Line) (*bench.Case, error) {
	if l.Direction == "update" {
		return bench.Training{
			Mechanism: l.Mechanism, Order: l.Order, Layers: layers, Heads: l.Heads, D: l.D, Context: l.N, Batch: batch,
		}.Case()
	}
	var form attention.Form
	for form = attention.Auto; form.String() != l.Form; form++ {
		if form == attention.Step {
			return nil, fmt.Errorf("form %q: unknown", l.Form)
		}
	}
	return bench.Attention{
		Mechanism: l.Mechanism, Options: mechanism.Options{Order: l.Order, Heads: l.Heads, Width: l.D}, Backward: l.Direction == "backward",
		Shape: attention.Shape{B: 1, H: l.Heads, Hkv: l.Heads, N: l.N, M: l.M, D: l.D, Dv: l.Dv, Causal: l.Causal, Form: form},
	}.Case()
}

// measure fills in the figures of a line; one round is made at least.
func (o *ours) measure(ctx context.Context, l bench.Line, budget time.Duration) (bench.Line, error) {
	par.SetThreads(l.Threads)
	at, open := o.sessions[l]
	if !open {
		c, err := caseOf(l)
		if err != nil {
			return l, err
		}
		if m := float64(machine.FreeMemory()); c.Need > m {
			return l, fmt.Errorf("it needs %.0f MiB, %.0f are free", c.Need/(1<<20), m/(1<<20))
		}
		s, err := c.Open(budget)
		if err != nil {
			return l, err
		}
		at = session{c, s}
		if o.sessions == nil {
			o.sessions = map[bench.Line]session{}
		}
		o.sessions[l] = at
	}
	at.s.Restart()
	for start := time.Now(); ; {
		r, err := at.s.Round()
		if err != nil {
			return l, err
		}
		if at.s.Add(r); ctx.Err() != nil || time.Since(start) >= budget {
			return at.c.Line, ctx.Err()
		}
	}
}

// forget lets go of the cases that are open.
func (o *ours) forget() {
	clear(o.sessions)
	runtime.GC()
}
