package nn

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// StepPart describes the rows of one state in a step of several states.
type StepPart struct {
	State      State
	B          int // sequences of the state
	Start, End int // its rows of the step: Start ≤ row < End
	Rope       *attention.Rope

	Position  int64          // of the first new token
	Positions *PositionCache // for FirstLayerCache

	Err error // error of a step; later steps leave the part out
}

// Rows returns the rows of x that belong to p.
func (p *StepPart) Rows(x tensor.Mat) tensor.Mat { return x.Slice(p.Start, p.End) }

// countTokens returns the number of new tokens of each sequence.
func (p *StepPart) countTokens() int { return (p.End - p.Start) / p.B }

// scope returns s for the sequences of p alone.
func (p *StepPart) scope(s Scope) Scope {
	s.B, s.Rope = p.B, p.Rope
	return s
}

// StepParts adds to y [rows,width] the output of by for x [rows,width], for every part that has
// no error. It sets Err of a part whose state refuses its tokens. The rows of each part are
// bitwise those of a Step for that part alone. Packed attention multiplies the rows of all
// parts at once.
func StepParts(by Stepper, y, x tensor.Mat, parts []StepPart, s Scope, tr Trace) {
	if a, shared := by.(*packedAttention); shared {
		a.stepParts(y, x, parts, s, tr.(*AttentionTrace))
		return
	}
	for i := range parts {
		if p := &parts[i]; p.Err == nil {
			p.Err = by.Step(p.Rows(y), p.Rows(x), p.State, p.scope(s), tr)
		}
	}
}

// stepParts computes StepParts with packed attention.
func (a *packedAttention) stepParts(y, x tensor.Mat, parts []StepPart, s Scope, tr *AttentionTrace) {
	a.project(x, tr)
	a.layer.setDecay(tr, x, 1, a.gate)
	calls := tr.partCalls(len(parts))
	for i := range parts {
		calls[i] = a.layer.partCall(tr, &parts[i], s)
	}
	a.layer.stepStates(parts, tr)
	a.o.Forward(y, a.layer.normaliseOutputs(viewMatrix(tr.o, x.Rows, a.layer.H*a.layer.D), tr, false), true)
}

// partCalls returns the calls of n parts.
func (tr *AttentionTrace) partCalls(n int) []attention.Call {
	for len(tr.calls) < n {
		tr.calls = append(tr.calls, attention.Call{})
	}
	return tr.calls[:n]
}

// partCall returns the call of a part, from the projections of tr.
func (a *Attention) partCall(tr *AttentionTrace, p *StepPart, s Scope) attention.Call {
	n, wide, narrow := p.countTokens(), a.H*a.D, a.Hkv*a.D
	c := attention.Call{
		Q:      a.viewQueries(tr.q[p.Start*wide:p.End*wide], p.B, n),
		K:      a.viewKeys(tr.k[p.Start*narrow:p.End*narrow], p.B, n),
		V:      a.viewKeys(tr.v[p.Start*narrow:p.End*narrow], p.B, n),
		Causal: s.Causal, Rope: p.Rope,
	}
	if a.Decay != nil {
		c.LogG = a.partRates(tr, p)
	}
	return c
}

// partRates returns the decay of the keys of a part.
func (a *Attention) partRates(tr *AttentionTrace, p *StepPart) tensor.Heads {
	return a.viewRates(tr.g[p.Start*a.Hkv:p.End*a.Hkv], p.B, p.countTokens())
}

// stepStates runs the calls of tr on the states of parts. Parts with several tokens run one
// after another, each on all workers. Parts with single tokens run in parallel.
func (a *Attention) stepStates(parts []StepPart, tr *AttentionTrace) {
	f, work, singles := partSteps{a, parts, tr}, 0.0, false
	for i := range parts {
		switch p := &parts[i]; {
		case p.Err != nil:
		case p.countTokens() > 1:
			f.step(i)
		default:
			singles = true
			work += float64(p.State.Bytes()) / 2 // an operation for each two bytes, about
		}
	}
	if singles {
		par.Run(len(parts), 1, work, f)
	}
}

// partSteps steps the states of single tokens.
type partSteps struct {
	layer *Attention
	parts []StepPart
	tr    *AttentionTrace
}

func (f *partSteps) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		if f.parts[i].Err == nil && f.parts[i].countTokens() == 1 {
			f.step(i)
		}
	}
}

// step runs call i.
func (f *partSteps) step(i int) {
	p, wide := &f.parts[i], f.layer.H*f.layer.D
	out := f.layer.viewQueries(f.tr.o[p.Start*wide:p.End*wide], p.B, p.countTokens())
	if p.Err = p.State.(attentionState).State.Step(out, &f.tr.calls[i]); p.Err != nil {
		p.Err = explainDecay(p.Err, &f.tr.calls[i])
		clear(f.tr.o[p.Start*wide : p.End*wide])
	}
}
