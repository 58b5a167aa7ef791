package headtask

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/rowscale"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// PanelRows is the number of query rows whose weights exist at a time against a
// whole block of keys; against fewer keys there may be more.
const PanelRows = 48

// MaxRows is the number of rows whose weights may exist at a time against n
// keys.
func MaxRows(n int) int { return PanelRows * max(1, KeyBlock/kernel.Pad(max(n, 1))) }

// Geometry describes the work for one key head of one sequence and the query heads that share it:
// rows, shapes, masks and positions. It is set once a call; the forms only read it.
type Geometry[T tensor.Float] struct {
	Table *kernel.Table[T]
	Spec  *Spec[T]

	Q                  []tensor.Mat[T] // per query head of the group: [n,D]
	K, V               tensor.Mat[T]   // [m,D], [m,Dv]
	Scale              []T             // per query head
	N, M               int
	D, Dv              int
	PreparedWidth      int // width of prepared rows
	Causal             bool
	Offset             int  // query i sees keys j ≤ i+off, where causal
	FirstPosition      int  // rotation of query 0
	HasPreparedKeys    bool // keys are prepared
	HasPreparedQueries bool // queries are prepared
	Chunk              int  // tokens of a chunk, at least 1

	Mask    []bool // [m] keys that exist; nil: all
	Keep    []bool // pairs: keep[i*keepRow+j]; nil: all; direct form only
	KeepRow int
	Rope    *attention.Rope[T]
	LogG    tensor.Mat[T] // [m,1] decay of the keys; no Data: none

	Drop              *attention.Drop // nil: none, and the next fields are not used
	Coords            attention.DropCoords
	KeyHead, KeyHeads int // key head, and their number

	// Of a normalisation over all tokens, else nil.
	Stats    []NormStats // per query head
	KeyStats *NormStats
}

// Output is what Forward sets, and what Backward reads of it.
type Output[T tensor.Float] struct {
	O            []tensor.Mat[T]    // per query head: [n,Dv]
	Den          [][]T              // per query head: denominators [n], in or out
	Sums         []rowscale.Sums[T] // of a band, per query head: sums of weights [n], out; nil: not wanted
	SavesDen     bool               // den is wanted as an output
	SavedMoments *[]T               // what Forward may leave for Backward of the moments; nil: nothing
	Noticed      *RowNotices        // of the call or the state; nil: not wanted
}

// directScratch is what the direct form and the band work in.
type directScratch[T tensor.Float] struct {
	keys   KeyRows[T]
	Decays *LogDecays // of all keys
	places []int      // [n] the last key that each query sees, if its position does not say it
}

// linearScratch is what the linear form works in: both have memory of their own, which a task
// keeps from call to call.
type linearScratch[T tensor.Float] struct {
	Monomials *features.Monomials[T]
	Scan      Scan[T]
}

// Gradients is what Backward reads and sets.
type Gradients[T tensor.Float] struct {
	DO, DQ   []tensor.Mat[T] // per query head: [n,Dv], [n,D]
	DK, DVal tensor.Mat[T]   // [m,D], [m,Dv]
	DParams  [][]T           // gradients of the features' parameters, added to
	Adds     bool            // dq, dk and dval are added to; of a band without rotation and dropout
	Shares   [][]T           // of a band, per query head: factors of do [n]; none: 1
	DScale   []float64       // per query head: Σ dq'·q' before the scale
	DLogG    tensor.Mat[T]   // [m,1]
	DAge     []float64       // [places] gradient of the sums of log_g; nil: not wanted
	DGate    []float64       // [m] what log_g has of the factors with which keys enter; nil: there are none
}

// Task is the work on a Geometry. Its results depend on nothing outside it. A goroutine does it
// alone, or several do its tokens together, each with a copy of the task.
type Task[T tensor.Float] struct {
	Geometry[T]
	Output[T]
	Gradients[T]
	directScratch[T]
	linearScratch[T]

	Arena   *arena.Arena
	Workers int // how many goroutines may do its tokens; 0: one
}

// Bytes returns the memory that the task of a state takes.
func (u *Task[T]) Bytes() int64 {
	size := uintptr(cap(u.Q)+cap(u.O))*unsafe.Sizeof(tensor.Mat[T]{}) + uintptr(cap(u.Den))*unsafe.Sizeof(u.Scale)
	size += uintptr(cap(u.Sums)) * unsafe.Sizeof(rowscale.Sums[T]{})
	return scratch.AllocatedBytes(int64(unsafe.Sizeof(*u))) + int64(size) + int64(cap(u.Scale))*scratch.ElementSize[T]()
}

// Clear keeps the memory of u for another call, without what it points at.
func (u *Task[T]) Clear() {
	for _, m := range [][]tensor.Mat[T]{u.Q, u.O, u.DO, u.DQ} {
		clear(m)
	}
	clear(u.Den)
	clear(u.Sums)
	clear(u.Shares)
	*u = Task[T]{
		Geometry:      Geometry[T]{Q: u.Q[:0], Scale: u.Scale[:0]},
		Output:        Output[T]{O: u.O[:0], Den: u.Den[:0], Sums: u.Sums[:0]},
		Gradients:     Gradients[T]{DO: u.DO[:0], DQ: u.DQ[:0], Shares: u.Shares[:0]},
		linearScratch: linearScratch[T]{Monomials: u.Monomials, Scan: Scan[T]{openTokens: openTokens[T]{Valid: u.Scan.Valid}}},
	}
}

// CountVisible returns how many keys query i could see by position alone: keys
// 0 ≤ j < seen, before masks.
func (u *Geometry[T]) CountVisible(i int) int {
	if !u.Causal {
		return u.M
	}
	return min(max(i+u.Offset+1, 0), u.M)
}

// HasKey reports whether key j takes part.
func (u *Geometry[T]) HasKey(j int) bool { return u.Mask == nil || u.Mask[j] }

// CopyValues sets dst [j1-j0, ld], ld ≥ Dv, to values j0 ≤ j < j1, zero beyond Dv
// and where the key does not exist.
func (u *Geometry[T]) CopyValues(dst []T, ld, j0, j1 int) {
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
func (u *Geometry[T]) QueryHeads(kh int) HeadRange { return HeadRange{kh * len(u.Q), len(u.Q)} }

// HeadRange is a group of query heads.
type HeadRange struct{ Lo, N int }

// CountWorkers returns how many goroutines may do the tokens of a task, where as many
// tasks have so much work and the call has it all: several only where the task
// is more than a worker's share.
func CountWorkers(units int, work, all float64) int {
	threads := par.Threads()
	if n := float64(units); work <= SplitWork*n || work*float64(threads) <= all*n {
		return 1
	}
	return threads
}

// SplitWork is the least arithmetic of a task that is divided among workers. A single
// worker never waits. Tests set a lower value.
var SplitWork float64 = 1 << 23

// Spec is a Spec as the tasks of one of its parts see it: a mechanism with a window
// has two. The zero values of the other fields belong to a mechanism without a window.
type Spec[T tensor.Float] struct {
	attention.Spec[T]

	// In a causal call the far field omits the last farLag keys that a query could see.
	// With givesNumerators its outputs are numerators. The window sees only the last
	// windowWidth keys; 0: all keys.
	FarLag, WindowWidth int
	GivesNumerators     bool
	// isSymmetric has a query of a band of 2w-1 keys see the w-1 keys on both sides of its
	// place i+M-N, in calls that are not causal.
	IsSymmetric bool
}

// IsElementwise reports that the map, if there is one, is Elementwise.
func (s *Spec[T]) IsElementwise() bool {
	_, ok := s.Map.(attention.Elementwise)
	return ok || !s.HasMap()
}

// Width returns the width of prepared rows.
func (s *Spec[T]) Width(d int) int {
	switch {
	case s.Features != nil:
		return s.Features.Dim(d)
	case s.Map != nil:
		return s.Map.Dim(d)
	}
	return d
}

// RowScale returns the factor of query head h for width d.
func (s *Spec[T]) RowScale(d, h int) T {
	x := T(s.Scale)
	if s.Scale == 0 {
		x = T(1 / math.Sqrt(float64(d)))
	}
	if s.Tau != nil {
		x *= s.Tau.Data[s.TauIndex(h)]
	}
	return x
}

// TauIndex returns the index in Tau of query head h.
func (s *Spec[T]) TauIndex(h int) int {
	if len(s.Tau.Data) == 1 {
		return 0
	}
	return h
}

// Exponent splits the scale of a query head into what its rows are multiplied
// by in the direct form and what the exponential, to base 2, multiplies scores
// by. The latter keeps a score of -Inf what it is.
func (s *Spec[T]) Exponent(scale T) (rows, scores T) {
	if all := T(math.Log2E * float64(scale)); s.Exp && all > 0 {
		return 1, all
	}
	return scale, T(math.Log2E)
}

// Degree returns the degree of the kernel polynomial.
func (s *Spec[T]) Degree() int { return len(s.Coef) - 1 }

// MaxScore bounds |s| by the normalisation; +Inf where nothing does.
func (s *Spec[T]) MaxScore(d, h int) float64 {
	if b, ok := s.Features.(attention.BoundedProduct); ok {
		return b.Bound()
	}
	if s.HasMap() || s.Norm == attention.NoNorm {
		return math.Inf(1)
	}
	l := s.Norm.MaxLen(d)
	return math.Abs(float64(s.RowScale(d, h))) * l * l
}

// AbsPoly is the f̄ of Saved.WeakCount: Σ |Coef[l]|·x^l, or the larger absolute value of a
// similarity at ±x.
func (s *Spec[T]) AbsPoly(x float64) float64 {
	var y float64
	if s.Similarity != nil {
		f := []T{T(x), T(-x)}
		s.Similarity.F(f, f)
		return max(math.Abs(float64(f[0])), math.Abs(float64(f[1])))
	}
	for l := len(s.Coef) - 1; l >= 0; l-- {
		y = y*x + math.Abs(s.Coef[l])
	}
	return y
}

// HasMap reports that prepared rows are not as normalisation, rotation and scale
// leave them.
func (s *Spec[T]) HasMap() bool { return s.Map != nil || s.Features != nil }

// IsPairwise reports that weights are computed pair by pair alone, so that a
// state keeps all keys.
func (s *Spec[T]) IsPairwise() bool { return s.Exp || s.Similarity != nil }

// FeatureWidth returns the width of the features' rows for rows of width d, which
// rotation or dropout may have moved.
func (s *Spec[T]) FeatureWidth(d int, moved bool) int {
	if s.Norm.IsCentred() && !s.HasMap() && !moved && d > 1 && !s.hasSinglePower() {
		return d - 1
	}
	return s.Width(d)
}

// CountFeatures is the number of packed features that the linear form of s keeps for
// prepared rows of width w, math.MaxInt where it would be more.
func (s *Spec[T]) CountFeatures(w int) int {
	if s.IsPairwise() {
		return 0
	}
	return features.CountMonomials(s.Degree(), w, !s.IsSinglePower())
}

// IsSinglePower reports that the features belong to a single power. Where outputs are
// multiplied by the number of keys, the constant feature counts them.
func (s *Spec[T]) IsSinglePower() bool { return s.hasSinglePower() && !s.OutputNorm }

// hasSinglePower reports that the kernel is a single power.
func (s *Spec[T]) hasSinglePower() bool {
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

// IsDegree1 reports that features are the prepared row, and outputs what it meets.
func (s *Spec[T]) IsDegree1() bool { return s.Degree() == 1 && !s.OutputNorm }

// HasNoRoot reports that f, which is never negative at scores of rows of width d, is known to be
// above 0 there and where dropout multiplies them by up to gain.
func (s *Spec[T]) HasNoRoot(d int, gain float64) bool {
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

// IsPositive reports that f is known to be never negative where dropout multiplies scores by up
// to gain. Spec.Positive is of the scores without dropout.
func (s *Spec[T]) IsPositive(gain float64) bool {
	if s.NonNegative || gain == 1 || s.HasMap() || s.IsPairwise() || s.Norm == attention.NoNorm || s.Tau != nil {
		return s.Positive // where nothing bounds scores, of all of them
	}
	for l, c := range s.Coef {
		if c < 0 || c > 0 && l%2 == 1 {
			return false
		}
	}
	return s.Positive
}

// isTaylorOfExp reports that f is the beginning of the exponential series.
func (s *Spec[T]) isTaylorOfExp() bool {
	factorial := 1.0
	for l, c := range s.Coef {
		factorial *= float64(max(l, 1))
		if c != 1/factorial {
			return false
		}
	}
	return true
}

// MapsToZeros reports that mapped rows may be zero.
func (s *Spec[T]) MapsToZeros() bool {
	_, row := s.Map.(attention.ZeroingMap)
	_, block := s.Features.(attention.ZeroingMap)
	return row || block
}

// ProductReach bounds the weights of rows of products without their masks.
func (s *Spec[T]) ProductReach(coef [3]float64, d, h int) float64 {
	plain := *s
	plain.Map, plain.Coef = nil, coef[:]
	x := plain.MaxScore(d, h)
	if math.IsInf(x, 1) {
		return 0 // nothing is known to be weak
	}
	return plain.AbsPoly(x)
}

// LearnsFeatures reports that features have learned numbers.
func (s *Spec[T]) LearnsFeatures() bool {
	return s.Features != nil && s.Features.Params().Size() > 0
}

// Raw mechanisms return sums without a denominator. A denominator of 1 stands in its
// place, on the scale of weights relative to the last key that a query sees, as an eps
// of 1 alone would give.

// denominator returns the denominator from the sum of the weights and eps. With
// Spec.FloorSize it may be negative, though what divides is its size.
func (s *Spec[T]) denominator(sum, eps T) T {
	switch {
	case s.Unnormalized:
		return eps
	case sum-sum != 0:
		return sum - sum // NaN: an average over what has overflowed is no number
	case s.Floor > 0:
		return T(s.ApplyFloor(float64(sum)))
	}
	return sum + eps
}

// ApplyFloor is total where there is a floor.
func (s *Spec[T]) ApplyFloor(sum float64) float64 {
	floor := float64(T(s.Floor))
	if s.FloorSize && sum < -floor {
		return sum
	}
	return max(sum, floor)
}

// maskDenGrad replaces w, the gradients of denominators den, by the gradients of the sums
// of weights. They are 0 where there is no denominator or where it is at its floor.
func (s *Spec[T]) maskDenGrad(w, den []T) {
	switch {
	case s.Unnormalized:
		clear(w)
	case s.Floor > 0:
		for r, x := range den[:len(w)] {
			switch {
			case x == T(s.Floor):
				w[r] = 0
			case x < 0:
				w[r] = -w[r]
			}
		}
	}
}

// invertDen returns 1/den. It returns 0 if weights that are never negative, or that gates
// scale, sum to 0 or to so little that 1/den overflows. Such a query gets the output of
// a query without visible keys and is counted (Saved.WeakCount). The largest weight of an
// exponential is near 1: if there is none, all scores have overflowed.
func (u *Task[T]) invertDen(den T) T {
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

// hasInfiniteReciprocal reports that 1/den is beyond the largest number: den is 0, or below a
// quarter of the smallest normal number in size and has lost digits.
func hasInfiniteReciprocal[T tensor.Float](den T) bool {
	x := 1 / den
	return x-x != 0 && den == den
}

// IsIllConditioned reports that the denominator den of seen keys, decay included, nearly cancels;
// see Saved.WeakCount. most bounds the weights. Weights that are never negative cannot
// cancel, but may all be 0. A polynomial with a constant has small weights where other
// terms cancel the constant. A denominator of at most 0 means that negative weights
// dominate.
func IsIllConditioned[T tensor.Float](den T, seen, most float64) bool {
	if most < 0 {
		return hasInfiniteReciprocal(den)
	}
	return den <= 0 || float64(den) < most*seen/1024
}

// noteNonFinite notices whether outputs i0 ≤ i < i1 of head g are finite. A product with
// zeros is 0 of finite numbers alone.
func (u *Task[T]) noteNonFinite(g, i0, i1 int) {
	if u.Noticed == nil || i0 >= i1 {
		return
	}
	mark := u.Arena.Mark()
	x, out := u.TakeScratch(i1-i0), &u.O[g]
	u.Table.RowDots(x, out.Data[i0*out.Stride:], out.Stride, arena.TakeZeros[T](u.Arena, u.Dv), 0, u.Dv)
	for _, y := range x {
		if y != 0 {
			u.Noticed.Overflow.Store(true)
			break
		}
	}
	u.Arena.Reset(mark)
}

// RowNotices are what the tasks of a call, or of a state, have noticed in their rows.
type RowNotices struct {
	Overflow atomic.Bool // an output may not be finite
	Vanish   atomic.Bool // a denominator counted as 0
}
