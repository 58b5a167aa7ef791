package engine

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/costmodel"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Engine implements attention.Mechanism for a Spec without a window.
type Engine struct {
	Spec     headtask.Spec
	ParamSet *param.Set
	speeds   *costmodel.Table
	walkers  sync.Map  // by width: *monomials, whose weights their copies share
	units    sync.Pool // of *task
	passes   sync.Pool // of *pass

	products atomic.Pointer[Engine] // for ProductDrop; made when first needed
}

// New returns the mechanism that s describes. It returns an error if the fields of s do not fit
// together.
func New(s headtask.Spec) (*Engine, error) {
	kernels := 0
	for _, is := range []bool{s.Exp, s.Similarity != nil, len(s.Coef) > 0} {
		if is {
			kernels++
		}
	}
	if kernels != 1 {
		return nil, fmt.Errorf("%s: needs one of Exp, Similarity and Coef", s.Name)
	}
	if f := s.Similarity; f != nil && (f.F == nil || f.Slope == nil) {
		return nil, fmt.Errorf("%s: Similarity needs F and Slope", s.Name)
	}
	if len(s.Coef) == 1 {
		return nil, fmt.Errorf("%s: a constant is no kernel", s.Name)
	}
	if len(s.Coef) > 0 && s.Coef[s.Degree()] == 0 {
		return nil, fmt.Errorf("%s: the highest of %d coefficients is 0", s.Name, len(s.Coef))
	}
	if s.IsPairwise() && (s.Unnormalized || s.BuiltinDecay != nil) {
		return nil, fmt.Errorf("%s: only polynomials can do without a denominator, or forget", s.Name)
	}
	if s.Unnormalized {
		if s.Eps != 0 || s.OutputNorm {
			return nil, fmt.Errorf("%s: without a denominator there is no eps and no norm of outputs", s.Name)
		}
		s.Eps = 1
	}
	if s.Floor > 0 && (s.IsPairwise() || s.Unnormalized || s.Eps != 0) {
		return nil, fmt.Errorf("%s: only polynomials with a denominator, without eps, have a least one", s.Name)
	}
	if s.Gated && s.Features == nil {
		return nil, fmt.Errorf("%s: a gate needs features, which it multiplies", s.Name)
	}
	e := &Engine{Spec: s, speeds: costmodel.Speeds(kernel.Active[float]().Name)}
	if s.Tau != nil || s.LearnsFeatures() {
		e.ParamSet = new(param.Set)
	}
	if s.Tau != nil {
		e.ParamSet.Add(s.Tau)
	}
	if s.LearnsFeatures() {
		e.ParamSet.AddPrefixed("", s.Features.Params())
	}
	return e, nil
}

// Traits returns what the mechanism supports.
func (e *Engine) Traits() attention.Traits {
	t := attention.Traits{
		Dropout: true, Products: e.hasProducts(), Decay: !e.Spec.Norm.NeedsAllTokens() && !e.Spec.OutputNorm && e.Spec.Floor == 0,

		Name: e.Spec.Name, Positive: e.Spec.Positive, Causal: !e.Spec.Norm.NeedsAllTokens(),
		Streaming: !e.Spec.IsPairwise() && !e.Spec.Norm.NeedsAllTokens(), Linear: !e.Spec.IsPairwise(),
	}
	if !t.Causal {
		t.NoCausal = overTokens
	}
	t.BuiltinDecay = e.Spec.BuiltinDecay != nil
	t.CausalOnly = t.BuiltinDecay
	t.PlacedHeads = t.CausalOnly || e.Spec.Norm == attention.GlobalCentred
	t.MixedQueries = e.Spec.Norm.NeedsAllTokens()
	return t
}

// Setting identifies what the mechanism computes.
func (e *Engine) Setting() string { return e.Spec.Setting }

// Params returns the learned parameters, or nil if there are none.
func (e *Engine) Params() *param.Set { return e.ParamSet }

// Constants returns numbers that were drawn once, or nil if there are none.
func (e *Engine) Constants() *param.Set {
	if e.Spec.Features == nil {
		return nil
	}
	return e.Spec.Features.Constants()
}

// Forward sets out [B,H,N,Dv]. It returns an error if out or c do not fit, and, if keep is nil,
// a *NonFiniteError for outputs that are not finite.
func (e *Engine) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := e.CheckCall(c); err != nil {
		return err
	}
	if p, x := e.onProducts(c); p != nil {
		return p.Forward(out, x, keep)
	}
	if err := c.CheckWritten("o", &out, keep); err != nil {
		return err
	}
	if c.Form == attention.Step {
		if keep != nil {
			return states.ErrStepKeeps
		}
		if !c.HasState() { // a segment has the bits of steps
			return states.ForwardByStep(attention.Mechanism(e), out, c, false)
		}
	}
	if e.Spec.BuiltinDecay != nil {
		ar := arena.Acquire()
		defer ar.Release()
		c = e.withBuiltinDecay(ar, c)
	}
	p := e.newPass(c, out, keep)
	defer p.release()
	var err error
	if p.seg, err = e.segment(c, p.seqs, keep != nil); err != nil {
		return err
	}
	if keep != nil {
		if need := c.Q.B * c.Q.H * c.Q.N; cap(keep.Den) >= need {
			keep.Den = keep.Den[:need]
		} else {
			keep.Den = make([]float, need)
		}
		keep.UnseenCount, keep.WeakCount, keep.Aux, keep.Residual = 0, 0, 0, 0
		if need := len(p.seqs) * c.K.H; cap(keep.Moments) >= need {
			keep.Moments = keep.Moments[:need]
		} else {
			keep.Moments = make([][]float, need)
		}
	}
	p.run()
	if p.seg != nil {
		p.seg.end()
	}
	if keep != nil {
		e.countWeakRows(c, p.seqs, p.seg, keep, p.noticed.Vanish.Load())
	}
	return attention.ReportNonFinite(out, keep, p.noticed.Overflow.Load())
}

// Backward sets g from dout and out [B,H,N,Dv]. It returns an error if a shape does not fit, or
// keep is not from Forward for the same call.
func (e *Engine) Backward(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := e.CheckCall(c); err != nil {
		return err
	}
	if p, x := e.onProducts(c); p != nil {
		return p.Backward(g, dout, out, x, keep)
	}
	if err := c.CheckOutput("o", &out); err != nil {
		return err
	}
	if err := g.CheckShapes(&dout, c); err != nil {
		return err
	}
	if keep == nil || len(keep.Den) != c.Q.B*c.Q.H*c.Q.N {
		return fmt.Errorf("saved: not what Forward left for this call")
	}
	given := c
	if e.Spec.BuiltinDecay != nil {
		ar := arena.Acquire()
		defer ar.Release()
		c = e.withBuiltinDecay(ar, c)
	}
	if err := CheckAge(g, c); err != nil {
		return err
	}
	if err := g.CheckMemory(&dout, &out, given, keep); err != nil {
		return err
	}
	p := e.newPass(c, out, keep)
	defer p.release()
	p.back, p.g, p.dout = true, *g, dout
	var err error
	if p.seg, err = e.segment(c, p.seqs, true); err != nil {
		return err
	}
	if err := CheckStateGrads(g, c, p.seg); err != nil {
		return err
	}
	p.dscale = append(p.dscale, make([]float64, len(p.seqs)*c.Q.H)...)
	if e.Spec.LearnsFeatures() {
		p.dparams = append(p.dparams, make([]float, len(p.seqs)*c.K.H*e.Spec.Features.Params().Size())...)
	}
	p.run()
	p.addParamGrads()
	e.AddTau(p.dscale, c)
	return nil
}

// AddTau adds dscale [sequences, H], the gradients of the scales, to the gradient of Spec.Tau.
func (e *Engine) AddTau(dscale []float64, c *attention.Call) {
	if tau := e.Spec.Tau; tau != nil {
		one := e.Spec
		one.Tau = nil
		factor := float64(one.RowScale(c.Q.D, 0))
		for i, d := range dscale {
			tau.Grad[e.Spec.TauIndex(i%c.Q.H)] += float(factor * d)
		}
	}
}

// MonomialsOf returns the monomials for the rows of u, and creates them if they have another
// width.
func (e *Engine) MonomialsOf(u *headtask.Task) *features.Monomials {
	if w := u.FeatureWidth(); u.Monomials == nil || u.Monomials.Width != w {
		u.Monomials = e.newMonomials(w)
	}
	return u.Monomials
}

// NewTask returns a task for key head kh of sequence s. Everything is set for Forward except
// the outputs. Release takes the task back.
func (e *Engine) NewTask(c *attention.Call, s *SequenceTask, kh int, ar *arena.Arena) *headtask.Task {
	u, _ := e.units.Get().(*headtask.Task)
	if u == nil {
		u = new(headtask.Task)
	}
	u.Arena = ar
	u.Geometry = headtask.Geometry{
		Q: u.Q, Scale: u.Scale, // empty, with room
		Table: kernel.Active[float](), Spec: &e.Spec,
		KeyHead: kh,
		K:       c.K.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M),
		V:       c.V.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M),
		N:       s.N, M: s.M, D: c.Q.D, Dv: c.V.D, PreparedWidth: e.Spec.Width(c.Q.D),
		Causal: c.Causal, Offset: s.Offset, Rope: c.Rope,
		Chunk: e.Chunk(c.Q.D, c.Chunk),
	}
	if c.Causal {
		u.FirstPosition = s.Offset + e.Spec.FarLag
	}
	if e.Spec.IsSymmetric {
		u.Causal, u.Offset = true, s.Offset+e.Spec.WindowWidth/2
	}
	u.Q = HeadsOf(u.Q, c.Q, s, headtask.HeadRange{Lo: kh * (c.Q.H / c.K.H), N: c.Q.H / c.K.H})
	for g := range u.Q {
		u.Scale = append(u.Scale, e.Spec.RowScale(u.D, kh*len(u.Q)+g))
	}
	if s.stats != nil {
		u.Stats, u.KeyStats = s.stats[kh*len(u.Q):][:len(u.Q)], &s.stats[c.Q.H+kh]
	}
	if c.KeyMask != nil {
		u.Mask = c.KeyMask[s.Batch*c.K.N+s.K0:][:s.M]
	}
	if c.AttnKeep != nil {
		u.Keep, u.KeepRow = c.AttnKeep[s.Q0*c.K.N+s.K0:], c.K.N
	}
	if c.Drop.IsActive() {
		u.Drop, u.KeyHeads = c.Drop, c.K.H
		u.Coords = attention.DropCoords{Row: s.Index, Start: c.Drop.Start, B: s.Batch, Q0: s.Q0, K0: s.K0, N: c.Q.N, M: c.K.N}
	}
	if c.HasDecay() {
		u.LogG = c.LogG.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	}
	return u
}

// Release resets u and keeps it for NewTask.
func (e *Engine) Release(u *headtask.Task) {
	u.Clear()
	e.units.Put(u)
}

// NewState returns an empty state. It returns an error if the mechanism has no state of shape
// s.
func (e *Engine) NewState(s attention.Shape) (attention.State, error) {
	if err := e.refuseFuture("state"); err != nil {
		return nil, err
	}
	if err := s.CheckState(); err != nil {
		return nil, err
	}
	if err := e.CheckHeads(s.H, s.Hkv, s.D); err != nil {
		return nil, err
	}
	if err := e.checkBuiltinDecayHeads(s.Hkv); err != nil {
		return nil, err
	}
	if s.Carry != attention.Rounded && s.Carry != attention.Compensated {
		return nil, fmt.Errorf("state: carry is %d, not %d or %d", s.Carry, attention.Rounded, attention.Compensated)
	}
	if err := e.checkMoments(s.D, s.Dv); err != nil {
		return nil, err
	}
	s = attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv, Chunk: s.Chunk, Carry: s.Carry}
	if err := s.CheckStateSize(e.StateBytes(s)); err != nil {
		return nil, err
	}
	if e.Spec.IsPairwise() {
		return newKeyCache(e, s), nil
	}
	return NewRecurrentState(e, s), nil
}

// Weights sets dst [i1-i0,M] to rows of the attention matrix. It returns an error if the rows
// do not exist or dst has another shape.
func (e *Engine) Weights(dst tensor.Mat, c *attention.Call, b, h, i0, i1 int) error {
	if err := e.CheckCall(c); err != nil {
		return err
	}
	if p, x := e.onProducts(c); p != nil {
		return p.Weights(dst, x, b, h, i0, i1)
	}
	if err := c.CheckRows(dst, b, h, i0, i1); err != nil {
		return err
	}
	scratch.ClearRows(dst, 0, dst.Rows)
	if e.Spec.BuiltinDecay != nil {
		ar := arena.Acquire()
		defer ar.Release()
		c = e.withBuiltinDecay(ar, c)
	}
	group := c.Q.H / c.K.H
	seqs := e.Sequences(nil, new([]attention.Sequence), c)
	e.measure(c, seqs)
	for _, s := range seqs {
		lo, hi := max(i0, s.Q0), min(i1, s.Q0+s.N)
		if s.Batch != b || lo >= hi {
			continue
		}
		ar := arena.Acquire()
		u := e.NewTask(c, &s, h/group, ar)
		rows := dst.Slice(lo-i0, hi-i0)
		rows.Data, rows.Cols = rows.Data[s.K0:], s.M
		u.DirectWeights(rows, h%group, lo-s.Q0, hi-s.Q0)
		e.Release(u)
		ar.Release()
	}
	return nil
}

// newMonomials returns a walker for prepared rows of a width. Walkers of one
// engine share their weights.
func (e *Engine) newMonomials(width int) *features.Monomials {
	first, ok := e.walkers.Load(width)
	if !ok {
		first, _ = e.walkers.LoadOrStore(width, features.NewMonomials(kernel.Active[float](), e.Spec.Coef, !e.Spec.IsSinglePower(), width))
	}
	return first.(*features.Monomials).Clone()
}

// withBuiltinDecay returns c with the mechanism's decay added to the call's decay, in scratch
// memory.
func (e *Engine) withBuiltinDecay(ar *arena.Arena, c *attention.Call) *attention.Call {
	x := *c
	k := &c.K
	x.LogG = tensor.Heads{Data: arena.Take[float](ar, k.B*k.H*k.N), B: k.B, H: k.H, N: k.N, D: 1, SB: k.H * k.N, SH: k.N, SN: 1}
	for i := range k.B * k.H {
		b, h := i/k.H, i%k.H
		own, to := e.Spec.BuiltinDecay.Log(h), x.LogG.Head(b, h)
		for j := range k.N {
			g := own
			if c.HasDecay() {
				g += float64(c.LogG.Head(b, h).Row(j)[0])
			}
			to.Row(j)[0] = float(max(g, -math.MaxFloat32))
		}
	}
	return &x
}

// hasProducts reports whether the mechanism can leave out products.
func (e *Engine) hasProducts() bool {
	return !e.Spec.Exp && !e.Spec.HasMap() && e.Spec.Degree() == 2
}

// onProducts returns the engine and the call that compute c on rows of products, or
// nil if c does not need them. It takes the linear form unless c asks for another.
func (e *Engine) onProducts(c *attention.Call) (*Engine, *attention.Call) {
	if !c.Drop.IsActive() || c.Drop.Kind != attention.ProductDrop {
		return nil, nil
	}
	if _, mapped := e.Spec.Map.(headtask.Products); mapped {
		return nil, nil
	}
	p := e.products.Load()
	if p == nil {
		s := e.Spec
		s.Map, s.Coef, s.Positive = headtask.Products{Coef: [3]float64(s.Coef)}, []float64{0, 1}, false
		e.products.CompareAndSwap(nil, &Engine{Spec: s, ParamSet: e.ParamSet, speeds: e.speeds})
		p = e.products.Load()
	}
	x := *c
	if x.Form == attention.Auto && x.AttnKeep == nil {
		x.Form = attention.Linear
	}
	return p, &x
}

// CheckCall returns an error if c is not a valid call, or the mechanism does not support it.
func (e *Engine) CheckCall(c *attention.Call) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Form == attention.Linear || c.Form == attention.Step {
		if c.AttnKeep != nil {
			return fmt.Errorf("attn_keep: not defined in the %v form", c.Form)
		}
		if err := e.checkMoments(c.Q.D, c.V.D); err != nil {
			return err
		}
	}
	if c.Form == attention.Linear && e.Spec.IsPairwise() {
		return fmt.Errorf("form: %s has no linear form", e.Spec.Name)
	}
	if c.Causal {
		if err := e.refuseFuture("causal"); err != nil {
			return err
		}
	}
	if err := e.refuseFading(c); err != nil {
		return err
	}
	if err := e.checkBuiltinDecay(c); err != nil {
		return err
	}
	if err := e.checkProducts(c); err != nil {
		return err
	}
	return e.CheckHeads(c.Q.H, c.K.H, c.Q.D)
}

func (e *Engine) CheckHeads(heads, keyHeads, d int) error {
	if t := e.Spec.Tau; t != nil && len(t.Data) != 1 && len(t.Data) != heads {
		return fmt.Errorf("%s: has %d heads, q has %d", t.Name, len(t.Data), heads)
	}
	if e.Spec.Features != nil {
		return e.Spec.Features.Check(heads, keyHeads, d)
	}
	return nil
}

// checkMoments reports a width and a degree whose features with values of width dv
// have more moments than maxMoments.
func (e *Engine) checkMoments(d, dv int) error {
	f := e.Spec.CountFeatures(e.Spec.Width(d))
	size := float64(f) * float64(scratch.Stride[float](dv))
	if size <= maxMoments {
		return nil
	}
	more := ""
	if f == math.MaxInt {
		more = " and more"
	}
	return fmt.Errorf("%s: the linear form of degree %d has %d%s features for D = %d, whose sums with Dv = %d are %.0f%s numbers a head, at most %d",
		e.Spec.Name, e.Spec.Degree(), f, more, d, dv, size, more, maxMoments)
}

// maxMoments is the most numbers that the moments of a head may have: 4 GiB in
// float32, sixteen times the moments of degree 4 at D = Dv = 64. Wider rows or higher
// degrees are a mistake.
const maxMoments = 1 << 30

// checkBuiltinDecay reports a call whose keys a decay of the mechanism's own does
// not fit.
func (e *Engine) checkBuiltinDecay(c *attention.Call) error {
	switch f := e.Spec.BuiltinDecay; {
	case f == nil:
		return nil
	case !c.Causal:
		return fmt.Errorf("causal: %s has decay, which needs a causal call, whose queries have a place among the keys", e.Spec.Name)
	default:
		return e.checkBuiltinDecayHeads(c.K.H)
	}
}

func (e *Engine) checkBuiltinDecayHeads(heads int) error {
	if f := e.Spec.BuiltinDecay; f != nil && f.Heads != 0 && f.Heads != heads {
		return fmt.Errorf("%s: has %d numbers, k has %d heads", f.Name, f.Heads, heads)
	}
	return nil
}

// checkProducts reports a call whose dropout of products the mechanism cannot
// do.
func (e *Engine) checkProducts(c *attention.Call) error {
	if c.Drop == nil || c.Drop.Kind != attention.ProductDrop {
		return nil
	}
	_, mapped := e.Spec.Map.(headtask.Products)
	switch {
	case !mapped && !e.hasProducts():
		return fmt.Errorf("dropout: %v needs a kernel of degree 2 without a feature map, which %s does not have", c.Drop.Kind, e.Spec.Name)
	case c.Form == attention.Step:
		return fmt.Errorf("dropout: %v is not defined in the step form", c.Drop.Kind)
	case c.HasState():
		return fmt.Errorf("dropout: %v is not defined with a state before or after the call", c.Drop.Kind)
	}
	return nil
}

// refuseFading reports a decay where outputs are multiplied by a number of keys:
// with a decay, a state holds what is left of its keys, not how many they were.
func (e *Engine) refuseFading(c *attention.Call) error {
	switch {
	case !c.HasDecay():
		return nil
	case e.Spec.Floor > 0:
		return fmt.Errorf("log_g: %s has a least denominator, which does not go with weights that decay", e.Spec.Name)
	case !e.Spec.OutputNorm:
		return nil
	}
	return fmt.Errorf("log_g: %s with output_norm counts keys, which sums that lose weight do not tell", e.Spec.Name)
}

// refuseFuture reports a normalisation over all tokens where later ones must
// not count.
func (e *Engine) refuseFuture(what string) error {
	if !e.Spec.Norm.NeedsAllTokens() {
		return nil
	}
	return fmt.Errorf("%s: %s with norm %v is not causal: %s", what, e.Spec.Name, e.Spec.Norm, overTokens)
}

const overTokens = "its statistics are taken over all tokens, later ones too"
