package nn

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

var retnet = MixerRow{
	Row: mechanism.Row{
		Name:   "retnet",
		Doc:    "S_t = γ_h·S_{t-1} + k_t v_tᵀ, y_t = norm(q_t S_t/√D)∘SiLU(g_t), q and k rotated by the place: multi-scale retention",
		Source: "Sun et al. 2023, Retentive Network, arXiv 2307.08621, section 2 and eq. 8",
		Traits: "causal alone; linear in the tokens; state of fixed size; a fixed decay for each head",
		Settings: []mechanism.Setting{
			{Name: "expand", Default: "2", Doc: "width of all values over the model's, from 1 to 8"},
			{Name: "form", Default: "code", Doc: "norm of each head. code: by its root mean square, as in the authors' program; paper: minus its mean too"},
			{Name: "eps", Default: "1e-6", Doc: "added to the mean square that a head is divided by the root of"},
		},
	},
}

// msr is the multi-scale retention of RetNet (Sun et al. 2023, arXiv 2307.08621,
// section 2): linear attention without a denominator. With each token head h decays by
// the factor γ_h = 1 - 2^(-5-h). Queries and keys are rotated by their positions. The
// outputs of each head are normalised without gain and bias, gated by SiLU of another
// projection, and projected back.
//
// The original program also scales the scores before the norm. These scales are
// omitted: except for Eps they cancel in the norm.
type msr struct {
	Q, K Linear // [H·D,width]
	V, G Linear // [H·P,width]
	Out  Linear // [width,H·P]

	Eps     tensor.Float
	Centred bool // heads lose their mean in the norm

	H, D, P int
	core    attention.Mechanism
}

func newMSR(m *mixerArgs) (Mixer, error) {
	expand, err := m.Integer("expand", 1, 8)
	if err != nil {
		return nil, err
	}
	form, err := m.Choice("form", "code", "paper")
	if err != nil {
		return nil, err
	}
	eps, err := m.Positive("eps", "")
	if err != nil {
		return nil, err
	}
	x := &msr{H: m.Heads, D: m.Width / m.Heads, P: expand * m.Width / m.Heads, Eps: float(eps), Centred: form == "paper"}
	x.core, err = mechanism.New("retention", mechanism.Options{})
	x.Q = m.NewLinear("q_proj", 1, m.Width, m.Width)
	x.K = m.NewLinear("k_proj", 1, m.Width, m.Width)
	x.V = m.NewLinear("v_proj", 1, x.valueWidth(), m.Width)
	x.G = m.NewLinear("g_proj", 1, x.valueWidth(), m.Width)
	x.Out = m.NewLinear("out_proj", m.Residual, m.Width, x.valueWidth())
	return x, err
}

func (m *msr) keyWidth() int   { return m.H * m.D } // of queries and keys
func (m *msr) valueWidth() int { return m.H * m.P } // of values

// Traits returns the traits of a causal recurrence.
func (m *msr) Traits() attention.Traits {
	return attention.Traits{Name: retnet.Name, Causal: true, Streaming: true, Linear: true, CausalOnly: true}
}

// FLOPs returns the operations of projections and retention.
func (m *msr) FLOPs(n int, _ bool) float64 {
	s := m.callShape(1)
	s.N, s.M = n, n
	weights := m.Q.weightSize() + m.K.weightSize() + m.V.weightSize() + m.G.weightSize() + m.Out.weightSize()
	return 2*float64(n)*weights + m.core.Plan(s).FLOPs
}

func (m *msr) callShape(batch int) attention.Shape {
	return attention.Shape{B: batch, H: m.H, Hkv: m.H, D: m.D, Dv: m.P, Causal: true}
}

// msrTrace holds the intermediate results of msr.Forward for Backward.
type msrTrace struct {
	q, k  []float // [rows,H·D]
	v, g  []float // [rows,H·P]
	o, u  []float // [rows,H·P] of retention, and the input of Out
	call  attention.Call
	saved attention.Saved
	grads attention.Grads

	rope      attention.Rope // rotations of positions from start on
	frequency attention.Frequencies
	start     int64
}

// Aux returns 0: the layer has no auxiliary loss.
func (tr *msrTrace) Aux() float64 { return 0 }

// NewTrace returns an empty msrTrace.
func (m *msr) NewTrace() Trace { return new(msrTrace) }

// ropeFrom returns the rotations of n positions from start on, for heads of width d. The
// angle of pair j at position t is t·10000^(-j/(d/2-1)): the first pair turns by 1 and the
// last by 1/10000 with each token.
func (tr *msrTrace) ropeFrom(d int, start int64, n int) *attention.Rope {
	r, half := &tr.rope, d/2
	if r.Half == half && tr.start == start && r.Rows() >= n {
		return r
	}
	if len(tr.frequency.Pairs) != half {
		theta := 1.0
		if half > 1 {
			theta = math.Pow(10000, float64(d)/float64(2*(half-1))) // in the terms of Rope
		}
		tr.frequency = attention.NewFrequencies(d, theta)
	}
	tr.start = start
	r.Fill(&tr.frequency, start, n)
	return r
}

// viewHeads views the heads of a [B·N, H·width] matrix.
func (m *msr) viewHeads(data []float, b, n, width int) tensor.Heads {
	return tensor.Split(data, b, n, m.H*width, 0, m.H, width)
}

// setCall sets the call of tr from the projections, for tokens that follow past others,
// and returns the view of its output.
func (m *msr) setCall(tr *msrTrace, rows, b int, past int64) tensor.Heads {
	n := rows / b
	resizeMatrix(&tr.o, rows, m.valueWidth())
	tr.call = attention.Call{
		Q: m.viewHeads(tr.q, b, n, m.D), K: m.viewHeads(tr.k, b, n, m.D), V: m.viewHeads(tr.v, b, n, m.P),
		Causal: true, Rope: tr.ropeFrom(m.D, past, n),
	}
	return m.viewHeads(tr.o, b, n, m.P)
}

// setProjections sets the projections in tr.
func (m *msr) setProjections(x tensor.Mat, tr *msrTrace) {
	multiplyRows(true,
		rowProduct{layer: &m.Q, y: resizeMatrix(&tr.q, x.Rows, m.keyWidth()), x: x}, rowProduct{layer: &m.K, y: resizeMatrix(&tr.k, x.Rows, m.keyWidth()), x: x},
		rowProduct{layer: &m.V, y: resizeMatrix(&tr.v, x.Rows, m.valueWidth()), x: x}, rowProduct{layer: &m.G, y: resizeMatrix(&tr.g, x.Rows, m.valueWidth()), x: x})
}

// Forward sets y [B·N,width] to base [B·N,width] plus the output for x [B·N,width]. Every
// token sees all tokens before it, also masked ones. It returns an error if the mechanism
// refuses the call.
func (m *msr) Forward(y, base, x tensor.Mat, s Scope, trace Trace, keep bool) error {
	tr := trace.(*msrTrace)
	m.setProjections(x, tr)
	saved := &tr.saved
	if !keep {
		saved = nil
	}
	if err := m.core.Forward(m.setCall(tr, x.Rows, s.B, 0), &tr.call, saved); err != nil {
		return err
	}
	multiplyRows(true, rowProduct{layer: &m.Out, y: y, x: m.applyGate(tr, x.Rows), base: base, acc: true})
	return nil
}

// applyGate returns the input of Out from the outputs of retention.
func (m *msr) applyGate(tr *msrTrace, rows int) tensor.Mat {
	u := resizeMatrix(&tr.u, rows, m.valueWidth())
	if f := (msrGate{m, viewMatrix(tr.o, rows, m.valueWidth()), viewMatrix(tr.g, rows, m.valueWidth()), u}); rows <= normRows {
		f.RunRange(0, rows)
	} else {
		par.Run(rows, normRows, siluWork*float64(len(tr.u)), f)
	}
	return u
}

// msrGate sets u = norm(o)∘SiLU(g).
type msrGate struct {
	m       *msr
	o, g, u tensor.Mat
}

func (f *msrGate) RunRange(i0, i1 int) {
	t, m := kernel.Active[float](), f.m
	ar := arena.Acquire()
	defer ar.Release()
	y := arena.Take[float](ar, m.P)
	for i := i0; i < i1; i++ {
		u, o := f.u.Row(i), f.o.Row(i)
		setSiLU(t, u, f.g.Row(i))
		for at := 0; at < len(u); at += m.P {
			m.normaliseHead(t, y, o[at:][:m.P])
			t.Mul(u[at:][:m.P], u[at:][:m.P], y)
		}
	}
}

// normaliseHead sets y to the normalised x of a head and returns its factor.
func (m *msr) normaliseHead(t *kernel.Table[float], y, x []float) float {
	copy(y, x)
	if m.Centred {
		subtractMean(y)
	}
	scale := rmsFactor(t, y, float64(m.Eps))
	t.Scale(y, scale, y)
	return scale
}

// subtractMean subtracts the mean of x from its elements.
func subtractMean(x []float) {
	var sum float64
	for _, v := range x {
		sum += float64(v)
	}
	mean := float(sum / float64(len(x)))
	for i := range x {
		x[i] -= mean
	}
}

// Backward sets dx [B·N,width] from dy [B·N,width] and adds to the gradients of the
// weights. It returns an error if the mechanism refuses the call.
func (m *msr) Backward(dx, dy, x tensor.Mat, trace Trace, s *Scratch) error {
	tr := trace.(*msrTrace)
	rows, b := x.Rows, tr.call.Q.B
	n := rows / b
	s.takeBack()
	do, dg := s.lendMatrix(rows, m.valueWidth()), s.lendMatrix(rows, m.valueWidth())
	dq, dk, dv := s.lendMatrix(rows, m.keyWidth()), s.lendMatrix(rows, m.keyWidth()), s.lendMatrix(rows, m.valueWidth())
	m.Out.Backward(do, dy, viewMatrix(tr.u, rows, m.valueWidth()), false)
	par.Run(rows, normRows, 2*siluWork*float64(len(tr.u)), msrGateGrad{m, viewMatrix(tr.o, rows, m.valueWidth()), viewMatrix(tr.g, rows, m.valueWidth()), do, dg})
	tr.grads = attention.Grads{DQ: m.viewHeads(dq.Data, b, n, m.D), DK: m.viewHeads(dk.Data, b, n, m.D), DV: m.viewHeads(dv.Data, b, n, m.P)}
	if err := m.core.Backward(&tr.grads, m.viewHeads(do.Data, b, n, m.P), m.viewHeads(tr.o, b, n, m.P), &tr.call, &tr.saved); err != nil {
		return err
	}
	addWeights(weightGrad{&m.Q, dq, x}, weightGrad{&m.K, dk, x}, weightGrad{&m.V, dv, x}, weightGrad{&m.G, dg, x})
	multiplyRows(false,
		rowProduct{layer: &m.Q, y: dx, x: dq}, rowProduct{layer: &m.K, y: dx, x: dk, acc: true},
		rowProduct{layer: &m.V, y: dx, x: dv, acc: true}, rowProduct{layer: &m.G, y: dx, x: dg, acc: true})
	return nil
}

// msrGateGrad replaces do, the gradient of the input of Out, by the gradient of the outputs of
// retention, and sets dg to the gradient of the gate.
type msrGateGrad struct {
	m            *msr
	o, g, do, dg tensor.Mat
}

func (f *msrGateGrad) RunRange(i0, i1 int) {
	t, m := kernel.Active[float](), f.m
	ar := arena.Acquire()
	defer ar.Release()
	s, y := arena.Take[float](ar, m.valueWidth()), arena.Take[float](ar, m.P)
	for i := i0; i < i1; i++ {
		g := f.g.Row(i)
		setSigmoid(t, s, g)
		for at := 0; at < len(g); at += m.P {
			scale := m.normaliseHead(t, y, f.o.Row(i)[at:][:m.P])
			d, dg := f.do.Row(i)[at:][:m.P], f.dg.Row(i)[at:][:m.P]
			for j, z := range g[at:][:m.P] {
				dg[j] = d[j] * y[j] * siluSlope(s[at+j], z)
				d[j] *= s[at+j] * z
			}
			if m.Centred {
				subtractMean(d) // the mean of y is 0, so that d·y does not change
			}
			mean := t.Dot(d, y) / float(len(y))
			for j := range d {
				d[j] = scale * (d[j] - y[j]*mean)
			}
		}
	}
}

// NewState returns an empty state of fixed size. It returns an error if it would be too large.
func (m *msr) NewState(batch int) (State, error) {
	state, err := m.core.NewState(m.callShape(batch))
	return attentionState{state}, err
}

// RestoreState reads the state of batch sequences. It returns an error if data is not such a
// state, or if its heads, widths, chunk or decay are not those of the layer.
func (m *msr) RestoreState(batch int, data []byte) (State, error) {
	state, err := restoreState(m.core, m.callShape(batch), false, data)
	return attentionState{state}, err
}

// Step adds to y [B·N,width] the output for x [B·N,width] after the tokens of state. It
// returns an error if the state refuses the call.
func (m *msr) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	tr := trace.(*msrTrace)
	m.setProjections(x, tr)
	u, err := m.stepState(tr, x.Rows, s.B, state)
	if err != nil {
		return err
	}
	m.Out.Forward(y, u, true)
	return nil
}

// stepState returns the input of Out for tokens that follow those in state.
func (m *msr) stepState(tr *msrTrace, rows, b int, state State) (u tensor.Mat, err error) {
	if err := state.(attentionState).State.Step(m.setCall(tr, rows, b, state.Tokens()), &tr.call); err != nil {
		return u, err
	}
	return m.applyGate(tr, rows), nil
}

// packedMSR is an msr for steps.
type packedMSR struct {
	layer           *msr
	q, k, v, g, out *PackedLinear
}

// Freeze returns the layer with packed weights, for steps of at most rows rows.
func (m *msr) Freeze(rows int) Stepper {
	return &packedMSR{m, m.Q.Freeze(rows), m.K.Freeze(rows), m.V.Freeze(rows), m.G.Freeze(rows), m.Out.Freeze(rows)}
}

// Step computes msr.Step with packed weights.
func (m *packedMSR) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	l, tr := m.layer, trace.(*msrTrace)
	m.q.Forward(resizeMatrix(&tr.q, x.Rows, l.keyWidth()), x, false)
	m.k.Forward(resizeMatrix(&tr.k, x.Rows, l.keyWidth()), x, false)
	m.v.Forward(resizeMatrix(&tr.v, x.Rows, l.valueWidth()), x, false)
	m.g.Forward(resizeMatrix(&tr.g, x.Rows, l.valueWidth()), x, false)
	u, err := l.stepState(tr, x.Rows, s.B, state)
	if err != nil {
		return err
	}
	m.out.Forward(y, u, true)
	return nil
}
