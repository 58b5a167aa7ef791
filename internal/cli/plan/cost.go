package plan

import (
	"math"
	"sort"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/papercost"
	"github.com/farfield-ml/farfield/mechanism"
)

// shape returns the shape that the flags describe.
func (c *Command) shape() attention.Shape {
	or := func(x, other flags.Count) int {
		if x == 0 {
			return int(other)
		}
		return int(x)
	}
	return attention.Shape{
		B: int(c.Batch), H: int(c.Heads), Hkv: or(c.KVHeads, c.Heads),
		N: int(c.N), M: or(c.M, c.N), D: int(c.D), Dv: or(c.Dv, c.D), Causal: c.Causal,
	}
}

// report counts everything.
func (c *Command) report() (*Report, error) {
	s := c.shape()
	switch {
	case s.H%s.Hkv != 0:
		return nil, env.InputErrorf("--kv-heads: %d do not divide the %d of --heads", s.Hkv, s.H)
	case (c.Parameters > 0) != (c.Tokens > 0):
		return nil, env.InputErrorf("--parameters and --tokens: one is given without the other")
	case c.Layers > 0 && c.Parameters == 0:
		return nil, env.InputErrorf("--layers: needs --parameters and --tokens")
	case c.EncoderDecoder && c.Parameters == 0:
		return nil, env.InputErrorf("--encoder-decoder: needs --parameters and --tokens")
	}
	o, err := c.Options(c.Mechanism, s.H, s.D, s.M)
	if err != nil {
		return nil, err
	}
	row, err := flags.LookupFunction(c.Mechanism)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	mech, err := mechanism.New(c.Mechanism, o)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	if mech.Traits().CausalOnly && !s.Causal {
		return nil, env.InputErrorf("--causal: %s needs it", c.Mechanism)
	}
	degree := row.Order
	if o.Order > 0 && row.Order > 0 {
		degree = o.Order
	}

	machine := bench.DescribeMachine(50 * time.Millisecond)
	plan := mech.Plan(s)
	paper := papercost.TaylorShiftCost(s.N, s.D)
	r := &Report{
		Machine: machine.String(), Mechanism: c.Mechanism, Degree: degree, Features: plan.F,
		Shape: planShape{s.B, s.H, s.Hkv, s.N, s.M, s.D, s.Dv, s.Causal},
		Form:  plan.Form.String(), Chunk: plan.Chunk, Reason: plan.Reason,
		Backward: plan.Back.String(), BackwardReason: plan.BackWhy,
		TaylorShift: paper,
		Totals: taylorShiftTotals{paper.OpsDirect.Total(), paper.OpsEfficient.Total(),
			paper.EntriesDirect.Total(), paper.EntriesEfficient.Total()},
	}
	if degree > 0 {
		fast := papercost.FastCost(s.N, s.D, s.H, degree)
		r.FastCosts = &fast
	}
	r.Forms = append(r.Forms, costOf(machine, mech, s, attention.Direct))
	if plan.WidthError != nil {
		r.LinearRefusal = plan.WidthError.Error()
	}
	if mech.Traits().Linear && plan.WidthError == nil {
		r.Forms = append(r.Forms, costOf(machine, mech, s, attention.Linear))
		r.Switch = SwitchLengths(mech, s)
		r.State = stateOf(mech, s)
	}
	if err := r.compare(machine, mech, s); err != nil {
		return nil, err
	}
	if c.Width > 0 {
		r.Width = int(c.Width)
		if err := c.sweep(r, machine, s); err != nil {
			return nil, err
		}
	}
	if c.Parameters > 0 {
		r.Training = c.training(machine, plan, s)
		if t := r.Training; math.IsInf(t.Weights+t.Attention, 0) {
			return nil, env.InputErrorf("--parameters, --tokens: %g and %g take more operations than a number holds", t.Parameters, t.Tokens)
		}
	}
	return r, nil
}

// compare sets the predicted time of softmax, and from which length on mech is faster.
func (r *Report) compare(m bench.Machine, mech attention.Mechanism, s attention.Shape) error {
	if r.Mechanism == "softmax" || mech.Plan(s).Cost == 0 {
		return nil
	}
	softmax, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		return err
	}
	r.Softmax = &rival{Seconds: m.PredictSeconds(softmax.Plan(s).Cost, s.B*s.Hkv), From: fasterFrom(mech, softmax, s)}
	return nil
}

// costOf returns the cost of a form of mech for s.
func costOf(m bench.Machine, mech attention.Mechanism, s attention.Shape, form attention.Form) formCost {
	s.Form = form
	p := mech.Plan(s)
	return formCost{
		Form: form.String(), Forward: p.FLOPs, Backward: bench.BackwardFLOPs(p.FLOPs), Bytes: p.Bytes,
		ForwardSeconds:  m.PredictSeconds(p.Cost, s.B*s.Hkv),
		BackwardSeconds: m.PredictSeconds(p.BackCost, s.B*s.Hkv),
		Bound:           display.Number(errorBound(p)),
	}
}

// errorBound is the bound of a plan, infinite where it has none.
func errorBound(p attention.Plan) float64 {
	if p.Bound == 0 {
		return math.Inf(1)
	}
	return p.Bound
}

// SwitchLengths returns the lengths at which mech changes its form, for shapes that
// differ from s in N and M.
func SwitchLengths(mech attention.Mechanism, s attention.Shape) *switches {
	form := func(n int, form attention.Form) attention.Plan {
		s.N, s.M, s.Form = n, n, form
		return mech.Plan(s)
	}
	least := 0
	if s.Causal { // within a chunk both forms are the direct one
		least = form(1, attention.Linear).Chunk
	}
	search := func(linear func(n int) bool) int {
		const limit = 1e9
		n := least + 1 + sort.Search(limit-least, func(n int) bool { return linear(least + 1 + n) })
		if n > limit {
			return 0
		}
		return n
	}
	return &switches{
		Forward:  search(func(n int) bool { return form(n, attention.Auto).Form == attention.Linear }),
		Backward: search(func(n int) bool { return form(n, attention.Auto).Back == attention.Linear }),
		Counted: search(func(n int) bool {
			return form(n, attention.Linear).FLOPs < form(n, attention.Direct).FLOPs
		}),
	}
}

// stateOf returns the size of a session's state of one sequence.
func stateOf(mech attention.Mechanism, s attention.Shape) *stateCost {
	const size = 4 // bytes of a float32
	s.B = 1
	p := mech.Plan(s)
	if p.Renews { // sessions take such a state
		s.Chunk = 1
		p = mech.Plan(s)
	}
	sums := float64(p.F) * float64(s.Dv+1)
	cache := size * float64(s.Hkv) * float64(s.D+s.Dv)
	return &stateCost{
		Bytes:      p.State,
		Sums:       size * float64(s.Hkv) * sums,
		CacheBytes: cache,
		BreakEven:  p.State / cache,
		Step:       2*sums*float64(s.Hkv+s.H) + p.WindowFLOPs*float64(s.H),
	}
}

// sweep counts heads that share a width, for every number of heads that divides
// it.
func (c *Command) sweep(r *Report, m bench.Machine, s attention.Shape) error {
	width := int(c.Width)
	for h := 1; h <= width; h++ {
		if width%h != 0 {
			continue
		}
		d := width / h
		o, err := c.Options(c.Mechanism, h, d, s.M)
		if err != nil {
			return err
		}
		mech, err := mechanism.New(c.Mechanism, o)
		if err != nil {
			return env.MarkInput(err)
		}
		s.H, s.Hkv, s.D, s.Dv = h, h, d, d
		p := mech.Plan(s)
		row := headsCost{Heads: h, D: d, Forward: p.FLOPs, Form: p.Form.String(), Seconds: m.PredictSeconds(p.Cost, s.B*h)}
		row.Ops, row.Entries = papercost.TaylorShiftHeads(s.N, width, h)
		if r.Degree > 0 {
			row.FastTime = papercost.FastCost(s.N, d, h, r.Degree).Time
		}
		r.Sweep = append(r.Sweep, row)
	}
	return nil
}

// training counts the training of a model whose layers hold attention of the
// shape s each: forward and backward for every sequence of N tokens.
func (c *Command) training(m bench.Machine, p attention.Plan, s attention.Shape) *trainingCost {
	t := &trainingCost{Parameters: float64(c.Parameters), Tokens: float64(c.Tokens)}
	t.Weights = papercost.TrainingFLOPs(t.Parameters, t.Tokens, c.EncoderDecoder)
	t.PFDays = t.Weights / papercost.PFDay
	token := (p.FLOPs + bench.BackwardFLOPs(p.FLOPs)) / (float64(s.B) * float64(s.N))
	t.Attention = float64(c.Layers) * token * t.Tokens
	t.Hours = m.TrainingSeconds(t.Weights+t.Attention) / 3600
	return t
}
