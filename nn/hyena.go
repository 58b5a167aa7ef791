package nn

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fourier"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

var hyena = MixerRow{
	Row: mechanism.Row{
		Name:   "hyena",
		Doc:    "z¹ = v, zⁿ⁺¹ = xⁿ∘(hⁿ*zⁿ): gates between convolutions as long as the sequence, whose filters are made by an MLP",
		Source: "Poli et al. 2023, Hyena Hierarchy, arXiv 2302.10866, definition 3.1 and section 3.3",
		Traits: "causal alone; O(N log N) by Fourier transforms; no state of fixed size: decoding keeps all inputs and sums them for every token",
		Settings: []mechanism.Setting{
			{Name: "order", Default: "2", Doc: "number of gates, from 1 to 8"},
			{Name: "form", Default: "paper", Doc: "paper: a long convolution before each gate; code: none before the first, as in the authors' program"},
			{Name: "conv", Default: "3", Doc: "tokens of the short convolution of v and x, from 1 to 64"},
			{Name: "filter", Default: "64", Doc: "units of the filters' MLP, from 1 to 4096"},
			{Name: "features", Default: "33", Doc: "numbers that tell the MLP a place, odd, from 3 to 1025"},
			{Name: "freq", Default: "10", Doc: "of its sines at first"},
		},
	},
}

// hyenaLayer mixes tokens by convolutions as long as the sequence, with gates between them
// (Poli et al. 2023, arXiv 2302.10866). In makes v and x¹ … xᴺ, which pass a short
// convolution each. Then z¹ = v and zⁿ⁺¹ = xⁿ∘(hⁿ*zⁿ + dⁿ∘zⁿ), and Out projects the
// last. Filters hⁿ are functions of the position (filter).
type hyenaLayer struct {
	In     Linear       // [width·(Order+1), width]: v, x¹, …
	Conv   Conv         // of them
	Filter filter       // of all long convolutions, one after another
	D      *param.Param // [convolutions, width]
	Out    Linear       // [width, width]

	Order  int
	Direct int // gates before the first long convolution: 0, or 1
}

func newHyena(m *mixerArgs) (Mixer, error) {
	x := new(hyenaLayer)
	var taps, units, features int
	for _, s := range []struct {
		name   string
		lo, hi int
		to     *int
	}{{"order", 1, 8, &x.Order}, {"conv", 1, 64, &taps}, {"filter", 1, 4096, &units}, {"features", 3, 1025, &features}} {
		n, err := m.Integer(s.name, s.lo, s.hi)
		if err != nil {
			return nil, err
		}
		*s.to = n
	}
	form, err := m.Choice("form", "paper", "code")
	if err != nil {
		return nil, err
	}
	freq, err := m.Positive("freq", "")
	if err != nil {
		return nil, err
	}
	if form == "code" {
		x.Direct = 1
	}
	switch {
	case x.countConvs() < 1:
		return nil, fmt.Errorf("hyena: setting form=code: has no long convolution with order=%d", x.Order)
	case features%2 == 0:
		return nil, fmt.Errorf("hyena: setting features=%d: needs an odd number", features)
	}
	w := m.Width
	x.In = m.NewLinear("in_proj", 1, (x.Order+1)*w, w)
	x.Conv.W = m.New("conv.weight", false, FanInInit(taps), taps, (x.Order+1)*w)
	x.Conv.B = m.New("conv.bias", false, FanInInit(taps), (x.Order+1)*w)
	x.Filter = newFilter(m, x.countConvs(), features, units, freq)
	x.D = m.New("D", false, NormalInit(1), x.countConvs(), w)
	x.Out = m.NewLinear("out_proj", m.Residual, w, w)
	return x, nil
}

// countConvs returns the number of long convolutions.
func (m *hyenaLayer) countConvs() int { return m.Order - m.Direct }

func (m *hyenaLayer) rowWidth() int { return m.Out.W.Shape[0] }

// partOf returns part i of [rows, parts·width].
func (m *hyenaLayer) partOf(x tensor.Mat, i int) tensor.Mat {
	return viewColumns(x, i*m.rowWidth(), (i+1)*m.rowWidth())
}

// skipWeights returns d of convolution k as a view of data, the elements of D or its gradient.
func (m *hyenaLayer) skipWeights(data []float, k int) []float {
	return data[k*m.rowWidth():][:m.rowWidth()]
}

// Traits returns the traits of a causal function of all inputs.
func (m *hyenaLayer) Traits() attention.Traits {
	return attention.Traits{Name: hyena.Name, Causal: true, CausalOnly: true}
}

// FLOPs returns the operations of projections, convolutions and the filters, which every call
// recomputes.
func (m *hyenaLayer) FLOPs(n int, _ bool) float64 {
	size := fourier.ConvolutionLength(n)
	weights := m.In.weightSize() + m.Out.weightSize() + m.Filter.weightSize() + float64(m.Conv.countTaps()*m.In.W.Shape[0])
	pairs := float64(m.countConvs() * ((m.rowWidth() + 1) / 2))
	return 2*float64(n)*weights + pairs*(3*fourier.TransformFLOPs(size)+20*float64(size))
}

// hyenaTrace holds the intermediate results of hyenaLayer.Forward for Backward.
type hyenaTrace struct {
	proj, mixed []float   // [rows,(Order+1)·width] v, x¹, …, before and after the short convolution
	z, c        [][]float // [rows,width] for each long convolution: its input zⁿ, unless that is v, and its output
	u           []float   // [rows,width] input of Out
	filter      filterTrace
	b           int
}

// Aux returns 0: the layer has no auxiliary loss.
func (tr *hyenaTrace) Aux() float64 { return 0 }

// NewTrace returns an empty hyenaTrace.
func (m *hyenaLayer) NewTrace() Trace {
	return &hyenaTrace{z: make([][]float, m.countConvs()), c: make([][]float, m.countConvs())}
}

// convInput returns the input zⁿ of convolution k.
func (m *hyenaLayer) convInput(tr *hyenaTrace, rows, k int) tensor.Mat {
	if k == 0 && m.Direct == 0 {
		return m.partOf(viewMatrix(tr.mixed, rows, m.In.W.Shape[0]), 0)
	}
	return resizeMatrix(&tr.z[k], rows, m.rowWidth())
}

// Forward sets y [B·N,width] to base [B·N,width] plus the output for x [B·N,width]. Every
// token sees all tokens before it, also masked ones. The error is nil.
func (m *hyenaLayer) Forward(y, base, x tensor.Mat, s Scope, trace Trace, _ bool) error {
	tr := trace.(*hyenaTrace)
	tr.b = s.B
	u := m.runGates(x, s.B, tr, nil)
	multiplyRows(true, rowProduct{layer: &m.Out, y: y, x: u, base: base, acc: true})
	return nil
}

// runGates returns the input of Out for x, whose tokens follow those in state. state may be nil.
func (m *hyenaLayer) runGates(x tensor.Mat, b int, tr *hyenaTrace, state *hyenaState) tensor.Mat {
	rows, n := x.Rows, x.Rows/b
	proj, mixed := resizeMatrix(&tr.proj, rows, m.In.W.Shape[0]), resizeMatrix(&tr.mixed, rows, m.In.W.Shape[0])
	m.In.Forward(proj, x, false)
	var h tensor.Mat
	if state == nil {
		m.Conv.Forward(mixed, proj, b, nil)
		h = m.Filter.Forward(0, n, &tr.filter)
	} else {
		m.Conv.Forward(mixed, proj, b, state.convRows)
		h = state.extendFilters(m, n, tr)
	}
	u := resizeMatrix(&tr.u, rows, m.rowWidth())
	if m.Direct > 0 {
		multiplyGate(m.convInput(tr, rows, 0), m.partOf(mixed, 0), m.partOf(mixed, 1))
	}
	for k := range m.countConvs() {
		z, c, d := m.convInput(tr, rows, k), resizeMatrix(&tr.c[k], rows, m.rowWidth()), m.skipWeights(m.D.Data, k)
		if state == nil {
			longConv(c, z, m.partOf(h, k), d, b)
		} else {
			state.appendAndConvolve(m, c, z, m.partOf(h, k), d, k, b)
		}
		next := u
		if k+1 < m.countConvs() {
			next = m.convInput(tr, rows, k+1)
		}
		multiplyGate(next, c, m.partOf(mixed, 1+m.Direct+k))
	}
	return u
}

// multiplyGate sets y = a∘b.
func multiplyGate(y, a, b tensor.Mat) {
	if f := (gating{y, a, b}); y.Rows <= normRows {
		f.RunRange(0, y.Rows)
	} else {
		par.Run(y.Rows, normRows, moveWork*float64(y.Rows)*float64(y.Cols), f)
	}
}

type gating struct{ y, a, b tensor.Mat }

func (f *gating) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
	for i := i0; i < i1; i++ {
		t.Mul(f.y.Row(i), f.a.Row(i), f.b.Row(i))
	}
}

// Backward sets dx [B·N,width] from dy [B·N,width] and adds to the gradients of the
// weights. The error is nil.
func (m *hyenaLayer) Backward(dx, dy, x tensor.Mat, trace Trace, s *Scratch) error {
	tr := trace.(*hyenaTrace)
	rows, w := x.Rows, m.rowWidth()
	n := rows / tr.b
	s.takeBack()
	proj, mixed := viewMatrix(tr.proj, rows, m.In.W.Shape[0]), viewMatrix(tr.mixed, rows, m.In.W.Shape[0])
	h := viewMatrix(tr.filter.h, n, m.countConvs()*w)
	dz, dmixed, dh := s.lendMatrix(rows, w), s.lendMatrix(rows, m.In.W.Shape[0]), s.lendMatrix(n, m.countConvs()*w)
	m.Out.Backward(dz, dy, viewMatrix(tr.u, rows, w), false)
	for k := m.countConvs() - 1; k >= 0; k-- {
		c, at := viewMatrix(tr.c[k], rows, w), 1+m.Direct+k
		multiplyGate(m.partOf(dmixed, at), dz, c)
		multiplyGate(dz, dz, m.partOf(mixed, at))
		longConvGrad(dz, m.partOf(dh, k), dz, m.convInput(tr, rows, k), m.partOf(h, k), m.skipWeights(m.D.Grad, k), m.skipWeights(m.D.Data, k), tr.b)
	}
	if m.Direct > 0 {
		multiplyGate(m.partOf(dmixed, 1), dz, m.partOf(mixed, 0))
		multiplyGate(m.partOf(dmixed, 0), dz, m.partOf(mixed, 1))
	} else {
		copyRows(m.partOf(dmixed, 0), dz)
	}
	m.Filter.Backward(dh, &tr.filter)
	dproj := s.lendMatrix(rows, m.In.W.Shape[0])
	m.Conv.Backward(dproj, dmixed, proj, tr.b, ConvEnds{})
	m.In.Backward(dx, dproj, x, false)
	return nil
}

// hyenaState keeps the inputs of every long convolution.
type hyenaState struct {
	convRows []float   // [B·Conv.PastSize()]
	inputs   [][]float // [convolutions·B] of [tokens,width]
	h        []float   // [positions,convolutions·width] filters computed so far
	tokens   int64
}

// NewState returns an empty state, which grows with the tokens. The error is nil.
func (m *hyenaLayer) NewState(batch int) (State, error) { return m.newState(batch), nil }

func (m *hyenaLayer) newState(batch int) *hyenaState {
	return &hyenaState{convRows: make([]float, batch*m.Conv.PastSize()), inputs: make([][]float, m.countConvs()*batch)}
}

// filterPlaces is the number of positions whose filters a state computes at a time.
const filterPlaces = 1 << 11

// extendFilters returns the filters at the positions of the state's tokens and of n more.
func (s *hyenaState) extendFilters(m *hyenaLayer, n int, tr *hyenaTrace) tensor.Mat {
	cols := m.countConvs() * m.rowWidth()
	need := int(s.tokens) + n
	for have := len(s.h) / cols; have < need; have = len(s.h) / cols {
		// A restored state has none: tr does not grow with its tokens.
		s.h = append(s.h, m.Filter.Forward(have, min(need-have, filterPlaces), &tr.filter).Data...)
	}
	return viewMatrix(s.h, need, cols)
}

// appendAndConvolve appends z to the inputs of convolution k and sets c to its outputs.
func (s *hyenaState) appendAndConvolve(m *hyenaLayer, c, z, h tensor.Mat, d []float, k, b int) {
	n := z.Rows / b
	for r := range b {
		all := &s.inputs[k*b+r]
		for i := range n {
			*all = append(*all, z.Row(r*n+i)...)
		}
		longSteps(c.Slice(r*n, (r+1)*n), viewMatrix(*all, len(*all)/z.Cols, z.Cols), h, d)
	}
}

func (s *hyenaState) Clone() State {
	c := &hyenaState{convRows: slices.Clone(s.convRows), h: slices.Clone(s.h), tokens: s.tokens}
	for _, x := range s.inputs {
		c.inputs = append(c.inputs, slices.Clone(x))
	}
	return c
}

func (s *hyenaState) Reset() {
	clear(s.convRows)
	s.tokens = 0
	for i := range s.inputs {
		s.inputs[i] = s.inputs[i][:0]
	}
}

func (s *hyenaState) Tokens() int64 { return s.tokens }

func (s *hyenaState) Bytes() int64 {
	n := bytesOf(s.convRows) + bytesOf(s.h[:cap(s.h)])
	for _, x := range s.inputs {
		n += bytesOf(x[:cap(x)])
	}
	return n
}

// AppendBinary appends, in little-endian order, the number of tokens, the last rows of the
// short convolution, and the inputs of every long convolution and sequence. Filters are
// recomputed after a restore.
func (s *hyenaState) AppendBinary(b []byte) ([]byte, error) {
	start := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.tokens))
	var err error
	for _, x := range append([][]float{s.convRows}, s.inputs...) {
		if b, err = binary.Append(b, binary.LittleEndian, x); err != nil {
			return b[:start], err
		}
	}
	return b, nil
}

// RestoreState reads the state of batch sequences. It returns an error if data has
// another length.
func (m *hyenaLayer) RestoreState(batch int, data []byte) (State, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("hyena: the snapshot has %d bytes", len(data))
	}
	var z float
	size := int(unsafe.Sizeof(z))
	tokens, rest := binary.LittleEndian.Uint64(data), data[8:]
	past, token := batch*m.Conv.PastSize()*size, batch*m.countConvs()*m.rowWidth()*size
	if tokens > uint64(len(rest)/token) || len(rest) != past+int(tokens)*token {
		return nil, fmt.Errorf("hyena: the snapshot has %d bytes, %d tokens of %d sequences need another number", len(data), tokens, batch)
	}
	s := m.newState(batch)
	s.tokens = int64(tokens)
	for i := range s.inputs {
		s.inputs[i] = make([]float, int(tokens)*m.rowWidth())
	}
	for _, x := range append([][]float{s.convRows}, s.inputs...) {
		n, err := binary.Decode(rest, binary.LittleEndian, x)
		if err != nil {
			return nil, fmt.Errorf("hyena: %w", err)
		}
		rest = rest[n:]
	}
	return s, nil
}

// Step adds to y [B·N,width] the output for x [B·N,width] after the tokens of state. It
// sums over the inputs of all tokens for each token, which takes O(tokens). The error is nil.
func (m *hyenaLayer) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	st := state.(*hyenaState)
	u := m.runGates(x, s.B, trace.(*hyenaTrace), st)
	st.tokens += int64(x.Rows / s.B)
	m.Out.Forward(y, u, true)
	return nil
}

// Freeze returns the layer itself: its steps spend their time on sums, not on weights.
func (m *hyenaLayer) Freeze(int) Stepper { return m }
