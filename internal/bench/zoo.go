package bench

import (
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
)

// MaxTimeGrowth bounds how much the time of a linear mechanism grows for twice the tokens. It is
// more than MaxGrowth, since caches have an end.
const MaxTimeGrowth = 2.4

// Zoo selects rows of the catalogue, which are measured with their default settings.
type Zoo struct {
	Heads, N, D int
	Causal      bool
	Rows        []string // names; nil: all

	// What to measure of each row.
	Forward, Training, Decode, Doubling bool
}

// Entry holds the cases that show the cost of one row of the catalogue. Cases that the row lacks,
// or that were not requested, are nil.
type Entry struct {
	Row      mechanism.Row
	N        int
	Threads  int
	Causal   bool
	Traits   attention.Traits
	Plan     attention.Plan // plan of Forward
	Forward  *Case          // output of all heads, in the form that is chosen
	Training *Case          // the same, forward and backward
	Decode   *Case          // a token after N tokens, for all heads
	// Single and Double are one head over N and over 2N tokens, in the linear form if there is
	// one.
	Single, Double *Case
	probe          *Case
}

// Entries returns the requested rows with the current number of threads. lack has an error for each
// requested case that a row does not have. Rows whose calls must be causal are measured causally in
// any case. Entries returns an error for an unknown row.
func (z Zoo) Entries() (list []*Entry, lack []error, err error) {
	names := z.Rows
	if names == nil {
		names = mechanism.Names()
	}
	for _, name := range names {
		e, err := z.newEntry(name)
		if l, none := err.(*LackError); none {
			lack = append(lack, l)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		list = append(list, e)
	}
	return list, lack, nil
}

func (z Zoo) newEntry(name string) (*Entry, error) {
	row, err := mechanism.Lookup(name)
	if err != nil {
		return nil, err
	}
	m, err := mechanism.New(name, mechanism.Options{Heads: z.Heads, Width: z.D, Length: z.N})
	if err != nil {
		return nil, err
	}
	e := &Entry{Row: row, N: z.N, Threads: par.Threads(), Traits: m.Traits()}
	causal := z.Causal || e.Traits.CausalOnly
	e.Causal = causal
	if causal && !e.Traits.Causal {
		return nil, &LackError{name, "causal form: " + e.Traits.NoCausal}
	}
	shape := func(heads, n int, form attention.Form) attention.Shape {
		return attention.Shape{B: 1, H: heads, Hkv: heads, N: n, M: n, D: z.D, Dv: z.D, Causal: causal, Form: form}
	}
	e.Plan = m.Plan(shape(z.Heads, z.N, attention.Auto))
	// planned is a case whose operations are those that are planned: rows with a
	// form of their own have no others, and beside them all count in the same way.
	planned := func(s attention.Shape, both bool) (*Case, error) {
		a := Attention{Mechanism: name, Options: mechanism.Options{Heads: s.H, Width: s.D}, Shape: s, ForwardAndBackward: both}
		c, err := a.Case()
		if err != nil {
			return nil, err
		}
		c.FLOPs = c.planned
		if both {
			c.FLOPs += BackwardFLOPs(c.planned)
		}
		return c, nil
	}
	form := attention.Auto
	if e.Traits.Linear {
		form = attention.Linear
	}
	for _, x := range []struct {
		wanted bool
		to     **Case
		s      attention.Shape
		both   bool
	}{
		{true, &e.probe, shape(1, min(z.N, probeTokens), form), false},
		{z.Forward, &e.Forward, shape(z.Heads, z.N, attention.Auto), false},
		{z.Training, &e.Training, shape(z.Heads, z.N, attention.Auto), true},
		{z.Doubling, &e.Single, shape(1, z.N, form), false},
		{z.Doubling, &e.Double, shape(1, 2*z.N, form), false},
	} {
		if x.wanted {
			if *x.to, err = planned(x.s, x.both); err != nil {
				return nil, err
			}
		}
	}
	if z.Decode && e.Traits.Causal {
		s := shape(z.Heads, z.N, attention.Auto)
		e.Decode, err = Attention{Mechanism: name, Options: mechanism.Options{Heads: z.Heads, Width: z.D, Length: z.N + mostSteps}, Shape: s}.Decode()
	}
	return e, err
}

// Cases returns the cases of e in the order of the table.
func (e *Entry) Cases() (list []*Case) {
	for _, c := range []*Case{e.Forward, e.Training, e.Decode, e.Single, e.Double} {
		if c != nil {
			list = append(list, c)
		}
	}
	return list
}

// PlannedGrowth returns how much the planned operations of one head grow for twice the tokens, or 0
// if that was not requested.
func (e *Entry) PlannedGrowth() float64 {
	if e.Single == nil {
		return 0
	}
	return e.Double.FLOPs / e.Single.FLOPs
}

// TimeGrowth returns how much the time of one head grows for twice the tokens, by the fastest
// rounds, or 0 if it was not measured.
func (e *Entry) TimeGrowth() float64 {
	if e.Single == nil || e.Single.Rounds == 0 || e.Double.Rounds == 0 {
		return 0
	}
	return e.Double.BestMs / e.Single.BestMs
}

const (
	probeTokens = 512  // of the call that tells what others may take
	mostSteps   = 4096 // of a state that is measured
)

// CasesWithin sets Guess of the cases whose calls would take longer than limit, and returns the
// others. It judges by the planned operations and the time of a short call, whose error it returns.
func CasesWithin(list []*Entry, limit time.Duration) (cases []*Case, err error) {
	defer par.SetThreads(par.Threads())
	for _, e := range list {
		par.SetThreads(1)
		w, err := e.probe.open()
		if err != nil {
			return nil, err
		}
		best := 0.0
		for i := range 3 {
			start := time.Now()
			if err := w.call(); err != nil {
				return nil, err
			}
			if s := time.Since(start).Seconds(); i == 0 || s < best {
				best = s
			}
			if best > limit.Seconds() {
				break
			}
		}
		for _, c := range e.Cases() {
			seconds := 0.0
			if c != e.Decode {
				seconds = best * c.FLOPs / e.probe.FLOPs / float64(min(c.Threads, c.Heads))
			}
			if seconds > limit.Seconds() {
				c.Guess, c.ISA, c.Machine = 1e3*seconds, kernel.Active[float32]().Name, DescribeCPU().String()
				continue
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// MaxGrowth bounds the growth of the planned operations of a row of the catalogue with Linear set, when
// one head has 8192 tokens in place of 4096. Costs that do not depend on the tokens
// make it less than 2, edges of windows more.
const MaxGrowth = 2.1
