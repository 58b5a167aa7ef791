package nn

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/losses"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var mamba2 = MixerRow{
	Row: mechanism.Row{
		Name:   "mamba-2",
		Doc:    "S_t = a_t·S_{t-1} + Δ_t·x_t B_tᵀ, y_t = S_t C_t + D·x_t, a_t = exp(-Δ_t·e^A), gated and normalised",
		Source: "Dao and Gu 2024, Transformers are SSMs, arXiv 2405.21060, section 7 and figure 6 (right)",
		Traits: "causal alone; linear in the tokens; state of fixed size; decay and step of each head learned from the token",
		Settings: []mechanism.Setting{
			{Name: "state", Default: "64", Doc: "numbers that the state has for each channel, from 1 to 1024"},
			{Name: "expand", Default: "2", Doc: "inner width over the model's, from 1 to 8"},
			{Name: "conv", Default: "4", Doc: "tokens of the convolution before it, from 1 to 64"},
			{Name: "groups", Default: "1", Doc: "of heads that share B and C; they divide the heads"},
		},
	},
}

// mamba2Layer is a selective state-space layer with a scalar decay for each head (Dao
// and Gu 2024, arXiv 2405.21060). The projections of a row are
//
//	z, x [H·P]   gate and values
//	B, C [G·S]   keys and queries, which H/G heads share
//	Δ    [H]     the step of each head, by softplus(· + DtBias)
//
// x, B and C then pass a short causal convolution and SiLU. Head h keeps a state
// [P,S] that loses a factor exp(-Δ_t·e^ALog) with each token before it gains
// Δ_t·x_t B_tᵀ, and gives y_t = S_t C_t + D·x_t: linear attention without a
// denominator, with queries C, keys B, values Δ·x and log_g = -Δ·e^ALog. Out
// projects RMSNorm(y∘SiLU(z)), normalised in each group.
type mamba2Layer struct {
	In   Linear       // [2·H·P+2·G·S+H, width]: z, x, B, C, Δ
	Conv Conv         // of x, B, C
	ALog *param.Param // [H]
	Dt   *param.Param // [H] bias of Δ
	D    *param.Param // [H]
	Gain *param.Param // [H·P]
	Out  Linear       // [width, H·P]

	H, P, G, S int
	core       attention.Mechanism
}

// rmsEps is added to the mean square.
const rmsEps = 1e-5

// Bounds of the initial steps Δ and of the initial e^ALog, as in the authors' program.
const (
	leastStep, mostStep   = 1e-3, 1e-1
	leastDecay, mostDecay = 1, 16
)

func newMamba2(m *mixerArgs) (Mixer, error) {
	state, err := m.Integer("state", 1, 1024)
	if err != nil {
		return nil, err
	}
	expand, err := m.Integer("expand", 1, 8)
	if err != nil {
		return nil, err
	}
	taps, err := m.Integer("conv", 1, 64)
	if err != nil {
		return nil, err
	}
	groups, err := m.Integer("groups", 1, 1<<20)
	if err != nil {
		return nil, err
	}
	if m.Heads%groups != 0 {
		return nil, fmt.Errorf("mamba-2: setting groups=%d: does not divide %d heads", groups, m.Heads)
	}
	inner := expand * m.Width
	x := &mamba2Layer{H: m.Heads, P: inner / m.Heads, G: groups, S: state}
	x.core, err = newSSD()
	uniform := func(key rng.Key, i uint64) float64 { return (2*key.Float64(i) - 1) / math.Sqrt(float64(taps)) }
	x.In = m.NewLinear("in_proj", 1, x.projWidth(), m.Width)
	x.Conv.W = m.New("conv.weight", false, uniform, taps, x.convWidth())
	x.Conv.B = m.New("conv.bias", false, uniform, x.convWidth())
	x.ALog = m.New("A_log", false, func(key rng.Key, i uint64) float64 {
		return math.Log(leastDecay + (mostDecay-leastDecay)*key.Float64(i))
	}, x.H)
	x.Dt = m.New("dt_bias", false, func(key rng.Key, i uint64) float64 {
		dt := math.Exp(math.Log(leastStep) + math.Log(mostStep/leastStep)*key.Float64(i))
		return dt + math.Log(-math.Expm1(-dt)) // dt is its softplus
	}, x.H)
	x.D = m.New("D", false, constantInit(1), x.H)
	x.Gain = m.New("norm.weight", false, constantInit(1), inner)
	x.Out = m.NewLinear("out_proj", m.Residual, m.Width, inner)
	return x, err
}

// newSSD returns linear attention with the weights q·k, not divided by their sum.
func newSSD() (attention.Mechanism, error) {
	return factorised.New(attention.Spec{Name: "mamba-2", Setting: "mamba-2", Scale: 1, Coef: []float64{0, 1}, Unnormalized: true})
}

func (m *mamba2Layer) innerWidth() int   { return m.H * m.P }
func (m *mamba2Layer) convWidth() int    { return m.innerWidth() + 2*m.G*m.S }           // x, B, C
func (m *mamba2Layer) projWidth() int    { return m.innerWidth() + m.convWidth() + m.H } // z, x, B, C, Δ
func (m *mamba2Layer) groupHeads() int   { return m.H / m.G }                            // of a group
func (m *mamba2Layer) keyAt(g int) int   { return m.innerWidth() + g*m.S }               // column of B of a group, among x, B, C
func (m *mamba2Layer) queryAt(g int) int { return m.keyAt(g) + m.G*m.S }                 // of C
func (m *mamba2Layer) stepAt() int       { return m.innerWidth() + m.convWidth() }       // of Δ, among all

// Traits returns the traits of a causal recurrence.
func (m *mamba2Layer) Traits() attention.Traits {
	return attention.Traits{Name: mamba2.Name, Causal: true, Streaming: true, Linear: true, CausalOnly: true}
}

// FLOPs returns the operations of projections, the convolution and the products with the state.
func (m *mamba2Layer) FLOPs(n int, _ bool) float64 {
	s := m.callShape(1)
	s.N, s.M = n, n
	weights := m.In.weightSize() + m.Out.weightSize() + float64(m.Conv.countTaps()*m.convWidth())
	return 2*float64(n)*weights + float64(m.G)*m.core.Plan(s).FLOPs
}

// callShape returns the shape of a call with the heads of a group.
func (m *mamba2Layer) callShape(batch int) attention.Shape {
	return attention.Shape{B: batch, H: m.groupHeads(), Hkv: m.groupHeads(), D: m.S, Dv: m.P, Causal: true}
}

// mamba2Trace holds the intermediate results of mamba2Layer.Forward for Backward.
type mamba2Trace struct {
	proj     []float // [rows, total] z, x, B, C, Δ as projected
	pre, act []float // [rows, mixed] x, B, C after the convolution, and after SiLU
	dt, g    []float // [rows,H] Δ, and log_g
	v        []float // [rows,H·P] Δ∘x
	o, u     []float // [rows,H·P] states times C, and the input of Out
	groups   []mamba2Group
}

// mamba2Group holds the call of a group, with its saved values and gradients.
type mamba2Group struct {
	call  attention.Call
	saved attention.Saved
	grads attention.Grads
}

// Aux returns 0: the layer has no auxiliary loss.
func (tr *mamba2Trace) Aux() float64 { return 0 }

// NewTrace returns an empty mamba2Trace.
func (m *mamba2Layer) NewTrace() Trace {
	return &mamba2Trace{groups: make([]mamba2Group, m.G)}
}

// Forward sets y [B·N,width] to base [B·N,width] plus the output for x [B·N,width]. Every
// token sees all tokens before it, also masked ones. It returns an error if the mechanism
// refuses the call.
func (m *mamba2Layer) Forward(y, base, x tensor.Mat, s Scope, trace Trace, keep bool) error {
	tr := trace.(*mamba2Trace)
	m.In.Forward(resizeMatrix(&tr.proj, x.Rows, m.projWidth()), x, false)
	u, err := m.runStates(x.Rows, s.B, tr, nil, keep)
	if err != nil {
		return err
	}
	multiplyRows(true, rowProduct{layer: &m.Out, y: y, x: u, base: base, acc: true})
	return nil
}

// runStates returns the input of Out, from the projections in tr of tokens that follow those in
// state. state may be nil.
func (m *mamba2Layer) runStates(rows, b int, tr *mamba2Trace, state *mamba2State, keep bool) (tensor.Mat, error) {
	in := viewMatrix(tr.proj, rows, m.projWidth())
	pre, act := resizeMatrix(&tr.pre, rows, m.convWidth()), resizeMatrix(&tr.act, rows, m.convWidth())
	var past []float
	if state != nil {
		past = state.convRows
	}
	m.Conv.Forward(pre, viewColumns(in, m.innerWidth(), m.stepAt()), b, past)
	dt, g := resizeMatrix(&tr.dt, rows, m.H), resizeMatrix(&tr.g, rows, m.H)
	v, o, u := resizeMatrix(&tr.v, rows, m.innerWidth()), resizeMatrix(&tr.o, rows, m.innerWidth()), resizeMatrix(&tr.u, rows, m.innerWidth())
	m.runBefore(rows, mamba2Before{m, in, pre, act, dt, g, v})
	for i := range m.G {
		c := &tr.groups[i]
		out := m.setCall(i, b, rows/b, tr, &c.call)
		var err error
		switch {
		case state != nil:
			err = state.core[i].Step(out, &c.call)
		case keep:
			err = m.core.Forward(out, &c.call, &c.saved)
		default:
			err = m.core.Forward(out, &c.call, nil)
		}
		if err != nil {
			return u, explainDecay(err, &c.call)
		}
	}
	if f := (mamba2After{m, in, act, o, u}); rows <= normRows {
		f.RunRange(0, rows)
	} else {
		par.Run(rows, normRows, siluWork*float64(len(tr.u)), f)
	}
	return u, nil
}

// runBefore runs f over the given number of rows.
func (m *mamba2Layer) runBefore(rows int, f mamba2Before) {
	if rows <= normRows {
		f.RunRange(0, rows)
	} else {
		par.Run(rows, normRows, siluWork*float64(len(f.act.Data)), f)
	}
}

// setCall sets c to the call of group i for b sequences of n tokens and returns the
// view of its output.
func (m *mamba2Layer) setCall(i, b, n int, tr *mamba2Trace, c *attention.Call) tensor.Heads {
	q := tensor.Split(tr.act, b, n, m.convWidth(), m.queryAt(i), m.groupHeads(), m.S)
	k := tensor.Split(tr.act, b, n, m.convWidth(), m.keyAt(i), m.groupHeads(), m.S)
	q.SH, k.SH = 0, 0 // the heads of a group share them
	*c = attention.Call{Q: q, K: k, V: m.viewValues(tr.v, i, b, n), LogG: m.viewSteps(tr.g, i, b, n), Causal: true}
	return m.viewValues(tr.o, i, b, n)
}

// viewValues views the heads of group i in a [B·N, H·P] matrix, viewSteps in a [B·N, H]
// matrix.
func (m *mamba2Layer) viewValues(data []float, i, b, n int) tensor.Heads {
	return tensor.Split(data, b, n, m.innerWidth(), i*m.groupHeads()*m.P, m.groupHeads(), m.P)
}

func (m *mamba2Layer) viewSteps(data []float, i, b, n int) tensor.Heads {
	return tensor.Split(data, b, n, m.H, i*m.groupHeads(), m.groupHeads(), 1)
}

// mamba2Before computes the inputs of the states: x, B and C after SiLU, Δ, log_g and
// values.
type mamba2Before struct {
	m                      *mamba2Layer
	in, pre, act, dt, g, v tensor.Mat
}

func (f *mamba2Before) RunRange(i0, i1 int) {
	t, m := kernel.Active[float](), f.m
	for i := i0; i < i1; i++ {
		act, dt, g := f.act.Row(i), f.dt.Row(i), f.g.Row(i)
		setSiLU(t, act, f.pre.Row(i))
		raw, v := f.in.Row(i)[m.stepAt():], f.v.Row(i)
		for h := range dt {
			d := losses.Softplus(float64(raw[h] + m.Dt.Data[h]))
			dt[h] = float(d)
			g[h] = float(max(-d*math.Exp(float64(m.ALog.Data[h])), -math.MaxFloat32))
			t.Scale(v[h*m.P:][:m.P], dt[h], act[h*m.P:])
		}
	}
}

// mamba2After computes the input of Out: RMSNorm((o + D∘x)∘SiLU(z)).
type mamba2After struct {
	m             *mamba2Layer
	in, act, o, u tensor.Mat
}

func (f *mamba2After) RunRange(i0, i1 int) {
	t, m := kernel.Active[float](), f.m
	ar := arena.Acquire()
	defer ar.Release()
	y := arena.Take[float](ar, m.innerWidth())
	for i := i0; i < i1; i++ {
		u := f.u.Row(i)
		setSiLU(t, u, f.in.Row(i)[:m.innerWidth()])
		m.addSkip(t, y, f.o.Row(i), f.act.Row(i))
		t.Mul(u, u, y)
		for at := 0; at < m.innerWidth(); at += m.groupWidth() {
			part := u[at:][:m.groupWidth()]
			t.Scale(part, rmsFactor(t, part, rmsEps), part)
			t.Mul(part, part, m.Gain.Data[at:])
		}
	}
}

// groupWidth returns the number of channels that are normalised together.
func (m *mamba2Layer) groupWidth() int { return m.innerWidth() / m.G }

// addSkip sets y = o + D∘x.
func (m *mamba2Layer) addSkip(t *kernel.Table[float], y, o, x []float) {
	copy(y, o)
	for h := range m.H {
		t.Axpy(y[h*m.P:][:m.P], m.D.Data[h], x[h*m.P:][:m.P])
	}
}

// Backward sets dx [B·N,width] from dy [B·N,width] and adds to the gradients of the
// weights. It overwrites the trace. It returns an error if the mechanism refuses the
// call.
func (m *mamba2Layer) Backward(dx, dy, x tensor.Mat, trace Trace, s *Scratch) error {
	tr := trace.(*mamba2Trace)
	rows, b := x.Rows, tr.groups[0].call.Q.B
	n := rows / b
	s.takeBack()
	in, act := viewMatrix(tr.proj, rows, m.projWidth()), viewMatrix(tr.act, rows, m.convWidth())
	u := viewMatrix(tr.u, rows, m.innerWidth())
	du, do, dv := s.lendMatrix(rows, m.innerWidth()), s.lendMatrix(rows, m.innerWidth()), s.lendMatrix(rows, m.innerWidth())
	din, dact, dg := s.lendMatrix(rows, m.projWidth()), s.lendMatrix(rows, m.convWidth()), s.lendMatrix(rows, m.H)
	dq, dk := s.lendMatrix(rows, m.groupHeads()*m.S), s.lendMatrix(rows, m.groupHeads()*m.S)
	pieces := (rows + normRows - 1) / normRows
	parts := s.lendMatrix(pieces, m.innerWidth()+3*m.H) // of Gain, D, ALog and Dt
	clear(parts.Data)

	multiplyRows(false, rowProduct{layer: &m.Out, y: du, x: dy})
	par.Run(rows, normRows, 3*siluWork*float64(len(tr.u)), mamba2AfterGrad{m, in, act, viewMatrix(tr.o, rows, m.innerWidth()), du, do, din, dact, parts})
	for i := range m.G {
		c := &tr.groups[i]
		c.grads = attention.Grads{
			DQ: tensor.Split(dq.Data, b, n, dq.Cols, 0, m.groupHeads(), m.S), DK: tensor.Split(dk.Data, b, n, dk.Cols, 0, m.groupHeads(), m.S),
			DV: m.viewValues(dv.Data, i, b, n), DLogG: m.viewSteps(dg.Data, i, b, n),
		}
		if err := m.core.Backward(&c.grads, m.viewValues(do.Data, i, b, n), m.viewValues(tr.o, i, b, n), &c.call, &c.saved); err != nil {
			return err
		}
		sumHeads(viewColumns(dact, m.queryAt(i), m.queryAt(i)+m.S), dq)
		sumHeads(viewColumns(dact, m.keyAt(i), m.keyAt(i)+m.S), dk)
	}
	addWeights(weightGrad{&m.Out, dy, u})
	// pre is its own gradient from here on.
	pre := viewMatrix(tr.pre, rows, m.convWidth())
	par.Run(rows, normRows, 2*siluWork*float64(len(tr.pre)), mamba2BeforeGrad{m, in, act, viewMatrix(tr.dt, rows, m.H), viewMatrix(tr.g, rows, m.H), dv, dg, dact, din, pre, parts})
	m.Conv.Backward(viewColumns(din, m.innerWidth(), m.stepAt()), pre, viewColumns(in, m.innerWidth(), m.stepAt()), b, ConvEnds{})
	at := m.innerWidth()
	addRows(m.Gain.Grad, viewColumns(parts, 0, at))
	for i, p := range []*param.Param{m.D, m.ALog, m.Dt} {
		addRows(p.Grad, viewColumns(parts, at+i*m.H, at+(i+1)*m.H))
	}
	m.In.Backward(dx, din, x, false)
	return nil
}

// sumHeads sets rows of dst to the sums over the heads of x, one after another.
func sumHeads(dst, x tensor.Mat) {
	par.Run(x.Rows, normRows, moveWork*float64(x.Rows)*float64(x.Cols), headSum{dst, x})
}

type headSum struct{ dst, x tensor.Mat }

func (f *headSum) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
	for i := i0; i < i1; i++ {
		row, x := f.dst.Row(i), f.x.Row(i)
		copy(row, x)
		for at := len(row); at < len(x); at += len(row) {
			t.Add(row, row, x[at:])
		}
	}
}

// mamba2AfterGrad computes from du the gradient do, the part of din for z, and the part of dact
// through D∘x.
type mamba2AfterGrad struct {
	m                                    *mamba2Layer
	in, act, o, du, do, din, dact, parts tensor.Mat
}

func (f *mamba2AfterGrad) RunRange(i0, i1 int) {
	t, m := kernel.Active[float](), f.m
	ar := arena.Acquire()
	defer ar.Release()
	y, gate, s := arena.Take[float](ar, m.innerWidth()), arena.Take[float](ar, m.innerWidth()), arena.Take[float](ar, m.innerWidth())
	part := f.parts.Row(i0 / normRows)
	dgain, dd := part[:m.innerWidth()], part[m.innerWidth():][:m.H]
	for i := i0; i < i1; i++ {
		z, x, du, do := f.in.Row(i)[:m.innerWidth()], f.act.Row(i), f.du.Row(i), f.do.Row(i)
		setSigmoid(t, s, z)
		t.Mul(gate, s, z)
		m.addSkip(t, y, f.o.Row(i), x)
		// do is the product before the norm, and then its gradient.
		t.Mul(do, gate, y)
		for at := 0; at < m.innerWidth(); at += m.groupWidth() {
			r, d, gain := do[at:][:m.groupWidth()], du[at:][:m.groupWidth()], m.Gain.Data[at:][:m.groupWidth()]
			scale := rmsFactor(t, r, rmsEps)
			t.Scale(r, scale, r) // normalised
			t.MulAdd(dgain[at:][:m.groupWidth()], d, r)
			t.Mul(d, d, gain)
			mean := t.Dot(d, r) / float(len(r))
			for j := range r {
				r[j] = scale * (d[j] - r[j]*mean)
			}
		}
		dz := f.din.Row(i)[:m.innerWidth()]
		for j, d := range do {
			dz[j] = d * y[j] * siluSlope(s[j], z[j])
		}
		t.Mul(do, do, gate)
		dx := f.dact.Row(i)
		for h := range m.H {
			d := do[h*m.P:][:m.P]
			t.Scale(dx[h*m.P:][:m.P], m.D.Data[h], d)
			dd[h] += t.Dot(d, x[h*m.P:][:m.P])
		}
	}
}

// mamba2BeforeGrad turns the gradients of values, log_g and x, B, C into gradients of
// the projections. pre becomes the gradient of the convolution's output.
type mamba2BeforeGrad struct {
	m                                             *mamba2Layer
	in, act, dt, g, dv, dg, dact, din, pre, parts tensor.Mat
}

func (f *mamba2BeforeGrad) RunRange(i0, i1 int) {
	t, m := kernel.Active[float](), f.m
	ar := arena.Acquire()
	defer ar.Release()
	s := arena.Take[float](ar, m.convWidth())
	part := f.parts.Row(i0 / normRows)[m.innerWidth()+m.H:]
	da, dbias := part[:m.H], part[m.H:][:m.H]
	for i := i0; i < i1; i++ {
		x, dt, dv, dact, pre := f.act.Row(i), f.dt.Row(i), f.dv.Row(i), f.dact.Row(i), f.pre.Row(i)
		raw, draw := f.in.Row(i)[m.stepAt():], f.din.Row(i)[m.stepAt():]
		for h, dg := range f.dg.Row(i) {
			at := h * m.P
			t.Axpy(dact[at:][:m.P], dt[h], dv[at:][:m.P])
			da[h] += dg * f.g.Row(i)[h]
			ddt := float64(t.Dot(dv[at:][:m.P], x[at:][:m.P])) - float64(dg)*math.Exp(float64(m.ALog.Data[h]))
			draw[h] = float(ddt * losses.Logistic(float64(raw[h]+m.Dt.Data[h])))
			dbias[h] += draw[h]
		}
		setSigmoid(t, s, pre)
		for j, p := range pre {
			pre[j] = dact[j] * siluSlope(s[j], p)
		}
	}
}

// mamba2State holds the last rows of the convolution and the state of each group.
type mamba2State struct {
	convRows []float // [B·Conv.PastSize()]
	core     []attention.State
}

// NewState returns an empty state of fixed size. It returns an error if the state would be too
// large.
func (m *mamba2Layer) NewState(batch int) (State, error) {
	s := &mamba2State{convRows: make([]float, batch*m.Conv.PastSize())}
	for range m.G {
		core, err := m.core.NewState(m.callShape(batch))
		if err != nil {
			return nil, err
		}
		s.core = append(s.core, core)
	}
	return s, nil
}

func (s *mamba2State) Clone() State {
	c := &mamba2State{convRows: slices.Clone(s.convRows)}
	for _, core := range s.core {
		c.core = append(c.core, core.Clone())
	}
	return c
}

func (s *mamba2State) Reset() {
	clear(s.convRows)
	for _, core := range s.core {
		core.Reset()
	}
}

func (s *mamba2State) Tokens() int64 { return s.core[0].Tokens() }

func (s *mamba2State) Bytes() int64 {
	n := bytesOf(s.convRows)
	for _, core := range s.core {
		n += core.Bytes()
	}
	return n
}

// HeapBytes returns the memory of the state including working memory and the rounding of
// allocations.
func (s *mamba2State) HeapBytes() int64 {
	n := int64(unsafe.Sizeof(*s)) + scratch.AllocatedBytes(bytesOf(s.convRows))
	for _, core := range s.core {
		n += int64(unsafe.Sizeof(core)) + heapBytes(core)
	}
	return n
}

// AppendBinary appends, in little-endian order, the last rows of the convolution, then for each
// group the length of the snapshot of its state and the snapshot.
func (s *mamba2State) AppendBinary(b []byte) ([]byte, error) {
	le, start := binary.LittleEndian, len(b)
	b, err := binary.Append(b, le, s.convRows)
	if err != nil {
		return b[:start], err
	}
	for _, core := range s.core {
		at := len(b)
		b = le.AppendUint64(b, 0)
		if b, err = core.AppendBinary(b); err != nil {
			return b[:start], err
		}
		le.PutUint64(b[at:], uint64(len(b)-at-8))
	}
	return b, nil
}

// RestoreState reads the state of batch sequences. It returns an error if data is not such a
// state, if its heads, widths, chunk or decay are not those of the layer, or if its groups hold
// different numbers of tokens.
func (m *mamba2Layer) RestoreState(batch int, data []byte) (State, error) {
	var z float
	if need := batch * m.Conv.PastSize() * int(unsafe.Sizeof(z)); len(data) < need {
		return nil, fmt.Errorf("mamba-2: the snapshot has %d bytes, its convolution needs %d", len(data), need)
	}
	s := &mamba2State{convRows: make([]float, batch*m.Conv.PastSize())}
	n, err := binary.Decode(data, binary.LittleEndian, s.convRows)
	if err != nil {
		return nil, fmt.Errorf("mamba-2: %w", err)
	}
	data = data[n:]
	for i := range m.G {
		if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
			return nil, fmt.Errorf("mamba-2: the snapshot ends within group %d", i)
		}
		n := int(binary.LittleEndian.Uint64(data))
		core, err := restoreState(m.core, m.callShape(batch), true, data[8:][:n])
		if err != nil {
			return nil, fmt.Errorf("mamba-2: group %d: %w", i, err)
		}
		if i > 0 && core.Tokens() != s.Tokens() {
			return nil, fmt.Errorf("mamba-2: group %d has %d tokens, group 0 has %d", i, core.Tokens(), s.Tokens())
		}
		s.core = append(s.core, core)
		data = data[8+n:]
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("mamba-2: %d bytes follow the last of %d groups", len(data), m.G)
	}
	return s, nil
}

// Step adds to y [B·N,width] the output for x [B·N,width] after the tokens of state. It
// returns an error if the state refuses the call.
func (m *mamba2Layer) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	tr := trace.(*mamba2Trace)
	m.In.Forward(resizeMatrix(&tr.proj, x.Rows, m.projWidth()), x, false)
	u, err := m.runStates(x.Rows, s.B, tr, state.(*mamba2State), false)
	if err != nil {
		return err
	}
	m.Out.Forward(y, u, true)
	return nil
}

// packedMamba2 is a mamba2Layer for steps.
type packedMamba2 struct {
	layer   *mamba2Layer
	in, out *PackedLinear
}

// Freeze returns the layer with packed weights, for steps of at most rows rows.
func (m *mamba2Layer) Freeze(rows int) Stepper {
	return &packedMamba2{m, m.In.Freeze(rows), m.Out.Freeze(rows)}
}

// Step computes mamba2Layer.Step with packed weights.
func (m *packedMamba2) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	tr := trace.(*mamba2Trace)
	m.in.Forward(resizeMatrix(&tr.proj, x.Rows, m.layer.projWidth()), x, false)
	u, err := m.layer.runStates(x.Rows, s.B, tr, state.(*mamba2State), false)
	if err != nil {
		return err
	}
	m.out.Forward(y, u, true)
	return nil
}
