package headtask

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// PanelRows is the number of query rows whose weights for a whole block of keys are held at a
// time. Against fewer keys there can be more rows.
const PanelRows = 48

// MaxRows returns the number of rows whose weights for n keys may be held at a time.
func MaxRows(n int) int { return PanelRows * max(1, KeyBlock/kernel.Pad(max(n, 1))) }

// Geometry describes the work for one key head of one sequence and the query heads that share it:
// rows, shapes, masks and positions. It is set once a call; the forms only read it.
type Geometry struct {
	Table *kernel.Table[float]
	Spec  *Spec

	Q                  []tensor.Mat // per query head that shares the key head: [n,D]
	K, V               tensor.Mat   // [m,D], [m,Dv]
	Scale              []float      // per query head
	N, M               int
	D, Dv              int
	PreparedWidth      int // width of prepared rows
	Causal             bool
	Offset             int  // if Causal, query i sees keys j ≤ i+Offset
	FirstPosition      int  // position of query 0 in the rotation table
	HasPreparedKeys    bool // K holds prepared rows
	HasPreparedQueries bool // Q holds prepared rows
	Chunk              int  // tokens of a chunk, at least 1

	Mask    []bool // [m] unmasked keys; nil: all
	Keep    []bool // pairs: Keep[i*KeepRow+j]; nil: all; direct form only
	KeepRow int
	Rope    *attention.Rope
	LogG    tensor.Mat // [m,1] log-decay of the keys; no Data: none

	Drop              *attention.Drop // nil: none; then the next fields are not used
	Coords            attention.DropCoords
	KeyHead, KeyHeads int // index of the key head, and their number

	// Stats and KeyStats are set for a normalisation over all tokens, otherwise nil.
	Stats    []NormStats // per query head
	KeyStats *NormStats
}

// Output holds the results of Forward, some of which Backward reads.
type Output struct {
	O            []tensor.Mat    // per query head: [n,Dv]
	Den          [][]float       // per query head: denominators [n], set by Forward and read by Backward
	Sums         []rowscale.Sums // per query head of a band: sums of weights [n], set by Forward; nil: not needed
	SavesDen     bool            // Den is needed after Forward
	SavedMoments *[]float        // receives the moments for Backward; nil: not needed
	Noticed      *RowNotices     // shared by the tasks of a call or state; nil: not needed
}

// directScratch is the scratch state of the direct form and the band.
type directScratch struct {
	keys   KeyRows
	Decays *LogDecays // of all keys
	places []int      // [n] the last key that each query sees; nil: it follows from the position
}

// linearScratch is the scratch state of the linear form. Its memory is kept from call to call.
type linearScratch struct {
	Monomials *features.Monomials
	Scan      Scan
}

// Gradients holds the inputs and results of Backward.
type Gradients struct {
	DO, DQ   []tensor.Mat // per query head: [n,Dv], [n,D]
	DK, DVal tensor.Mat   // [m,D], [m,Dv]
	DParams  [][]float    // gradients of the features' parameters, added to
	Adds     bool         // DQ, DK and DVal are added to; for a band without rotation and dropout
	Shares   [][]float    // per query head of a band: factors of DO [n]; none: 1
	DScale   []float64    // per query head: gradient of the scale, Σ dq'·q' over the unscaled prepared queries
	DLogG    tensor.Mat   // [m,1]
	DAge     []float64    // [positions] gradient of the sums of log_g; nil: not needed
	DGate    []float64    // [m] part of the gradient of log_g from the factors of gated keys; nil: no gates
}

// Task is a Geometry with memory for its results and scratch. Results depend on nothing else. A
// task runs on one goroutine, or its tokens are divided among several goroutines that have a
// copy of the task each.
type Task struct {
	Geometry
	Output
	Gradients
	directScratch
	linearScratch

	Arena   *arena.Arena
	Workers int // number of goroutines for its tokens; 0: one
}

// Bytes returns the memory of a task that a state keeps.
func (u *Task) Bytes() int64 {
	size := uintptr(cap(u.Q)+cap(u.O))*unsafe.Sizeof(tensor.Mat{}) + uintptr(cap(u.Den))*unsafe.Sizeof(u.Scale)
	size += uintptr(cap(u.Sums)) * unsafe.Sizeof(rowscale.Sums{})
	return scratch.AllocatedBytes(int64(unsafe.Sizeof(*u))) + int64(size) + int64(cap(u.Scale))*scratch.ElementSize[float]()
}

// Clear resets u for another call. It keeps the memory of its slices, but nothing that they
// point to.
func (u *Task) Clear() {
	for _, m := range [][]tensor.Mat{u.Q, u.O, u.DO, u.DQ} {
		clear(m)
	}
	clear(u.Den)
	clear(u.Sums)
	clear(u.Shares)
	*u = Task{
		Geometry:      Geometry{Q: u.Q[:0], Scale: u.Scale[:0]},
		Output:        Output{O: u.O[:0], Den: u.Den[:0], Sums: u.Sums[:0]},
		Gradients:     Gradients{DO: u.DO[:0], DQ: u.DQ[:0], Shares: u.Shares[:0]},
		linearScratch: linearScratch{Monomials: u.Monomials, Scan: Scan{openTokens: openTokens{Valid: u.Scan.Valid}}},
	}
}

// CountVisible returns the number of keys that query i sees by position, before masks: keys 0 ≤
// j < CountVisible.
func (u *Geometry) CountVisible(i int) int {
	if !u.Causal {
		return u.M
	}
	return min(max(i+u.Offset+1, 0), u.M)
}

// HasKey reports whether key j is unmasked.
func (u *Geometry) HasKey(j int) bool { return u.Mask == nil || u.Mask[j] }

// CopyValues sets dst [j1-j0, ld], ld ≥ Dv, to the values of keys j0 ≤ j < j1. It writes zeros
// beyond Dv and for masked keys.
func (u *Geometry) CopyValues(dst []float, ld, j0, j1 int) {
	if u.Mask == nil && u.V.Stride == ld && u.Dv == ld {
		copy(dst[:(j1-j0)*ld], u.V.Data[j0*ld:])
		return
	}
	for j := j0; j < j1; j++ {
		row := dst[(j-j0)*ld:][:ld]
		n := 0
		if u.HasKey(j) {
			n = copy(row, u.V.Data[j*u.V.Stride:][:u.Dv])
		}
		clear(row[n:])
	}
}

// QueryHeads returns the query heads that share key head kh.
func (u *Geometry) QueryHeads(kh int) HeadRange { return HeadRange{kh * len(u.Q), len(u.Q)} }

// HeadRange is the range of query heads Lo ≤ h < Lo+N that share a key head.
type HeadRange struct{ Lo, N int }

// CountWorkers returns the number of goroutines for the tokens of each of units tasks. work is
// the arithmetic of these tasks together, all the arithmetic of the whole call. It is 1 unless
// a task is larger than SplitWork and larger than a worker's share of the call.
func CountWorkers(units int, work, all float64) int {
	threads := par.Threads()
	if n := float64(units); work <= SplitWork*n || work*float64(threads) <= all*n {
		return 1
	}
	return threads
}

// pieces returns the number of pieces of the given size in n tokens.
func pieces(n, size int) int { return (max(n, 0) + size - 1) / size }

// SplitWork is the least amount of arithmetic for which a task is divided among workers. A
// smaller task runs on one worker, which never waits. Tests set a lower value.
var SplitWork float64 = 1 << 23

// Spec is an attention.Spec with fields for the two parts of a mechanism with a window, each of
// which has its own Spec. The zero values of these fields are for a mechanism without a window.
type Spec struct {
	attention.Spec

	// FarLag is the number of keys that the far field leaves out in a causal call, counted back
	// from the last key that a query sees by position. WindowWidth is the number of keys that
	// the window sees; 0: all keys. With GivesNumerators outputs are not divided by their
	// denominators.
	FarLag, WindowWidth int
	GivesNumerators     bool
	// IsSymmetric is set for a window in a call that is not causal. WindowWidth is 2w-1, and a
	// query sees the w-1 keys on both sides of its position i+M-N.
	IsSymmetric bool
}

// IsElementwise reports whether there is no feature map or an elementwise one.
func (s *Spec) IsElementwise() bool {
	_, ok := s.Map.(attention.Elementwise)
	return ok || !s.HasMap()
}

// Width returns the width of prepared rows.
func (s *Spec) Width(d int) int {
	switch {
	case s.Features != nil:
		return s.Features.Dim(d)
	case s.Map != nil:
		return s.Map.Dim(d)
	}
	return d
}

// RowScale returns the factor of the rows of query head h for width d.
func (s *Spec) RowScale(d, h int) float {
	x := float(s.Scale)
	if s.Scale == 0 {
		x = float(1 / math.Sqrt(float64(d)))
	}
	if s.Tau != nil {
		x *= s.Tau.Data[s.TauIndex(h)]
	}
	return x
}

// TauIndex returns the index in Tau of query head h.
func (s *Spec) TauIndex(h int) int {
	if len(s.Tau.Data) == 1 {
		return 0
	}
	return h
}

// Exponent splits the scale of a query head into two factors: one for the rows in the direct
// form, and one for the scores in the exponential, to base 2. The second is positive, so that a
// score of -Inf stays -Inf.
func (s *Spec) Exponent(scale float) (rows, scores float) {
	if all := float(math.Log2E * float64(scale)); s.Exp && all > 0 {
		return 1, all
	}
	return scale, float(math.Log2E)
}

// Degree returns the degree of the kernel polynomial.
func (s *Spec) Degree() int { return len(s.Coef) - 1 }

// MaxScore returns the bound of |s| that follows from the normalisation, or +Inf if there is
// none.
func (s *Spec) MaxScore(d, h int) float64 {
	if b, ok := s.Features.(attention.BoundedProduct); ok {
		return b.Bound()
	}
	if s.HasMap() || s.Norm == attention.NoNorm {
		return math.Inf(1)
	}
	l := s.Norm.MaxLen(d)
	return math.Abs(float64(s.RowScale(d, h))) * l * l
}

// AbsPoly returns f̄(x), as in Saved.WeakCount: Σ |Coef[l]|·x^l, or for a similarity the larger
// of |f(x)| and |f(-x)|.
func (s *Spec) AbsPoly(x float64) float64 {
	var y float64
	if s.Similarity != nil {
		f := []float{float(x), float(-x)}
		s.Similarity.F(f, f)
		return max(math.Abs(float64(f[0])), math.Abs(float64(f[1])))
	}
	for l := len(s.Coef) - 1; l >= 0; l-- {
		y = y*x + math.Abs(s.Coef[l])
	}
	return y
}

// HasMap reports whether there is a feature map after normalisation, rotation and scale.
func (s *Spec) HasMap() bool { return s.Map != nil || s.Features != nil }

// IsPairwise reports whether weights can only be computed pair by pair, so that a state keeps
// all keys.
func (s *Spec) IsPairwise() bool { return s.Exp || s.Similarity != nil }

// FeatureWidth returns the width of the rows from which features are made, for rows of width d.
// moved says that rotation or dropout may change the mean of prepared rows.
func (s *Spec) FeatureWidth(d int, moved bool) int {
	if s.Norm.IsCentred() && !s.HasMap() && !moved && d > 1 && !s.hasSinglePower() {
		return d - 1
	}
	return s.Width(d)
}

// CountFeatures returns the number of packed features of the linear form for prepared rows of
// width w, or math.MaxInt if there would be more.
func (s *Spec) CountFeatures(w int) int {
	if s.IsPairwise() {
		return 0
	}
	return features.CountMonomials(s.Degree(), w, !s.IsSinglePower())
}

// IsSinglePower reports whether the linear form needs only the features of a single power. With
// OutputNorm it also needs the constant feature, to count keys.
func (s *Spec) IsSinglePower() bool { return s.hasSinglePower() && !s.OutputNorm }

// hasSinglePower reports whether the kernel is a single power.
func (s *Spec) hasSinglePower() bool {
	if s.Degree() < 1 {
		return false
	}
	for _, c := range s.Coef[:s.Degree()] {
		if c != 0 {
			return false
		}
	}
	return true
}

// IsDegree1 reports whether the features are the prepared row itself and outputs have no
// further factor.
func (s *Spec) IsDegree1() bool { return s.Degree() == 1 && !s.OutputNorm }

// HasNoRoot reports whether f is known to be positive at all scores of rows of width d, also
// after dropout multiplies scores by up to gain. f must not be negative there.
func (s *Spec) HasNoRoot(d int, gain float64) bool {
	c := s.Coef
	switch {
	case c[0] <= 0:
		return false
	case len(c) == 3 && c[1]*c[1] < 4*c[0]*c[2]:
		return true
	case len(c)%2 == 1 && s.isTaylorOfExp():
		return true // T_p of even p: at its minimum it is s^p/p!, and T_{p-1} = 0
	case s.Tau != nil:
		return false // nothing bounds its scores
	}
	return s.AbsPoly(gain*s.MaxScore(d, 0)) < 2*c[0]
}

// IsPositive reports whether f is known to be nonnegative if dropout multiplies scores by up to
// gain. Spec.Positive is about scores without dropout.
func (s *Spec) IsPositive(gain float64) bool {
	if s.NonNegative || gain == 1 || s.HasMap() || s.IsPairwise() || s.Norm == attention.NoNorm || s.Tau != nil {
		return s.Positive // without a bound of scores it is for all scores
	}
	for l, c := range s.Coef {
		if c < 0 || c > 0 && l%2 == 1 {
			return false
		}
	}
	return s.Positive
}

// ScoreGain returns the largest factor by which dropout can multiply a score, or a weight.
func ScoreGain(d *attention.Drop) float64 {
	if d == nil {
		return 1
	}
	return 1 / ((1 - d.Rate) * (1 - d.Rate))
}

// isTaylorOfExp reports whether f is a partial sum of the exponential series.
func (s *Spec) isTaylorOfExp() bool {
	factorial := 1.0
	for l, c := range s.Coef {
		factorial *= float64(max(l, 1))
		if c != 1/factorial {
			return false
		}
	}
	return true
}

// MapsToZeros reports whether mapped rows can be zero.
func (s *Spec) MapsToZeros() bool {
	_, row := s.Map.(attention.ZeroingMap)
	_, block := s.Features.(attention.ZeroingMap)
	return row || block
}

// ProductReach bounds the weights of a kernel with coefficients coef on rows of products,
// without their masks. It returns 0 if there is no bound.
func (s *Spec) ProductReach(coef [3]float64, d, h int) float64 {
	plain := *s
	plain.Map, plain.Coef = nil, coef[:]
	x := plain.MaxScore(d, h)
	if math.IsInf(x, 1) {
		return 0 // nothing is known to be weak
	}
	return plain.AbsPoly(x)
}

// LearnsFeatures reports whether the features have learned parameters.
func (s *Spec) LearnsFeatures() bool {
	return s.Features != nil && s.Features.Params().Size() > 0
}

// Raw mechanisms return sums without a denominator. A denominator of 1 stands in its
// place, on the scale of weights relative to the last key that a query sees, as an eps
// of 1 alone would give.

// denominator returns the denominator from the sum of the weights and eps. With
// Spec.FloorSize it may be negative, though what divides is its size.
func (s *Spec) denominator(sum, eps float) float {
	switch {
	case s.Unnormalized:
		return eps
	case sum-sum != 0:
		return sum - sum // NaN: after an overflow there is no average
	case s.Floor > 0:
		return float(s.ApplyFloor(float64(sum)))
	}
	return sum + eps
}

// ApplyFloor returns the denominator for the sum of weights sum under Spec.Floor.
func (s *Spec) ApplyFloor(sum float64) float64 {
	floor := float64(float(s.Floor))
	if s.FloorSize && sum < -floor {
		return sum
	}
	return max(sum, floor)
}

// maskDenGrad replaces w, the gradients of the denominators den, by the gradients of the sums
// of weights. They are 0 if there is no denominator or it is at its floor.
func (s *Spec) maskDenGrad(w, den []float) {
	switch {
	case s.Unnormalized:
		clear(w)
	case s.Floor > 0:
		for r, x := range den[:len(w)] {
			switch {
			case x == float(s.Floor):
				w[r] = 0
			case x < 0:
				w[r] = -w[r]
			}
		}
	}
}

// invertDen returns 1/den. It returns 0 if the weights are never negative, or gates scale them,
// and they sum to 0 or to so little that 1/den overflows. Such a query gets the output of a
// query without visible keys, and is counted (Saved.WeakCount). An exponential does not need
// this: its largest weight is near 1 unless all scores have overflowed.
func (u *Task) invertDen(den float) float {
	if u.Spec.GivesNumerators {
		return 1
	}
	if u.Spec.FloorSize && den < 0 {
		den = -den
	}
	if !u.Spec.Exp && (u.Spec.Positive || u.Spec.Gated) && hasInfiniteReciprocal(den) {
		if u.Noticed != nil {
			u.Noticed.Vanish.Store(true)
		}
		return 0
	}
	return 1 / den
}

// hasInfiniteReciprocal reports whether 1/den overflows: den is 0, or smaller than a quarter of
// the smallest normal number.
func hasInfiniteReciprocal(den float) bool {
	x := 1 / den
	return x-x != 0 && den == den
}

// IsIllConditioned reports whether the denominator den nearly cancels; see Saved.WeakCount.
// seen is the number of visible keys, with decay the sum of their factors, and most bounds the
// weights. A negative most means that weights are never negative: they cannot cancel, but they
// can all be 0. If den is 0 or less, negative weights dominate.
func IsIllConditioned(den float, seen, most float64) bool {
	if most < 0 {
		return hasInfiniteReciprocal(den)
	}
	return den <= 0 || float64(den) < most*seen/1024
}

// noteNonFinite records whether outputs i0 ≤ i < i1 of head g may not be finite. It multiplies
// them by zeros, because the product is 0 only for finite numbers.
func (u *Task) noteNonFinite(g, i0, i1 int) {
	if u.Noticed == nil || i0 >= i1 {
		return
	}
	mark := u.Arena.Mark()
	x, out := u.TakeScratch(i1-i0), &u.O[g]
	u.Table.RowDots(x, out.Data[i0*out.Stride:], out.Stride, arena.TakeZeros[float](u.Arena, u.Dv), 0, u.Dv)
	for _, y := range x {
		if y != 0 {
			u.Noticed.Overflow.Store(true)
			break
		}
	}
	u.Arena.Reset(mark)
}

// RowNotices records what the tasks of a call or state have found in their rows.
type RowNotices struct {
	Overflow atomic.Bool // an output may not be finite
	Vanish   atomic.Bool // a denominator was 0 or too small to divide by
}
