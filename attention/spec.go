// Package spec holds what defines a mechanism: normalisation, rotation, feature map and
// kernel of its rows, and the dropout of a call. Package attention gives these types to
// its callers.
package attention

import (
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Spec says what a mechanism is; factorised.New makes it. Query
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
// apart. Columns from N to Stride may be overwritten and must not be read.
type FeatureBlock[T tensor.Float] struct {
	Scratch Scratch[T]

	Keys        bool
	Head, First int // query head, for keys First: the first of those that share them

	D, N, Stride int
	X            []T   // [D, Stride] normalised, rotated, scaled
	Y            []T   // [Dim, Stride]
	DX           []T   // [D, Stride]
	DParams      [][]T // one as long as each of Params
}

// Scratch is memory that is given back when a block is done, or earlier.
type Scratch[T tensor.Float] interface {
	// Take returns n numbers with undefined contents.
	Take(n int) []T
	// Mark returns the point to which Reset gives back what is taken after it.
	Mark() int
	Reset(mark int)
}

// BoundedProduct marks Features whose products φ(q)·φ(k) are bounded. The bound decides when a
// denominator nearly cancels.
type BoundedProduct interface{ Bound() float64 }
