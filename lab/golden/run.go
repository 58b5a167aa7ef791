package golden

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// run computes p in a form. It returns the results by their names, and what the form may err.
func (p *problem) run(form string) (map[string][]float, check.Limits, error) {
	direct := check.DirectLimits[float](2)
	var got map[string][]float
	var err error
	switch {
	case p.Model != nil:
		got, err = p.runModel(form == "step")
	case p.Layer:
		got, err = p.runLayer(form == "step")
	default:
		return p.runMechanism(form)
	}
	return got, direct, errors.Join(p.err, err)
}

func (p *problem) options() mechanism.Options {
	return mechanism.Options{Order: p.Order, Heads: p.Heads, Width: p.Width, Length: p.Length, Set: p.Set}
}

// fill sets weights from the arrays with their names.
func (p *problem) fill(weights []*param.Param) error {
	for _, w := range weights {
		x := p.floats(w.Name)
		if len(x) != len(w.Data) {
			return errors.Join(p.err, fmt.Errorf("%s: has %d elements, needs %d", w.Name, len(x), len(w.Data)))
		}
		copyTo(w.Data, x)
	}
	return nil
}

// isGradient reports whether a result is a gradient.
func isGradient(what string) bool { return strings.HasPrefix(what, "d") && what != "den" }

// addGrads adds the gradients of weights to results.
func addGrads(got map[string][]float, weights []*param.Param) {
	for _, w := range weights {
		got["d"+w.Name] = w.Grad
	}
}

// forms are the forms of calls.
var forms = map[string]attention.Form{"direct": attention.Direct, "linear": attention.Linear, "step": attention.Step, "state": attention.Linear}

func (p *problem) runMechanism(form string) (got map[string][]float, l check.Limits, err error) {
	m, err := mechanism.New(p.Mechanism, p.options())
	if err != nil {
		return nil, l, err
	}
	c, of := p.call(), forms[form]
	c.Form = of
	constants := slices.DeleteFunc(slices.Clone(m.Constants().All()), func(x *param.Param) bool { return x.Name == p.Each })
	if err := errors.Join(p.err, p.fill(m.Params().All()), p.fill(constants)); err != nil {
		return nil, l, err
	}
	if s := c.Shape(); p.Book != nil && p.Book.Exp {
		l = check.SoftmaxLimits[float]()
	} else if l = check.DirectLimits[float](2); of != attention.Direct && m.Traits().Linear {
		s.Form = attention.Linear // a state works through the same chunks
		plan := m.Plan(s)
		l = check.LinearLimits[float](plan.F, min(plan.Chunk, s.M))
	}
	var do tensor.Heads
	if slices.ContainsFunc(p.Want, isGradient) {
		do = narrow(p.heads("do"))
	}
	if form == "state" {
		got, err = readState(m, c)
	} else if p.Each == "" {
		got, err = p.callOnce(m, c, do)
	} else {
		got, err = p.callEach(m, c, do)
	}
	return got, l, errors.Join(p.err, err)
}

// call returns the call of p.
func (p *problem) call() *attention.Call {
	c := &attention.Call{
		Q: narrow(p.heads("q")), K: narrow(p.heads("k")), V: narrow(p.heads("v")), LogG: narrow(p.heads("log_g")),
		Causal: p.Causal, KeyLens: p.ints("key_lens"), KeyMask: p.bools("key_mask"), AttnKeep: p.bools("attn_keep"),
	}
	q, k := p.bools("drop_q"), p.bools("drop_k")
	switch p.Drop {
	case "element":
		c.Drop = &attention.Drop{Kind: attention.ElementDrop, Rate: p.Rate, Q1: q, K1: k}
	case "token":
		c.Drop = &attention.Drop{Kind: attention.TokenDrop, Rate: p.Rate, QTok: q, KTok: k}
	case "product":
		c.Drop = &attention.Drop{Kind: attention.ProductDrop, Rate: p.Rate, Q2: q, K2: k}
	}
	return c
}

// textbookCall returns the call of p for the reference.
func (p *problem) textbookCall() oracle.Call {
	c := oracle.Call{
		Q: p.heads("q"), K: p.heads("k"), V: p.heads("v"), LogG: p.heads("log_g"),
		Causal: p.Causal, KeyLens: p.ints("key_lens"), KeyMask: p.bools("key_mask"), AttnKeep: p.bools("attn_keep"),
	}
	factors := func(name string, times int) []float64 {
		var list []float64
		for _, keep := range p.bools(name) {
			f := 0.0
			if keep {
				f = 1 / (1 - p.Rate)
			}
			list = append(list, slices.Repeat([]float64{f}, times)...)
		}
		return list
	}
	switch p.Drop {
	case "element":
		c.Drop = &oracle.Drop{Q: factors("drop_q", 1), K: factors("drop_k", 1)}
	case "token":
		c.Drop = &oracle.Drop{Q: factors("drop_q", c.Q.D), K: factors("drop_k", c.K.D)}
	case "product":
		c.Drop = &oracle.Drop{QQ: factors("drop_q", 1), KK: factors("drop_k", 1)}
	}
	return c
}

// callOnce computes c, and with upstream gradients do its gradients. The gradients of parameters
// add up over calls of m.
func (p *problem) callOnce(m attention.Mechanism, c *attention.Call, do tensor.Heads) (map[string][]float, error) {
	out := tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	got := map[string][]float{"o": out.Data}
	if c.Form == attention.Step {
		return got, m.Forward(out, c, nil)
	}
	var keep attention.Saved
	if err := m.Forward(out, c, &keep); err != nil {
		return nil, err
	}
	got["den"], got["aux"] = keep.Den, []float{float(keep.Aux)}
	if do.Data == nil {
		return got, nil
	}
	g := attention.Grads{
		DQ: tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		DK: tensor.NewHeads(c.K.B, c.K.H, c.K.N, c.K.D),
		DV: tensor.NewHeads(c.V.B, c.V.H, c.V.N, c.V.D), DAux: float(p.DAux),
	}
	if c.LogG.D > 0 {
		g.DLogG = tensor.NewHeads(c.K.B, c.K.H, c.K.N, 1)
	}
	if err := m.Backward(&g, do, out, c, &keep); err != nil {
		return nil, err
	}
	got["dq"], got["dk"], got["dv"], got["dlog_g"] = g.DQ.Data, g.DK.Data, g.DV.Data, g.DLogG.Data
	addGrads(got, m.Params().All())
	return got, nil
}

// callEach is callOnce for each batch row, with its own values of the constant p.Each.
func (p *problem) callEach(m attention.Mechanism, c *attention.Call, do tensor.Heads) (map[string][]float, error) {
	constant, err := m.Constants().Get(p.Each)
	if err != nil {
		return nil, err
	}
	all := p.floats(p.Each)
	if len(all) != c.Q.B*len(constant.Data) {
		return nil, fmt.Errorf("%s: has %d elements, needs %d for each of %d batch rows", p.Each, len(all), len(constant.Data), c.Q.B)
	}
	got := map[string][]float{}
	for b := range c.Q.B {
		row := func(x tensor.Heads) tensor.Heads {
			x.B, x.Data = 1, x.Data[b*x.SB:][:x.SB]
			return x
		}
		copyTo(constant.Data, all[b*len(constant.Data):][:len(constant.Data)])
		one := *c
		one.Q, one.K, one.V = row(c.Q), row(c.K), row(c.V)
		of, err := p.callOnce(m, &one, row(do))
		if err != nil {
			return nil, err
		}
		for _, what := range []string{"o", "dq", "dk", "dv"} {
			of[what] = append(got[what], of[what]...)
		}
		got = maps.Clone(of)
	}
	return got, nil
}

// readState returns the outputs of queries that read a state of all keys.
func readState(m attention.Mechanism, c *attention.Call) (map[string][]float, error) {
	st, err := m.NewState(attention.Shape{B: c.K.B, H: c.K.H, Hkv: c.K.H, D: c.K.D, Dv: c.V.D})
	if err != nil {
		return nil, err
	}
	if err := st.Absorb(&attention.Call{K: c.K, V: c.V}); err != nil {
		return nil, err
	}
	out := tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D)
	return map[string][]float{"o": out.Data}, st.Read(out, &attention.Call{Q: c.Q, K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0)})
}

// runLayer computes a causal mixer with its own projections, by steps or with gradients.
func (p *problem) runLayer(steps bool) (map[string][]float, error) {
	row, known := nn.LookupMixer(p.Mechanism)
	if !known {
		return nil, fmt.Errorf("%s: owns no projections", p.Mechanism)
	}
	x, shape := p.rows("x")
	if p.err != nil {
		return nil, p.err
	}
	var set param.Set
	w := &nn.WeightMaker{New: func(name string, decay bool, _ nn.Initializer, shape ...int) *param.Param {
		return set.New(name, decay, shape...)
	}}
	layer, err := nn.NewMixer(row, x.Cols, p.options(), w)
	if err != nil {
		return nil, err
	}
	if err := p.fill(set.All()); err != nil {
		return nil, err
	}
	y, dx := tensor.NewMat(x.Rows, x.Cols), tensor.NewMat(x.Rows, x.Cols)
	got := map[string][]float{"o": y.Data, "dx": dx.Data}
	trace, scope := layer.NewTrace(), nn.Scope{B: shape[0], Causal: true}
	if steps {
		state, err := layer.NewState(shape[0])
		if err != nil {
			return nil, err
		}
		token, out := tensor.NewMat(shape[0], x.Cols), tensor.NewMat(shape[0], x.Cols)
		for n := range shape[1] {
			for b := range shape[0] {
				copy(token.Row(b), x.Row(b*shape[1]+n))
			}
			clear(out.Data)
			if err := layer.Step(out, token, state, scope, trace); err != nil {
				return nil, err
			}
			for b := range shape[0] {
				copy(y.Row(b*shape[1]+n), out.Row(b))
			}
		}
		return got, nil
	}
	if err := layer.Forward(y, y, x, scope, trace, true); err != nil {
		return nil, err
	}
	dy, err := p.upstream(x)
	if err != nil {
		return nil, err
	}
	if err := layer.Backward(dx, dy, x, trace, new(nn.Scratch)); err != nil {
		return nil, err
	}
	addGrads(got, set.All())
	return got, nil
}

// upstream returns the gradients of outputs, which have the shape of x.
func (p *problem) upstream(x tensor.Mat) (tensor.Mat, error) {
	dy, _ := p.rows("do")
	if p.err == nil && (dy.Rows != x.Rows || dy.Cols != x.Cols) {
		p.err = fmt.Errorf("do: has %d rows of %d, x has %d of %d", dy.Rows, dy.Cols, x.Rows, x.Cols)
	}
	return dy, p.err
}

// maxWeights bounds models.
const maxWeights = 1 << 20

// runModel computes a model whose tokens have the rows of x as embeddings, one each, and whose head
// copies the rows before it, by the steps of a session or with gradients.
func (p *problem) runModel(steps bool) (map[string][]float, error) {
	x, shape := p.rows("x")
	if err := errors.Join(p.err, p.Model.Validate()); err != nil {
		return nil, err
	}
	if n := p.Model.Params(); n > maxWeights || p.Model.Vocab != x.Rows || p.Model.Width != x.Cols || p.Model.Context < shape[1] {
		return nil, fmt.Errorf("model: has %d weights and %d tokens of width %d, x has %v", n, p.Model.Vocab, p.Model.Width, shape)
	}
	m, err := model.New(*p.Model, rng.New(0))
	if err != nil {
		return nil, err
	}
	if err := p.fill(m.Params().All()); err != nil {
		return nil, err
	}
	b := &model.Batch{B: shape[0], N: shape[1], Lens: p.ints("key_lens"), Tokens: make([]int32, x.Rows)}
	for i := range b.Tokens {
		b.Tokens[i] = int32(i)
	}
	if steps {
		session, err := m.NewSession(b.B)
		if err != nil {
			return nil, err
		}
		y := tensor.NewMat(x.Rows, x.Cols)
		for n := range b.N {
			var tokens []int32
			for r := range b.B {
				tokens = append(tokens, b.Tokens[r*b.N+n])
			}
			logits, err := session.Step(context.Background(), tokens, 1)
			if err != nil {
				return nil, err
			}
			for r := range b.B {
				copy(y.Row(r*b.N+n), logits[r*p.Model.Vocab:])
			}
		}
		return map[string][]float{"o": y.Data}, nil
	}
	y, err := m.Outputs(context.Background(), b)
	if err != nil {
		return nil, err
	}
	got := map[string][]float{"o": slices.Clone(y.Data)}
	dy, err := p.upstream(x)
	if err != nil {
		return nil, err
	}
	if err := m.BackwardOutputs(dy, 1); err != nil {
		return nil, err
	}
	addGrads(got, m.Params().All())
	return got, nil
}
