package nn

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/settings"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var crate = MixerRow{
	Row: mechanism.Row{
		Name:   "crate",
		Doc:    "softmax attention with one projection for queries, keys and values, and a sparse-coding step for the MLP: the white-box block",
		Source: "Yu et al. 2023, White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, sections 2.3 and 2.4",
		Traits: "quadratic in the tokens; causal if asked, with a state of all projections",
		Settings: []mechanism.Setting{
			{Name: "step", Default: "0.1", Doc: "η of the sparse-coding step"},
			{Name: "lambda", Default: "0.1", Doc: "λ of it: what it subtracts is ηλ"},
		},
	},
	Rope: true,
	ISTA: true,
}

// mssa is the multi-head subspace self-attention of CRATE (Yu et al. 2023, arXiv
// 2306.01129, section 2.3): attention whose heads have one projection U for
// queries, keys and values, so that tokens move towards those that lie near them in
// the same subspace. O projects the heads back, which the paper derives as Uᵀ and
// its program learns.
type mssa struct {
	U Linear // [H·D,width], without bias
	O Linear // [width,H·D]

	H, D int
	core attention.Mechanism
}

func newMSSA(m *mixerArgs) (Mixer, error) {
	if _, _, err := istaSettings(m.Reader); err != nil {
		return nil, err
	}
	core, err := mechanism.New("softmax", mechanism.Options{})
	x := &mssa{H: m.Heads, D: m.Width / m.Heads, core: core}
	x.U = Linear{W: m.New("u_proj.weight", true, m.fanInShare(1, m.Width), x.H*x.D, m.Width)}
	x.O = m.NewLinear("o_proj", m.Residual, m.Width, x.H*x.D)
	return x, err
}

// istaSettings returns η and λ.
func istaSettings(v *settings.Reader) (step, lambda float64, err error) {
	if step, err = v.Positive("step", ""); err == nil {
		lambda, err = v.Positive("lambda", "")
	}
	return step, lambda, err
}

// NewISTA returns the layer that replaces the MLP in blocks of a mixer r with ISTA set, for
// rows of the given width. w makes its weights. It returns an error if o holds a setting that
// r does not have, or a value out of range.
func NewISTA(r MixerRow, width int, o mechanism.Options, w *WeightMaker) (*ista, error) {
	values, err := r.readSettings(o)
	if err != nil {
		return nil, err
	}
	step, lambda, err := istaSettings(values)
	bound := math.Sqrt(6 / float64(width)) // He et al. 2015, arXiv 1502.01852
	first := func(key rng.Key, i uint64) float64 { return bound * (2*key.Float64(i) - 1) }
	return &ista{D: Linear{W: w.New("dictionary.weight", true, first, width, width)}, Rate: float(step), Lambda: float(lambda)}, err
}

// Traits returns the traits of softmax attention.
func (m *mssa) Traits() attention.Traits {
	return attention.Traits{Name: crate.Name, Positive: true, Causal: true}
}

// FLOPs returns the operations of projections and attention.
func (m *mssa) FLOPs(n int, causal bool) float64 {
	s := m.callShape(1, causal)
	s.N, s.M = n, n
	return 2*float64(n)*(m.U.weightSize()+m.O.weightSize()) + m.core.Plan(s).FLOPs
}

func (m *mssa) callShape(batch int, causal bool) attention.Shape {
	return attention.Shape{B: batch, H: m.H, Hkv: m.H, D: m.D, Dv: m.D, Causal: causal}
}

// mssaTrace holds the intermediate results of mssa.Forward for Backward.
type mssaTrace struct {
	u, o  []float // [rows,H·D] projections, and outputs of attention
	call  attention.Call
	saved attention.Saved
	grads attention.Grads
}

// Aux returns 0: the layer has no auxiliary loss.
func (tr *mssaTrace) Aux() float64 { return 0 }

// NewTrace returns an empty mssaTrace.
func (m *mssa) NewTrace() Trace { return new(mssaTrace) }

// viewHeads views a [B·N, H·D] matrix by its heads.
func (m *mssa) viewHeads(data []float, b int) tensor.Heads {
	return tensor.Split(data, b, len(data)/(b*m.H*m.D), m.H*m.D, 0, m.H, m.D)
}

// setCall sets the call of tr from the projections, and returns the view of its
// output.
func (m *mssa) setCall(tr *mssaTrace, rows int, s Scope) tensor.Heads {
	resizeMatrix(&tr.o, rows, m.H*m.D)
	u := m.viewHeads(tr.u, s.B)
	tr.call = attention.Call{Q: u, K: u, V: u, Causal: s.Causal, KeyLens: s.KeyLens, Rope: s.Rope}
	return m.viewHeads(tr.o, s.B)
}

// Forward sets y [B·N,width] to base [B·N,width] plus the output for x [B·N,width]. It
// returns an error if the mechanism refuses the call.
func (m *mssa) Forward(y, base, x tensor.Mat, s Scope, trace Trace, keep bool) error {
	tr := trace.(*mssaTrace)
	m.U.Forward(resizeMatrix(&tr.u, x.Rows, m.H*m.D), x, false)
	out := m.setCall(tr, x.Rows, s)
	saved := &tr.saved
	if !keep {
		saved = nil
	}
	if err := m.core.Forward(out, &tr.call, saved); err != nil {
		return err
	}
	multiplyRows(true, rowProduct{layer: &m.O, y: y, x: viewMatrix(tr.o, x.Rows, m.H*m.D), base: base, acc: true})
	return nil
}

// Backward sets dx [B·N,width] from dy [B·N,width] and adds to the gradients of the
// weights. The gradients of queries, keys and values are added up. It returns an error
// if the mechanism refuses the call.
func (m *mssa) Backward(dx, dy, x tensor.Mat, trace Trace, s *Scratch) error {
	tr := trace.(*mssaTrace)
	s.takeBack()
	rows, wide, b := x.Rows, m.H*m.D, tr.call.Q.B
	do, dq, dk, dv := s.lendMatrix(rows, wide), s.lendMatrix(rows, wide), s.lendMatrix(rows, wide), s.lendMatrix(rows, wide)
	m.O.Backward(do, dy, viewMatrix(tr.o, rows, wide), false)
	tr.grads = attention.Grads{DQ: m.viewHeads(dq.Data, b), DK: m.viewHeads(dk.Data, b), DV: m.viewHeads(dv.Data, b)}
	if err := m.core.Backward(&tr.grads, m.viewHeads(do.Data, b), m.viewHeads(tr.o, b), &tr.call, &tr.saved); err != nil {
		return err
	}
	AddTo(dq, dk)
	AddTo(dq, dv)
	m.U.Backward(dx, dq, x, false)
	return nil
}

// NewState returns an empty state, which keeps all projections. It returns an error if
// softmax attention does.
func (m *mssa) NewState(batch int) (State, error) {
	state, err := m.core.NewState(m.callShape(batch, true))
	return attentionState{state}, err
}

// RestoreState reads a state for batch sequences. It returns an error if data is no such state,
// or if the layer has no states of its heads or widths.
func (m *mssa) RestoreState(batch int, data []byte) (State, error) {
	state, err := restoreState(m.core, m.callShape(batch, true), false, data)
	return attentionState{state}, err
}

// Step adds to y [B·N,width] the causal output for x [B·N,width] after the tokens of
// state. It returns an error if the state refuses the call.
func (m *mssa) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	tr := trace.(*mssaTrace)
	m.U.Forward(resizeMatrix(&tr.u, x.Rows, m.H*m.D), x, false)
	if err := state.(attentionState).State.Step(m.setCall(tr, x.Rows, s), &tr.call); err != nil {
		return err
	}
	m.O.Forward(y, viewMatrix(tr.o, x.Rows, m.H*m.D), true)
	return nil
}

// packedMSSA is an mssa for steps.
type packedMSSA struct {
	layer *mssa
	u, o  *PackedLinear
}

// Freeze returns the layer with packed weights, for steps of at most rows rows.
func (m *mssa) Freeze(rows int) Stepper {
	return &packedMSSA{m, m.U.Freeze(rows), m.O.Freeze(rows)}
}

// Step computes mssa.Step with packed weights.
func (m *packedMSSA) Step(y, x tensor.Mat, state State, s Scope, trace Trace) error {
	l, tr := m.layer, trace.(*mssaTrace)
	m.u.Forward(resizeMatrix(&tr.u, x.Rows, l.H*l.D), x, false)
	if err := state.(attentionState).State.Step(l.setCall(tr, x.Rows, s), &tr.call); err != nil {
		return err
	}
	m.o.Forward(y, viewMatrix(tr.o, x.Rows, l.H*l.D), true)
	return nil
}
