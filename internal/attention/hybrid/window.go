package hybrid

import (
	"fmt"
	"math"
	"sync"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// hybrid is a mechanism with a near field: one engine for the window, one for the tail
// (the far field), and the code that joins their rows. With one denominator the tail
// returns numerators and denominators, and the window returns means and the logarithms
// of its denominators. In the backward pass both read the output and the denominator of
// the joined row in place of their own.
type hybrid struct {
	window             attention.Window
	eps                float64
	tail, windowEngine *engine.Engine
	unmaskedNear       *engine.Engine // near, of calls that are not causal
	params             *param.Set
	scratch            sync.Pool // of *windowScratch
	joints             sync.Pool // of *joint
}

// maxWidth bounds the width of a window, so that both of its sides fit an int.
const maxWidth = 1 << 30

// New returns the mechanism with a window that s describes. It returns an error if the fields
// of s do not fit together.
func New(s attention.Spec) (attention.Mechanism, error) {
	w, tail := *s.Window, headtask.Spec{Spec: s}
	switch {
	case w.Width < 1:
		return nil, fmt.Errorf("%s: window: %d tokens, needs 1 or more", s.Name, w.Width)
	case w.Width > maxWidth:
		return nil, fmt.Errorf("%s: window: %d tokens, needs %d or less", s.Name, w.Width, maxWidth)
	case w.Join != attention.OneDenominator && w.Join != attention.Separate:
		return nil, fmt.Errorf("%s: window: join is %d, not %d or %d", s.Name, int(w.Join), attention.OneDenominator, attention.Separate)
	case tail.IsPairwise():
		return nil, fmt.Errorf("%s: window: needs a linear tail, a kernel polynomial", s.Name)
	case s.Norm.NeedsAllTokens():
		return nil, fmt.Errorf("%s: window: norm %v is taken over all tokens, a window needs causal calls", s.Name, s.Norm)
	case s.Unnormalized, s.BuiltinDecay != nil:
		return nil, fmt.Errorf("%s: window: not defined without a denominator, or with a decay of the mechanism's own", s.Name)
	case s.Features != nil:
		return nil, fmt.Errorf("%s: window: not defined beside features with numbers of their own", s.Name)
	case s.Floor > 0:
		return nil, fmt.Errorf("%s: window: not defined with a least denominator of %g", s.Name, s.Floor)
	case s.OutputNorm:
		return nil, fmt.Errorf("%s: window: not defined with output_norm", s.Name)
	}
	x := &hybrid{window: w, eps: s.Eps}
	tail.Window = nil
	near := headtask.Spec{Spec: attention.Spec{Name: s.Name, Setting: s.Setting, Exp: true, Positive: true}, WindowWidth: w.Width}
	if w.Join == attention.OneDenominator {
		tail.FarLag, tail.GivesNumerators, tail.Eps = w.Width, true, 0
	}
	var err error
	if x.tail, err = engine.New(tail); err != nil {
		return nil, err
	}
	if x.windowEngine, err = engine.New(near); err != nil {
		return nil, err
	}
	near.WindowWidth, near.IsSymmetric = 2*w.Width-1, true
	if x.unmaskedNear, err = engine.New(near); err != nil {
		return nil, err
	}
	x.params = x.tail.ParamSet
	if w.LogGamma != nil {
		x.params = new(param.Set)
		x.params.AddPrefixed("", x.tail.ParamSet)
		x.params.Add(w.LogGamma)
	}
	return x, nil
}

func (w *hybrid) Traits() attention.Traits {
	t := w.tail.Traits()
	t.Products, t.Banded, t.PlacedQueries = false, true, true
	return t
}

func (w *hybrid) Setting() string { return w.tail.Setting() }

func (w *hybrid) Params() *param.Set { return w.params }

func (w *hybrid) Constants() *param.Set { return nil }

// logGamma returns log γ of query head h.
func (w *hybrid) logGamma(h int) float64 {
	if p := w.window.LogGamma; p != nil {
		return float64(p.Data[w.gammaIndex(h)])
	}
	return 0
}

func (w *hybrid) gammaIndex(h int) int {
	if len(w.window.LogGamma.Data) == 1 {
		return 0
	}
	return h
}

func (w *hybrid) oneDenominator() bool { return w.window.Join == attention.OneDenominator }

// Check returns an error if c does not fit the tail or the window.
func (w *hybrid) Check(c *attention.Call) error {
	if err := w.tail.CheckCall(c); err != nil {
		return err
	}
	if !c.Causal {
		const why = "%s of %s with a window needs a causal call: queries that read a state stand at its last token"
		switch {
		case c.Init != nil:
			return fmt.Errorf(why, "init", w.tail.Spec.Name)
		case c.Final != nil:
			return fmt.Errorf(why, "final", w.tail.Spec.Name)
		case c.Form == attention.Step:
			return fmt.Errorf(why, "form: step", w.tail.Spec.Name)
		}
	}
	if c.Drop.IsActive() && c.Drop.Kind == attention.ProductDrop {
		return fmt.Errorf("dropout: %v is not defined with a window", c.Drop.Kind)
	}
	return w.checkHeads(c.Q.H)
}

func (w *hybrid) checkHeads(h int) error {
	if g := w.window.LogGamma; g != nil && len(g.Data) != 1 && len(g.Data) != h {
		return fmt.Errorf("%s: has %d heads, q has %d", g.Name, len(g.Data), h)
	}
	return nil
}

// windowSaved is what a window leaves for Backward.
type windowSaved struct {
	tail, window attention.Saved
	sums         headtask.BandSums // of the window
	o            []float           // [B,H,N,Dv] of the window alone
	rows         []joinedRow       // [B,H,N]
	tailFactors  []float           // [B,H,N] factors of the tail's numerators; 0: none, or it overflows
	share        []float           // [B,H,N] the window's share of a joined denominator
}

// savedOf returns the intermediate results of a window in keep; nil: there are none.
func savedOf(keep *attention.Saved) *windowSaved {
	s, _ := keep.Own.(*windowSaved)
	return s
}

// resize makes room for what is kept of n joined rows.
func (s *windowSaved) resize(n int) {
	s.rows, s.share, s.tailFactors = scratch.Grow(s.rows[:0], n), scratch.Grow(s.share[:0], n), scratch.Grow(s.tailFactors[:0], n)
}

// windowScratch is what Forward and Backward work in.
type windowScratch struct {
	saved             windowSaved
	tailDo, nearDo, o []float // [B,H,N,Dv]
	dq, dk, dv, dlogG []float
	dgamma            []float64 // [sequences, H]
	seqs              []engine.SequenceTask
	room              []attention.Sequence // of the call
	windowCall        attention.Call       // the call as the window has it
	gradients         splitGrads
	nearGrads         attention.Grads
}

func (w *hybrid) take() *windowScratch {
	if x, _ := w.scratch.Get().(*windowScratch); x != nil {
		return x
	}
	return new(windowScratch)
}

// headsIn returns heads in memory that is kept.
func headsIn(memory *[]float, b, h, n, d int) tensor.Heads {
	*memory = scratch.Grow((*memory)[:0], b*h*n*d)
	return tensor.HeadsOf(*memory, b, h, n, d)
}

// likeOutput is headsIn for the outputs of c.
func likeOutput(memory *[]float, c *attention.Call) tensor.Heads {
	return headsIn(memory, c.Q.B, c.Q.H, c.Q.N, c.V.D)
}

// nearOf returns the engine of the window.
func (w *hybrid) nearOf(causal bool) *engine.Engine {
	if causal {
		return w.windowEngine
	}
	return w.unmaskedNear
}

// nearCall returns c as the window has it.
func (x *windowScratch) nearCall(c *attention.Call) *attention.Call {
	x.windowCall = *c
	x.windowCall.Form, x.windowCall.Chunk = attention.Auto, 0
	return &x.windowCall
}

// release keeps x for another call, without what it points at.
func (w *hybrid) release(x *windowScratch) {
	x.windowCall, x.gradients, x.nearGrads = attention.Call{}, splitGrads{}, attention.Grads{}
	w.scratch.Put(x)
}

func (w *hybrid) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := w.Check(c); err != nil {
		return err
	}
	if err := c.CheckWritten("o", &out, keep); err != nil {
		return err
	}
	if c.Form == attention.Step {
		if keep != nil {
			return states.ErrStepKeeps
		}
		if !c.HasState() {
			return states.ForwardByStep(attention.Mechanism(w), out, c, false)
		}
	}
	scratch := w.take()
	defer w.release(scratch)
	saved := &scratch.saved
	if keep != nil {
		if savedOf(keep) == nil {
			keep.Own = new(windowSaved)
		}
		saved = savedOf(keep)
	}
	if c.HasState() {
		return w.segmentForward(out, c, saved, keep)
	}
	near := likeOutput(&saved.o, c)
	saved.window.Own = nil
	if w.oneDenominator() {
		saved.sums.Resize(c.Q.B * c.Q.H * c.Q.N)
		saved.sums.Logless = keep == nil
		saved.window.Own = &saved.sums
	}
	if err := w.nearOf(c.Causal).Forward(near, scratch.nearCall(c), &saved.window); err != nil {
		return err
	}
	if w.oneDenominator() {
		if !c.Causal {
			w.farForward(out, c, &saved.tail)
		} else if err := w.tail.Forward(out, c, &saved.tail); err != nil {
			return err
		}
		scratch.seqs = engine.AppendSequenceTasks(scratch.seqs[:0], &scratch.room, c)
		w.join(out, c, scratch.seqs, saved, keep)
		return attention.ReportNonFinite(out, keep, true)
	}
	if err := w.tail.Forward(out, c, keep); err != nil && !attention.IsNonFinite(err) {
		return err
	}
	for i := range out.B * out.H {
		w.addRows(out.Head(i/out.H, i%out.H), near.Head(i/out.H, i%out.H), i%out.H)
	}
	return attention.ReportNonFinite(out, keep, true)
}

// addRows adds the window's part of query head h to the tail's.
func (w *hybrid) addRows(o, near tensor.Mat, h int) {
	t, gamma := kernel.Active[float](), float(math.Exp(w.logGamma(h)))
	for i := range o.Rows {
		t.Axpy(o.Row(i), gamma, near.Row(i))
	}
}

func (w *hybrid) Backward(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := w.Check(c); err != nil {
		return err
	}
	if err := c.CheckOutput("o", &out); err != nil {
		return err
	}
	if err := g.CheckShapes(&dout, c); err != nil {
		return err
	}
	if err := engine.CheckAge(g, c); err != nil {
		return err
	}
	if err := engine.CheckStateGrads(g, c, nil); err != nil {
		return err
	}
	if n := c.Q.B * c.Q.H * c.Q.N; keep == nil || savedOf(keep) == nil || len(keep.Den) != n || len(savedOf(keep).window.Den) != n {
		return fmt.Errorf("saved: not what Forward left for this call")
	}
	if err := g.CheckMemory(&dout, &out, c, keep); err != nil {
		return err
	}
	scratch := w.take()
	defer w.release(scratch)
	if c.HasState() {
		return w.segmentBackward(g, dout, out, c, keep, scratch)
	}
	scratch.seqs = engine.AppendSequenceTasks(scratch.seqs[:0], &scratch.room, c)
	seqs, sums := scratch.seqs, &savedOf(keep).sums
	// Rotation and dropout change gradients further, and a decay needs the gradients of the window alone.
	sums.Adds = w.oneDenominator() && c.Rope == nil && !c.Drop.IsActive() && !c.HasDecay()
	x := w.part(dout, out, c, len(seqs), keep, scratch)
	if sums.Adds {
		sums.Shares, x.nearDo = savedOf(keep).share, tensor.Heads{}
	}
	windowTask{w: w, c: c, seqs: seqs, gradients: x}.run()
	if !c.Causal && w.oneDenominator() {
		w.farBackward(g, x, c)
	} else if err := w.tail.Backward(g, x.tailDo, x.tailO, c, x.tail); err != nil {
		return err
	}
	near, nearDo := &scratch.nearGrads, dout
	*near = attention.Grads{DQ: g.DQ, DK: g.DK, DV: g.DV}
	if !sums.Adds {
		*near = attention.Grads{
			DQ: headsIn(&scratch.dq, c.Q.B, c.Q.H, c.Q.N, c.Q.D),
			DK: headsIn(&scratch.dk, c.K.B, c.K.H, c.K.N, c.K.D),
			DV: headsIn(&scratch.dv, c.V.B, c.V.H, c.V.N, c.V.D),
		}
		nearDo = x.nearDo
	}
	if c.HasDecay() && g.DLogG.D != 0 {
		near.DLogG = headsIn(&scratch.dlogG, c.K.B, c.K.H, c.K.N, 1)
	}
	if err := w.nearOf(c.Causal).Backward(near, nearDo, x.nearO, scratch.nearCall(c), &savedOf(keep).window); err != nil {
		return err
	}
	if !sums.Adds {
		addHeads(g.DQ, near.DQ)
		addHeads(g.DK, near.DK)
		addHeads(g.DV, near.DV)
	}
	if near.DLogG.D != 0 {
		addHeads(g.DLogG, near.DLogG)
		w.addEpsAges(g.DLogG, dout, out, c, seqs, keep)
	}
	w.addGamma(scratch.dgamma, c.Q.H)
	return nil
}

// addHeads adds x to y.
func addHeads(y, x tensor.Heads) {
	t := kernel.Active[float]()
	for i := range y.B * y.H {
		to, from := y.Head(i/y.H, i%y.H), x.Head(i/y.H, i%y.H)
		t.AddRows(to.Data, to.Stride, to.Data, to.Stride, from.Data, from.Stride, to.Rows, to.Cols)
	}
}

// addGamma adds the derivatives by log γ, of each head of each sequence.
func (w *hybrid) addGamma(d []float64, heads int) {
	p := w.window.LogGamma
	for i := range d {
		if p != nil {
			p.Grad[w.gammaIndex(i%heads)] += float(d[i])
		}
	}
}

func (w *hybrid) Plan(s attention.Shape) attention.Plan {
	near := w.nearOf(s.Causal).Plan(attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, N: s.N, M: s.M, D: s.D, Dv: s.Dv, Causal: true})
	p := w.tail.Plan(s)
	if !s.Causal && w.oneDenominator() {
		w.planFar(&p, s)
	}
	p.Renews = false // a token leaves the window as another comes in
	p.FLOPs += near.FLOPs
	p.Bytes = max(p.Bytes, near.Bytes)
	p.Cost += near.Cost
	p.BackCost += near.BackCost
	p.Bound = w.bound(p.Bound, near.Bound)
	width := float64(w.window.Width)
	if p.Window = width * float64(s.D+s.Dv); w.oneDenominator() {
		p.Window += width * float64(w.tail.Spec.Width(s.D))
	}
	p.State += w.ringBytes(s)
	p.WindowFLOPs = 2 * width * float64(s.D+s.Dv+3)
	return p
}

// bound is Plan.Bound of a window and its far field, from the bounds near and tail of
// the two; 0 if the far field has none. The mean of the window errs twice, in numerator
// and denominator, and so does the joined result.
func (w *hybrid) bound(tail, near float64) float64 {
	if tail == 0 {
		return 0
	}
	return 4. / 3 * (max(tail, 2*near) + engine.AccumulatedRounding(64, engine.Rounding()))
}
