package bench

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// LackError is returned if a mechanism lacks the form or the pass that a case would measure.
type LackError struct{ Mechanism, What string }

// Error says what the mechanism lacks.
func (e *LackError) Error() string { return e.Mechanism + " has no " + e.What }

// Attention describes calls of a mechanism on random tokens.
type Attention struct {
	Mechanism          string
	Options            mechanism.Options
	Shape              attention.Shape
	Backward           bool // time the gradients, not the output
	ForwardAndBackward bool // time the output and then the gradients
}

// Case returns the case of the suite attention, with the current number of threads. It returns an
// error for impossible settings, and a LackError if the mechanism lacks the pass.
func (a Attention) Case() (*Case, error) {
	m, c, err := a.describeCase()
	if err != nil {
		return nil, err
	}
	s := a.Shape
	c.X = float64(s.N)
	c.Line.Direction = forward
	if a.Backward || a.ForwardAndBackward {
		if s.Form == attention.Step {
			return nil, &LackError{a.Mechanism, "backward pass of the step form"}
		}
		useful := c.FLOPs
		if c.Line.Direction, c.FLOPs = backward, BackwardFLOPs(useful); a.ForwardAndBackward {
			c.Line.Direction, c.FLOPs = both, useful+c.FLOPs
		}
	}
	tokens := float64(s.B) * (float64(s.H)*float64(s.N) + float64(s.Hkv)*float64(s.M)) * float64(s.D+s.Dv)
	scratch := m.Plan(s).Bytes * float64(min(c.Threads, s.B*s.Hkv))
	c.Need = 4*tokens + scratch
	if a.Backward || a.ForwardAndBackward {
		c.Need *= 2 // each input has a gradient, and so has what the scratch holds
	}
	c.open = func() (*work, error) { return a.openCase(m) }
	return c, nil
}

// describeCase returns the mechanism and the case of it, as if it were forward.
func (a Attention) describeCase() (attention.Mechanism, *Case, error) {
	row, err := mechanism.Lookup(a.Mechanism)
	if err != nil {
		return nil, nil, err
	}
	o := a.Options
	if o.Length == 0 {
		o.Length = a.Shape.M
	}
	m, err := mechanism.New(a.Mechanism, o)
	if err != nil {
		return nil, nil, err
	}
	s := a.Shape
	if s.Form == attention.Linear && !m.Traits().Linear {
		return nil, nil, &LackError{a.Mechanism, "linear form"}
	}
	plan := m.Plan(s)
	form := plan.Form
	if a.Backward {
		form = plan.Back
	}
	c := &Case{AskedForm: s.Form.String(), Grows: form == attention.Linear, planned: plan.FLOPs}
	if s.Form == attention.Step {
		form, c.Grows = attention.Step, m.Traits().Streaming
	}
	switch {
	case c.Grows && plan.F > 0:
		c.FLOPs = LinearFLOPs(s, plan.F)
	case plan.Cost == 0 && s.Form != attention.Step:
		c.FLOPs = plan.FLOPs // whole heads: neither form's
	default:
		c.FLOPs = DirectFLOPs(s)
	}
	order := a.Options.Order
	if order == 0 {
		order = row.Order
	}
	c.Line = Line{
		Impl: impl, Mechanism: a.Mechanism, Order: order, Form: form.String(), Causal: s.Causal,
		N: s.N, M: s.M, D: s.D, Dv: s.Dv, Heads: s.H, Threads: par.Threads(),
	}
	return m, c, nil
}

func (a Attention) openCase(m attention.Mechanism) (*work, error) {
	s := a.Shape
	key := rng.New(1)
	c := &attention.Call{
		Q: randomHeads(key.Fold(1), s.B, s.H, s.N, s.D), K: randomHeads(key.Fold(2), s.B, s.Hkv, s.M, s.D),
		V:      randomHeads(key.Fold(3), s.B, s.Hkv, s.M, s.Dv),
		Causal: s.Causal, Form: s.Form, Chunk: s.Chunk,
	}
	out := tensor.NewHeads(s.B, s.H, s.N, s.Dv)
	if !a.Backward && !a.ForwardAndBackward {
		return &work{call: func() error { return m.Forward(out, c, nil) }}, nil
	}
	keep := new(attention.Saved)
	before := liveBytes()
	if err := m.Forward(out, c, keep); err != nil {
		return nil, err
	}
	kept := liveBytes() - before
	dout := randomHeads(key.Fold(4), s.B, s.H, s.N, s.Dv)
	g := &attention.Grads{
		DQ: tensor.NewHeads(s.B, s.H, s.N, s.D), DK: tensor.NewHeads(s.B, s.Hkv, s.M, s.D),
		DV: tensor.NewHeads(s.B, s.Hkv, s.M, s.Dv),
	}
	back := func() error { return m.Backward(g, dout, out, c, keep) }
	if !a.ForwardAndBackward {
		return &work{call: back, held: kept}, nil
	}
	return &work{call: func() error {
		if err := m.Forward(out, c, keep); err != nil {
			return err
		}
		return back()
	}, held: kept}, nil
}

// randomHeads returns numbers between -1 and 1.
func randomHeads(key rng.Key, b, h, n, d int) tensor.Heads {
	x := tensor.NewHeads(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = float32(2*key.Float64(uint64(i)) - 1)
	}
	return x
}
