// Package spec holds what defines a mechanism: normalisation, rotation, feature map and
// kernel of its rows, and the dropout of a call. Package attention gives these types to
// its callers.
package spec

import (
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Spec says what a mechanism is; New makes one that keeps the contract. Query
// and key rows go through
//
//	normalise → rotate (Rope) → scale (queries only) → feature map
//
// and a key's weight is f of the product of the rows that come out.
type Spec[T tensor.Float] struct {
	Name string
	// Setting identifies everything below that changes results; snapshots of
	// states are bound to it.
	Setting string

	Norm  Norm
	Scale float64         // multiplies every query row; 0: 1/√D
	Tau   *param.Param[T] // [H] or [1], learned factor of each head's query rows; nil: none
	Map   FeatureMap[T]   // nil: rows as they are
	// Features maps whole blocks of rows instead, where Map is nil.
	Features Features[T]

	// f is one of three. Exp makes it the exponential, stabilised by its row
	// maximum; Similarity is any function; both have the direct form only. Coef
	// makes it f(s) = Σ_l Coef[l]·s^l.
	Exp        bool
	Similarity *Similarity[T]
	Coef       []float64
	Eps        float64 // added to the denominator

	// Unnormalized leaves out the denominator: outputs are Σ_j w_ij·v_j. Eps is 0 then.
	Unnormalized bool
	// Floor is the least that a denominator is, where that is above 0: the larger of
	// it and the sum of the weights, or with FloorSize of it and the sum's size.
	// Rows at the floor are no averages. Calls have no decay, and Eps is 0.
	Floor     float64
	FloorSize bool
	// Gated multiplies the features of a token's key by 1-g, where Call.LogG holds log
	// g. It needs Features.
	Gated bool
	// BuiltinDecay is a decay that the mechanism brings along, and for which its calls
	// are causal; nil: none.
	BuiltinDecay *BuiltinDecay

	// OutputNorm multiplies the output of a query that sees n keys by √(n/D), D
	// the width of queries (TaylorShift, normalisation 3, whose n is N). Weights
	// are as without it.
	OutputNorm bool

	Positive    bool // f ≥ 0 wherever scores can lie
	NonNegative bool // f ≥ 0 for all numbers, so that Positive is true for any bound of scores

	// Window joins a window of exact weights to the mechanism, which is then the
	// tail; nil: none. Only kernel polynomials have one.
	Window *Window[T]
}

// CheckNumbers returns an error for the first number of s that is outside its range, in the
// element type: numbers are finite, Eps and Floor are 0 or more, decays 0 or less.
func CheckNumbers[T tensor.Float](s *Spec[T]) error {
	if s.Norm < 0 || int(s.Norm) >= len(normNames) {
		return fmt.Errorf("%s: norm is %d, needs 0 to %d", s.Name, int(s.Norm), len(normNames)-1)
	}
	if !isFinite[T](s.Scale) {
		return fmt.Errorf("%s: scale is %v, needs to be finite", s.Name, s.Scale)
	}
	for l, c := range s.Coef {
		if !isFinite[T](c) {
			return fmt.Errorf("%s: coef: number %d is %v, needs to be finite", s.Name, l, c)
		}
	}
	for _, x := range []struct {
		name  string
		value float64
	}{{"eps", s.Eps}, {"floor", s.Floor}} {
		if !isFinite[T](x.value) || x.value < 0 {
			return fmt.Errorf("%s: %s is %v, needs to be finite and 0 or more", s.Name, x.name, x.value)
		}
	}
	if d := s.BuiltinDecay; d != nil {
		if d.Log == nil || d.Heads < 0 {
			return fmt.Errorf("%s: decay %s: needs Log, and 0 heads or more, has %d", s.Name, d.Name, d.Heads)
		}
		for h := range max(d.Heads, 1) {
			if x := d.Log(h); !(x <= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("%s: decay %s: head %d is %v, needs to be finite and 0 or less", s.Name, d.Name, h, x)
			}
		}
	}
	if err := checkLearned(s.Name, "tau", s.Tau); err != nil {
		return err
	}
	if s.Window != nil {
		return checkLearned(s.Name, "window: log_gamma", s.Window.LogGamma)
	}
	return nil
}

// checkLearned returns an error if p has no numbers, or has one that is not finite. p may be
// nil.
func checkLearned[T tensor.Float](owner, name string, p *param.Param[T]) error {
	switch {
	case p == nil:
		return nil
	case len(p.Data) == 0 || len(p.Grad) != len(p.Data):
		return fmt.Errorf("%s: %s: has %d numbers and %d gradients, needs 1 or more of both", owner, name, len(p.Data), len(p.Grad))
	}
	for i, x := range p.Data {
		if !isFinite[T](float64(x)) {
			return fmt.Errorf("%s: %s: number %d is %v, needs to be finite", owner, name, i, x)
		}
	}
	return nil
}

// isFinite reports whether x is a finite number of type T.
func isFinite[T tensor.Float](x float64) bool { y := T(x); return y-y == 0 }

// FeatureMap maps single rows to features. Implementations have no state.
type FeatureMap[T tensor.Float] interface {
	Dim(d int) int      // width of the mapped row
	Map(dst, x []T)     // dst [Dim(len(x))]
	Grad(dx, dy, x []T) // dx from the gradient dy of the mapped row
}

// Elementwise marks a FeatureMap that maps each number by itself, whatever
// stands beside it. It is given rows or columns, in place.
type Elementwise interface{ Elementwise() }

// ZeroingMap marks a FeatureMap, or Features, that may map a row to zeros.
type ZeroingMap interface{ Sparse() }

// BoundedRounding marks a FeatureMap with a known error: Roundings is the number of roundings
// by which its numbers differ from exact arithmetic at most.
type BoundedRounding interface{ Roundings() float64 }

// Similarity is any weight f of a score, with its derivative. It has the direct form
// alone, because only polynomials have sums in place of their keys. Both functions set
// every element of dst from the element of s. dst may be s. They may be called
// concurrently. They are also called for masked pairs, whose results are not used.
type Similarity[T any] struct {
	F     func(dst, s []T)
	Slope func(dst, s []T) // f′
}

// BuiltinDecay is a fixed decay of the mechanism, equal for all tokens of a key head. It
// is added to the decay of the call.
type BuiltinDecay struct {
	Name  string                 // for errors
	Log   func(head int) float64 // finite and 0 or less
	Heads int                    // key heads that Log knows; 0: any
}

// Window is a window of exact weights over the keys near a query. Masked keys count
// towards its width. Its scores s_ij are products of the rows as they come, rotated,
// times 1/√D, whatever the mechanism does to rows. A query that reads a state stands at
// the state's last token, so calls between states are causal. A decay weighs both parts
// alike.
type Window[T tensor.Float] struct {
	Width    int // from 1 to 1<<30
	Join     Join
	LogGamma *param.Param[T] // [H] or [1], learned; nil: γ is 1
}

// Join is how a window of exact weights and its tail make one output. γ is
// exp(LogGamma) of the query head, and query i stands at place p = i+M-N. The window of
// a causal call is the keys p-Width < j ≤ p, with p the last key at most. The window of
// an unmasked call is the keys |p-j| < Width. All other visible keys are far.
type Join int

const (
	// OneDenominator has the tail weigh the far keys (LoLCATs, arXiv 2410.10254):
	//
	//	o_i = (Σ_far f(a_i·b_j)·v_j + γ·Σ_window exp(s_ij)·v_j) / (Σ_far f(a_i·b_j) + γ·Σ_window exp(s_ij) + eps)
	OneDenominator Join = iota
	// Separate adds to the mechanism over all keys γ times the softmax of the
	// window (Based, arXiv 2402.18668).
	Separate
)

var joinNames = []string{OneDenominator: "denominator", Separate: "separate"}

// String returns the name of the join.
func (j Join) String() string { return joinNames[j] }

// Joins lists all joins.
func Joins() []Join { return []Join{OneDenominator, Separate} }

// Features is a feature map that knows the head and the side that it maps, and
// may have numbers of its own: learned ones, or drawn ones. It is given tokens a
// block at a time, so that products with such numbers are products of matrices.
// What becomes of a token depends on nothing but the token, its head and side.
type Features[T tensor.Float] interface {
	Dim(d int) int
	Params() *param.Set[T]    // learned; nil: none
	Constants() *param.Set[T] // drawn; nil: none
	// Check reports heads and a width that the numbers do not fit.
	Check(heads, keyHeads, d int) error
	// Map sets b.Y from b.X.
	Map(b *FeatureBlock[T])
	// Grad sets b.DX from b.X and the gradient b.Y of the features, which it may
	// use up, and adds to b.DParams.
	Grad(b *FeatureBlock[T])
}

// FeatureBlock holds some tokens of one head as columns: rows of X, Y and DX lie Stride
// apart. Columns from N to kernel.Pad(N) may be overwritten and must not be read.
type FeatureBlock[T tensor.Float] struct {
	Table   *kernel.Table[T]
	Scratch *arena.Arena

	Keys        bool
	Head, First int // query head, for keys First: the first of those that share them

	D, N, Stride int
	X            []T   // [D, Stride] normalised, rotated, scaled
	Y            []T   // [Dim, Stride]
	DX           []T   // [D, Stride]
	DParams      [][]T // one as long as each of Params
}

// Take returns scratch memory with undefined contents.
func (b *FeatureBlock[T]) Take(n int) []T { return arena.Take[T](b.Scratch, n) }

// BoundedProduct marks Features whose products φ(q)·φ(k) are bounded. The bound decides when a
// denominator nearly cancels.
type BoundedProduct interface{ Bound() float64 }

// Norm normalises one token's query or key over its channels. The mean is
// subtracted in two rounds, the second for what rounding left of the first;
// squares are summed in float64, or sums of a few of them. A token that cannot
// be normalised (all channels equal, or a length below 2⁻¹²⁶, or in float32 below
// 2⁻¹²⁷ times the new one) becomes exactly zero and has zero gradient.
type Norm int

const (
	// NoNorm leaves rows as they are.
	NoNorm Norm = iota
	// Standard subtracts the mean and divides by the population standard
	// deviation (FAST, eq. 5-6, epsilon 0): |x̂|² = D.
	Standard
	// Unit divides by the 2-norm (TaylorShift, normalisation 1).
	Unit
	// Bounded subtracts the mean and divides by the 2-norm, so that scores
	// stay in [-1, 1].
	Bounded

	// What the programs of FAST's authors divide by is the greatest 2-norm over
	// all tokens of a sequence and head, M; what some subtract first is a mean.
	// A call with one of these is never causal, and has no state.

	// MaxNorm divides by M (example.py of armingerami/fastmax).
	MaxNorm
	// TokenCentred subtracts of each channel the mean over the tokens, and
	// divides by M (score_function.py of armingerami/reproducing_fastmax_results).
	TokenCentred
	// ChannelCentred subtracts of each token the mean over its channels, and
	// divides by M (score_function_2.py there).
	ChannelCentred
	// GlobalCentred subtracts one mean over the tokens, channels and heads of a
	// sequence, and divides by the M of each head (score_function_JAX.py there):
	// the only one by which a head depends on others.
	GlobalCentred
	// MaxSquared divides by M², but by no less than 0.1 (armingerami/Fastmax, as
	// its kernels are meant).
	MaxSquared
)

var normNames = [...]string{
	NoNorm: "none", Standard: "standard", Unit: "unit", Bounded: "bounded",
	MaxNorm: "max", TokenCentred: "token-centred", ChannelCentred: "channel-centred", GlobalCentred: "global-centred", MaxSquared: "max-squared",
}

// Norms returns all kinds of normalisation.
func Norms() []Norm {
	list := make([]Norm, len(normNames))
	for i := range list {
		list[i] = Norm(i)
	}
	return list
}

// String returns the name of the normalisation.
func (n Norm) String() string { return normNames[n] }

// MaxLen is the largest 2-norm of a normalised row of width d.
func (n Norm) MaxLen(d int) float64 {
	switch n {
	case Standard:
		return math.Sqrt(float64(d))
	case NoNorm:
		return math.Inf(1)
	case MaxSquared: // M/M² where M² is least
		return 1 / math.Sqrt(leastSquare)
	}
	return 1
}

// IsCentred reports whether the mean of a token's channels is subtracted.
func IsCentred(n Norm) bool { return n == Standard || n == Bounded || n == ChannelCentred }

// NeedsAllTokens reports whether the statistics of n are taken over all tokens.
func NeedsAllTokens(n Norm) bool { return n >= MaxNorm }

// leastSquare is the least that MaxSquared divides by.
const leastSquare = 0.1

// invert returns the factor of centred rows, 0 if they cannot be normalised. power is the
// exponent of the greatest norm in the denominator.
func InvertLength(n Norm, length float64) (factor float64, power int) {
	const smallest = 0x1p-126
	switch {
	case n == MaxSquared && length*length < leastSquare:
		return 1 / leastSquare, 0
	case n == MaxSquared:
		return 1 / (length * length), 2
	case length < smallest:
		return 0, 0
	}
	return 1 / length, 1
}

// Rope holds rotations of channel pairs (j, j+Half) by position (Su et al. 2021,
// RoFormer, eq. 34; pairs as the halves of the first 2·Half channels). The other channels
// of a row stay. Row j of the tables rotates key j of a sequence, row i+off its query i,
// where off is M-N in a causal call and 0 otherwise. Positions beyond the first are the
// caller's: a table for tokens that continue a state starts at their absolute position.
type Rope[T tensor.Float] struct {
	Half     int // pairs per row, at most D/2
	Cos, Sin []T // [rows·Half]
}

// Frequencies are the angles by which a position turns pairs of channels.
type Frequencies struct {
	Pairs  []float64 // of each pair
	Factor float64   // multiplies sines and cosines; 0: 1
}

// NewFrequencies returns the frequencies theta^(-2j/d) of the pairs j < d/2 of width d.
func NewFrequencies(d int, theta float64) Frequencies {
	f := Frequencies{Pairs: make([]float64, d/2)}
	for j := range f.Pairs {
		f.Pairs[j] = math.Pow(theta, -2*float64(j)/float64(d))
	}
	return f
}

// NewRope returns the rotations of positions start ≤ t < start+rows for width d, with
// angles t·theta^(-2j/d). Frequencies are float64. Sines and cosines belong to the
// exact product with t, because its rounding exceeds a float32's at positions of 2^30
// and beyond.
func NewRope[T tensor.Float](d int, theta float64, start int64, rows int) *Rope[T] {
	f := NewFrequencies(d, theta)
	r := new(Rope[T])
	r.Fill(&f, start, rows)
	return r
}

// Fill sets the table to rotations of positions start ≤ t < start+rows, in its own memory
// where that suffices. Each is computed for itself, on all threads.
func (r *Rope[T]) Fill(f *Frequencies, start int64, rows int) {
	r.Half = len(f.Pairs)
	size := rows * r.Half
	r.Cos, r.Sin = slices.Grow(r.Cos[:0], size)[:size], slices.Grow(r.Sin[:0], size)[:size]
	if r.Half == 0 {
		return
	}
	const sincos = 400 // multiply-adds that take as long as an angle
	factor := f.Factor
	if factor == 0 {
		factor = 1
	}
	par.Run(rows, 128, sincos*float64(size), ropeFill[T]{r, f.Pairs, factor, start})
}

// ropeFill is a table to be filled.
type ropeFill[T tensor.Float] struct {
	rope   *Rope[T]
	pairs  []float64
	factor float64
	start  int64
}

// RunRange fills rows i0 ≤ i < i1.
func (f *ropeFill[T]) RunRange(i0, i1 int) {
	r := f.rope
	for j, freq := range f.pairs {
		for i := i0; i < i1; i++ {
			t := float64(f.start + int64(i))
			angle := t * freq
			s, c := math.Sincos(angle)
			// The rounding error of the angle is less than 2^-12 at positions up to
			// 2^40. The next terms of its sine and cosine vanish.
			x := math.FMA(t, freq, -angle)
			ds, dc := x-float64(x*x*x)/6, 1-float64(x*x)/2
			r.Cos[i*r.Half+j] = T(f.factor * (float64(c*dc) - float64(s*ds)))
			r.Sin[i*r.Half+j] = T(f.factor * (float64(s*dc) + float64(c*ds)))
		}
	}
}

// CheckRope returns an error if the table does not rotate rows of width d, or if sines and
// cosines do not belong together. r may be nil.
func CheckRope[T tensor.Float](r *Rope[T], d int) error {
	switch {
	case r == nil:
		return nil
	case r.Half > d/2:
		return fmt.Errorf("rope: rotates %d pairs of channels, D is %d", r.Half, d)
	case len(r.Sin) != len(r.Cos):
		return fmt.Errorf("rope: has %d sines, and %d cosines", len(r.Sin), len(r.Cos))
	}
	return nil
}

// Rows returns the number of positions in the table.
func (r *Rope[T]) Rows() int {
	if r.Half == 0 {
		return math.MaxInt
	}
	return len(r.Cos) / r.Half
}

// Slice returns the view of rows from i on.
func (r *Rope[T]) Slice(i int) *Rope[T] {
	return &Rope[T]{r.Half, r.Cos[i*r.Half:], r.Sin[i*r.Half:]}
}

// TurnColumns rotates the columns of x [d, ld] by rows i0 and those that follow, one
// for each of n columns, or back.
func TurnColumns[T tensor.Float](r *Rope[T], t *kernel.Table[T], ar *arena.Arena, x []T, ld, i0, n int, back bool) {
	if r.Half == 0 {
		return
	}
	mark := ar.Mark()
	h, lt := r.Half, kernel.Pad(n)
	c, s := arena.Take[T](ar, h*lt), arena.Take[T](ar, h*lt)
	t.Transpose(c, lt, r.Cos[i0*h:], h, n, h)
	t.Transpose(s, lt, r.Sin[i0*h:], h, n, h)
	lo, hi := x, x[h*ld:]
	if back {
		lo, hi = hi, lo
	}
	t.Rotate(lo, hi, ld, c, s, lt, h, n)
	ar.Reset(mark)
}

// RotateRows rotates row i of x [rows,D] by row at+i of the table. With back set it
// rotates in the opposite direction.
func (r *Rope[T]) RotateRows(x tensor.Mat[T], at int, back bool) {
	for i := range x.Rows {
		lo, hi := x.Row(i)[:r.Half], x.Row(i)[r.Half:]
		cos, sin := r.Cos[(at+i)*r.Half:][:r.Half], r.Sin[(at+i)*r.Half:][:r.Half]
		for j, c := range cos {
			s := sin[j]
			if back {
				s = -s
			}
			a, b := lo[j], hi[j]
			lo[j] = T(a*c) - T(b*s)
			hi[j] = T(a*s) + T(b*c)
		}
	}
}

// DropKind is a kind of attention dropout (FAST, figure 2).
type DropKind int

const (
	// TokenDrop leaves out whole tokens of the queries and of the keys ("1d").
	// A key left out is not hidden: its score is 0, its weight f(0).
	TokenDrop DropKind = iota
	// ElementDrop leaves out channels of each query and key ("standard"), and so
	// whatever of any order has them as a factor.
	ElementDrop
	// ProductDrop leaves out products of two channels of one query, or of one
	// key, in the term of degree 2 alone ("quadratic"): its square of the score is
	// Σ_ml (q_m·q_l)(k_m·k_l) over products that both sides keep. Only kernels of
	// degree 2 without a feature map have it. A product and its mirror image are
	// left out independently, so that features cannot be packed: rows have
	// D²+D+1 of them.
	ProductDrop
)

var dropNames = []string{TokenDrop: "1d", ElementDrop: "standard", ProductDrop: "quadratic"}

// String returns the paper's name of the kind.
func (k DropKind) String() string {
	if k < 0 || int(k) >= len(dropNames) {
		return fmt.Sprintf("DropKind(%d)", int(k))
	}
	return dropNames[k]
}

// ParseDropKind returns the kind with that name in the paper. Another name is an error.
func ParseDropKind(name string) (DropKind, error) {
	for k, n := range dropNames {
		if n == name {
			return DropKind(k), nil
		}
	}
	return 0, fmt.Errorf("dropout: kind is %q, needs one of %q", name, dropNames)
}

// Drop is the dropout of one call, for training. A mask drops elements of prepared
// queries and keys (normalised, rotated and scaled, before any feature map), or products
// of their channels. Kept elements are divided by 1-Rate, so that means do not change.
// Attention weights, softmax's too, are not masked.
//
// Key draws the masks, unless they are given. A drawn element depends on the key, the
// batch row or packed sequence, the head, the position and the channel alone: every form,
// chunk and number of threads draws the same. The position of a key is its index in the
// sequence. The position of a query is its index too, in a causal call the index of the
// last key that it sees, as for Rope. Queries and keys have separate masks; query heads
// that share keys share the keys' masks.
type Drop struct {
	Kind DropKind
	Rate float64 // 0 ≤ Rate < 1; 0 without given masks: none
	Key  rng.Key
	// Start is the position of the first token, for calls that continue a state.
	Start int64

	// Masks of kept elements. Both sides are given together, and then nothing is drawn.
	QTok, KTok []bool // [B·H·N], [B·Hkv·M] of TokenDrop
	Q1, K1     []bool // [B·H·N·D], [B·Hkv·M·D] of ElementDrop
	Q2, K2     []bool // [B·H·N·D·D], [B·Hkv·M·D·D] of ProductDrop

	source *DropCoords // of a piece of another call; nil: the call's own
}

// IsActive reports whether anything may be left out.
func (d *Drop) IsActive() bool {
	return d != nil && (d.Rate > 0 || givenMask(d, false) != nil || givenMask(d, true) != nil)
}

// CheckDrop returns an error for the first field of d that does not fit the numbers of
// queries and keys, of all heads, and their width.
func CheckDrop(d *Drop, queries, keys, width int) error {
	if d == nil {
		return nil
	}
	if d.Kind < 0 || int(d.Kind) >= len(dropNames) {
		return fmt.Errorf("dropout: kind is %v, needs one of %q", d.Kind, dropNames)
	}
	if !(d.Rate >= 0 && d.Rate < 1) {
		return fmt.Errorf("dropout: rate is %v, needs 0 ≤ rate < 1", d.Rate)
	}
	if d.source != nil {
		return nil // checked with the call
	}
	given := false
	for _, m := range []struct {
		name string
		mask []bool
		kind DropKind
		need int
	}{
		{"mask_qtok", d.QTok, TokenDrop, queries}, {"mask_ktok", d.KTok, TokenDrop, keys},
		{"mask_q1", d.Q1, ElementDrop, queries * width}, {"mask_k1", d.K1, ElementDrop, keys * width},
		{"mask_q2", d.Q2, ProductDrop, queries * width * width}, {"mask_k2", d.K2, ProductDrop, keys * width * width},
	} {
		switch {
		case m.mask == nil:
		case m.kind != d.Kind:
			return fmt.Errorf("%s: is for dropout %v, the call has %v", m.name, m.kind, d.Kind)
		case len(m.mask) != m.need:
			return fmt.Errorf("%s: has %d elements, needs %d", m.name, len(m.mask), m.need)
		default:
			given = true
		}
	}
	q, k := givenMask(d, false), givenMask(d, true)
	if given && (q == nil && queries > 0 || k == nil && keys > 0) {
		return fmt.Errorf("dropout: the mask of one side is given without the other's")
	}
	return nil
}

// givenMask returns the given mask of keys or queries.
func givenMask(d *Drop, keys bool) []bool {
	q, k := d.QTok, d.KTok
	switch d.Kind {
	case ElementDrop:
		q, k = d.Q1, d.K1
	case ProductDrop:
		q, k = d.Q2, d.K2
	}
	if keys {
		return k
	}
	return q
}

// BitsOf returns the bits of a token of d channels.
func BitsOf(k DropKind, d int) int {
	switch k {
	case TokenDrop:
		return 1
	case ElementDrop:
		return d
	}
	return d * d
}

// DropCoords is where the tokens of a task stand.
type DropCoords struct {
	Row    int   // sequence, by which what is drawn differs
	Start  int64 // position of the first key
	B      int   // batch row of the given masks
	Q0, K0 int   // first query and key there
	N, M   int   // queries and keys of a head there
}

// SourceOf returns where the tokens of d stand in the call that d is a piece of; nil: d is
// of a whole call.
func SourceOf(d *Drop) *DropCoords { return d.source }

// Relocate returns a copy of d for the tokens at p of another call.
func Relocate(d *Drop, p DropCoords) *Drop {
	x := *d
	x.source = &p
	return &x
}

// HeadDropout is a Drop as one side of one head has it.
type HeadDropout struct {
	*Drop                 // nil: nothing is left out
	key        rng.Key    // of the side and head
	first      int64      // position of token 0
	mask       []bool     // given, from token 0 on; nil: drawn
	threshold  uint32     // numbers below it are left out
	keptFactor float64    // factor of kept elements
	Coef       [3]float64 // of ProductDrop: what else the rows of queries are multiplied with
}

// NewHeadDropout returns the dropout of query head or key head h of heads. pos is the position of
// token 0 in its sequence.
func NewHeadDropout(d *Drop, p *DropCoords, keys bool, h, heads, width, pos int) HeadDropout {
	side, tokens, token0 := uint64(0), p.N, p.Q0
	if keys {
		side, tokens, token0 = 1, p.M, p.K0
	}
	x := HeadDropout{
		Drop: d, key: d.Key.Fold(side).Fold(uint64(p.Row)).Fold(uint64(h)), first: p.Start + int64(pos),
		threshold: uint32(d.Rate * 0x1p32), keptFactor: 1 / (1 - d.Rate), Coef: [3]float64{1, 1, 1},
	}
	if x.mask = givenMask(d, keys); x.mask != nil {
		x.mask = x.mask[((p.B*heads+h)*tokens+token0)*BitsOf(d.Kind, width):]
	}
	return x
}

// draws are the bits of one token, in order.
type draws struct {
	*HeadDropout
	bits     []bool // nil: from numbers
	number   uint64 // the next one
	words    [4]uint32
	usedBits int // of words
}

// Token returns the first width bits of token i.
func (m *HeadDropout) Token(i, width int) draws {
	if m.mask != nil {
		return draws{HeadDropout: m, bits: m.mask[i*width:][:width]}
	}
	// A number decides four times.
	return draws{HeadDropout: m, number: uint64(m.first+int64(i)) * (uint64(width+3) / 4), usedBits: 4}
}

// Next returns the factor of the next element: 0 if it is dropped.
func (d *draws) Next() float64 {
	if d.bits != nil {
		keep := d.bits[0]
		d.bits = d.bits[1:]
		if keep {
			return d.keptFactor
		}
		return 0
	}
	if d.usedBits == 4 {
		d.words, d.usedBits = d.key.Uint32s(d.number), 0
		d.number++
	}
	word := d.words[d.usedBits&3]
	d.usedBits++
	if word >= d.threshold {
		return d.keptFactor
	}
	return 0
}

// DropOut multiplies masks of tokens or channels into n tokens from i on with d
// channels, where channel c of token i+r is x[c·cs+r·ts].
func DropOut[T tensor.Float](m *HeadDropout, x []T, cs, ts, d, i, n int) {
	for r := range n {
		switch x := x[r*ts:]; m.Kind {
		case TokenDrop:
			bits := m.Token(i+r, 1)
			f := T(bits.Next())
			for c := range d {
				x[c*cs] *= f
			}
		case ElementDrop:
			bits := m.Token(i+r, d)
			for c := range d {
				x[c*cs] *= T(bits.Next())
			}
		}
	}
}
