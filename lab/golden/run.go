package golden

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// problem is one case: a mechanism, its inputs and the expected results.
type problem struct {
	name       string
	mechanism  string
	options    mechanism.Options
	book       oracle.Mechanism  // the same mechanism
	headMatrix oracle.HeadMatrix // instead of book, for mechanisms that compute whole heads
	call       oracle.Call
	drop       *attention.Drop // of the call
	do         oracle.Heads    // empty: no gradients
	want       []expect
	forms      []string
	moments    *moments // of the form state
	// numbers holds parameters and constants, by the names of the mechanism.
	numbers map[string][]float64
	// compute gives all results of a module, by the names of their arrays;
	// nil: the mechanism is asked.
	compute   func() (map[string][]float64, error)
	tolerance tolerance
	err       error // met while reading

	solution *oracle.Result
}

// expect is a result that the file holds.
type expect struct {
	array string // its name in the file
	what  string // o, den, dq, dk, dv, dlog_g, or d and the name of a parameter
	ref   []float64
}

// everyForm returns the forms in which p's mechanism can compute p's call.
func (p *problem) everyForm() []string {
	switch {
	case p.call.AttnKeep != nil:
		return []string{"direct"}
	case p.book.Exp:
		return []string{"direct", "step"}
	}
	return []string{"direct", "linear", "step"}
}

// solveReference returns the textbook's result.
func (p *problem) solveReference() *oracle.Result {
	if p.solution == nil {
		if p.headMatrix != nil {
			p.solution = p.headMatrix.Forward(&p.call)
		} else {
			p.solution = p.book.Forward(&p.call)
		}
	}
	return p.solution
}

func runForm(p *problem, form string) Case {
	c := Case{Name: p.name, Mechanism: p.mechanism, Form: form, Precision: check.Precision}
	err := p.err
	if err == nil && p.compute != nil {
		err = compareModule(p, &c)
	} else if err == nil && form == "state" {
		err = compareMoments(p, &c)
	} else if err == nil {
		err = compareResults(p, &c)
	}
	if err != nil {
		c.Problem = err.Error()
	}
	return c
}

// compareResults runs p in c's form and holds every result that the form gives
// against the file.
func compareResults(p *problem, c *Case) error {
	m, call, err := prepareCall(p)
	if err != nil {
		return err
	}
	switch c.Form {
	case "direct":
		call.Form = attention.Direct
	case "linear":
		call.Form = attention.Linear
	case "step":
		call.Form = attention.Step
	}
	got, err := computeResults(m, call, convertHeads(p.do))
	if err != nil {
		return err
	}
	l := limitsOf(p, m, call)
	for i := range p.want {
		e := &p.want[i]
		x, given := got[e.what]
		if !given {
			continue
		}
		if len(x) != len(e.ref) {
			return fmt.Errorf("%s: has %d elements, needs %d", e.array, len(e.ref), len(x))
		}
		if e.what == "den" {
			for row, cond := range p.solveReference().Cond {
				if cond == 0 { // sees no key: a denominator by convention only
					x[row] = float(e.ref[row])
				}
			}
		}
		c.add(e.array, worstRatio(x, e.ref, p.tolerance.limits(p, e, l)))
	}
	return nil
}

// compareModule holds what a module computes against the file. It indexes the file's
// arrays as its authors' programs do: where they do not fit each other, that is found
// out on the way.
func compareModule(p *problem, c *Case) (err error) {
	defer func() {
		r := recover()
		if e, is := r.(runtime.Error); is {
			err = fmt.Errorf("arrays do not fit each other: %w", e)
		} else if r != nil {
			panic(r)
		}
	}()
	got, err := p.compute()
	if err != nil {
		return err
	}
	for i := range p.want {
		e := &p.want[i]
		x := got[e.array]
		if len(x) != len(e.ref) {
			return fmt.Errorf("%s: has %d elements, needs %d", e.array, len(e.ref), len(x))
		}
		c.add(e.array, worstRatio(x, e.ref, p.tolerance.limits(p, e, check.DirectLimits[float32](2))))
	}
	return nil
}

// add notes the error of one array.
func (c *Case) add(name string, err float64) {
	if len(c.Arrays) == 0 || err > c.Err {
		c.Worst, c.Err = name, err
	}
	c.Arrays = append(c.Arrays, name)
}

// worstRatio returns the largest error over the parts of x in units of their limits.
func worstRatio[T kernel.Float](x []T, ref, limits []float64) float64 {
	var e float64
	n := 0
	if len(limits) > 0 {
		n = len(x) / len(limits)
	}
	for i, l := range limits {
		e = max(e, check.ErrorRatio(x[i*n:][:n], ref[i*n:][:n], l))
	}
	return e
}

// limitsOf returns what the form of the call may err.
func limitsOf(p *problem, m attention.Mechanism, call *attention.Call) check.Limits {
	switch {
	case p.book.Exp:
		return check.SoftmaxLimits[float]()
	case call.Form == attention.Direct || !m.Traits().Linear:
		return check.DirectLimits[float](2)
	}
	s := call.Shape()
	s.Form = attention.Linear // a state works through the same chunks
	plan := m.Plan(s)
	return check.LinearLimits[float](plan.F, min(plan.Chunk, s.M))
}

// prepareCall makes p's mechanism and call.
func prepareCall(p *problem) (attention.Mechanism, *attention.Call, error) {
	m, err := mechanism.New(p.mechanism, p.options)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range slices.Concat(m.Params().All(), m.Constants().All()) {
		data, given := p.numbers[x.Name]
		if !given && x.Name == "tau" {
			data = p.book.Tau
		}
		if len(data) != len(x.Data) {
			return nil, nil, fmt.Errorf("%s: has %d elements, needs %d", x.Name, len(data), len(x.Data))
		}
		for i, v := range data {
			x.Data[i] = float(v)
		}
	}
	return m, &attention.Call{
		Q: convertHeads(p.call.Q), K: convertHeads(p.call.K), V: convertHeads(p.call.V),
		Causal: p.call.Causal, KeyLens: p.call.KeyLens, KeyMask: p.call.KeyMask, AttnKeep: p.call.AttnKeep,
		Drop: p.drop, LogG: convertHeads(p.call.LogG),
	}, nil
}

// computeResults computes what the form gives: outputs, and but for steps the
// denominators and gradients.
func computeResults(m attention.Mechanism, c *attention.Call, do tensor.Heads) (map[string][]float, error) {
	out := tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	got := map[string][]float{"o": out.Data}
	if c.Form == attention.Step {
		return got, m.Forward(out, c, nil)
	}
	var keep attention.Saved
	if err := m.Forward(out, c, &keep); err != nil {
		return nil, err
	}
	got["den"] = keep.Den
	if do.Data == nil {
		return got, nil
	}
	g := attention.Grads{
		DQ: tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		DK: tensor.NewHeads(c.K.B, c.K.H, c.K.N, c.K.D),
		DV: tensor.NewHeads(c.V.B, c.V.H, c.V.N, c.V.D),
	}
	if c.LogG.D > 0 {
		g.DLogG = tensor.NewHeads(c.K.B, c.K.H, c.K.N, 1)
	}
	m.Params().ZeroGrad()
	if err := m.Backward(&g, do, out, c, &keep); err != nil {
		return nil, err
	}
	got["dq"], got["dk"], got["dv"], got["dlog_g"] = g.DQ.Data, g.DK.Data, g.DV.Data, g.DLogG.Data
	for _, x := range m.Params().All() {
		got["d"+x.Name] = x.Grad
	}
	return got, nil
}

func convertHeads(x oracle.Heads) tensor.Heads {
	y := tensor.Heads{B: x.B, H: x.H, N: x.N, D: x.D, SB: x.SB, SH: x.SH, SN: x.SN}
	if x.Data != nil {
		y.Data = make([]float, len(x.Data))
		for i, v := range x.Data {
			y.Data[i] = float(v)
		}
	}
	return y
}
