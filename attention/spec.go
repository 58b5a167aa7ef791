package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/tensor"
)

// Package spec holds what a Spec is made of. These are its names for callers.

// DropKind is a kind of attention dropout (FAST, figure 2).
type DropKind = spec.DropKind

const (
	// TokenDrop leaves out whole tokens of the queries and of the keys ("1d").
	// A key left out is not hidden: its score is 0, its weight f(0).
	TokenDrop = spec.TokenDrop
	// ElementDrop leaves out channels of each query and key ("standard"), and so
	// whatever of any order has them as a factor.
	ElementDrop = spec.ElementDrop
	// ProductDrop leaves out products of two channels of one query, or of one
	// key, in the term of degree 2 alone ("quadratic"): its square of the score is
	// Σ_ml (q_m·q_l)(k_m·k_l) over products that both sides keep. Only kernels of
	// degree 2 without a feature map have it. A product and its mirror image are
	// left out independently, so that features cannot be packed: rows have
	// D²+D+1 of them.
	ProductDrop = spec.ProductDrop
)

// ParseDropKind returns the kind with that name in the paper. Another name is an error.
func ParseDropKind(name string) (DropKind, error) {
	return spec.ParseDropKind(name)
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
type Drop = spec.Drop

// Norm normalises one token's query or key over its channels. The mean is
// subtracted in two rounds, the second for what rounding left of the first;
// squares are summed in float64, or sums of a few of them. A token that cannot
// be normalised (all channels equal, or a length below 2⁻¹²⁶) becomes exactly
// zero and has zero gradient.
type Norm = spec.Norm

const (
	// NoNorm leaves rows as they are.
	NoNorm = spec.NoNorm
	// Standard subtracts the mean and divides by the population standard
	// deviation (FAST, eq. 5-6, epsilon 0): |x̂|² = D.
	Standard = spec.Standard
	// Unit divides by the 2-norm (TaylorShift, normalisation 1).
	Unit = spec.Unit
	// Bounded subtracts the mean and divides by the 2-norm, so that scores
	// stay in [-1, 1].
	Bounded = spec.Bounded
	// MaxNorm divides by M (example.py of armingerami/fastmax).
	MaxNorm = spec.MaxNorm
	// TokenCentred subtracts of each channel the mean over the tokens, and
	// divides by M (score_function.py of armingerami/reproducing_fastmax_results).
	TokenCentred = spec.TokenCentred
	// ChannelCentred subtracts of each token the mean over its channels, and
	// divides by M (score_function_2.py there).
	ChannelCentred = spec.ChannelCentred
	// GlobalCentred subtracts one mean over the tokens, channels and heads of a
	// sequence, and divides by the M of each head (score_function_JAX.py there):
	// the only one by which a head depends on others.
	GlobalCentred = spec.GlobalCentred
	// MaxSquared divides by M², but by no less than 0.1 (armingerami/Fastmax, as
	// its kernels are meant).
	MaxSquared = spec.MaxSquared
)

// Norms returns all kinds of normalisation.
func Norms() []Norm {
	return spec.Norms()
}

// Rope holds rotations of channel pairs (j, j+Half) by position (Su et al. 2021,
// RoFormer, eq. 34; pairs as the halves of the first 2·Half channels). The other channels
// of a row stay. Row j of the tables rotates key j of a sequence, row i+off its query i,
// where off is M-N in a causal call and 0 otherwise. Positions beyond the first are the
// caller's: a table for tokens that continue a state starts at their absolute position.
type Rope[T tensor.Float] = spec.Rope[T]

// Frequencies are the angles by which a position turns pairs of channels.
type Frequencies = spec.Frequencies

// NewFrequencies returns the frequencies theta^(-2j/d) of the pairs j < d/2 of width d.
func NewFrequencies(d int, theta float64) Frequencies {
	return spec.NewFrequencies(d, theta)
}

// NewRope returns the rotations of positions start ≤ t < start+rows for width d, with
// angles t·theta^(-2j/d). Frequencies are float64. Sines and cosines belong to the
// exact product with t, because its rounding exceeds a float32's at positions of 2^30
// and beyond.
func NewRope[T tensor.Float](d int, theta float64, start int64, rows int) *Rope[T] {
	return spec.NewRope[T](d, theta, start, rows)
}

// Spec says what a mechanism is; New makes one that keeps the contract. Query
// and key rows go through
//
//	normalise → rotate (Rope) → scale (queries only) → feature map
//
// and a key's weight is f of the product of the rows that come out.
type Spec[T tensor.Float] = spec.Spec[T]

// FeatureMap maps single rows to features. Implementations have no state.
type FeatureMap[T tensor.Float] = spec.FeatureMap[T]

// Elementwise marks a FeatureMap that maps each number by itself, whatever
// stands beside it. It is given rows or columns, in place.
type Elementwise = spec.Elementwise

// ZeroingMap marks a FeatureMap, or Features, that may map a row to zeros.
type ZeroingMap = spec.ZeroingMap

// BoundedRounding marks a FeatureMap with a known error: Roundings is the number of roundings
// by which its numbers differ from exact arithmetic at most.
type BoundedRounding = spec.BoundedRounding

// Similarity is any weight f of a score, with its derivative. It has the direct form
// alone, because only polynomials have sums in place of their keys. Both functions set
// every element of dst from the element of s. dst may be s. They may be called
// concurrently. They are also called for masked pairs, whose results are not used.
type Similarity[T any] = spec.Similarity[T]

// BuiltinDecay is a fixed decay of the mechanism, equal for all tokens of a key head. It
// is added to the decay of the call.
type BuiltinDecay = spec.BuiltinDecay

// Window is a window of exact weights over the keys near a query. Masked keys count
// towards its width. Its scores s_ij are products of the rows as they come, rotated,
// times 1/√D, whatever the mechanism does to rows. A query that reads a state stands at
// the state's last token, so calls between states are causal. A decay weighs both parts
// alike.
type Window[T tensor.Float] = spec.Window[T]

// Join is how a window of exact weights and its tail make one output. γ is
// exp(LogGamma) of the query head, and query i stands at place p = i+M-N. The window of
// a causal call is the keys p-Width < j ≤ p, with p the last key at most. The window of
// an unmasked call is the keys |p-j| < Width. All other visible keys are far.
type Join = spec.Join

const (
	// OneDenominator has the tail weigh the far keys (LoLCATs, arXiv 2410.10254):
	//
	//	o_i = (Σ_far f(a_i·b_j)·v_j + γ·Σ_window exp(s_ij)·v_j) / (Σ_far f(a_i·b_j) + γ·Σ_window exp(s_ij) + eps)
	OneDenominator = spec.OneDenominator
	// Separate adds to the mechanism over all keys γ times the softmax of the
	// window (Based, arXiv 2402.18668).
	Separate = spec.Separate
)

// Joins lists all joins.
func Joins() []Join {
	return spec.Joins()
}

// Features is a feature map that knows the head and the side that it maps, and
// may have numbers of its own: learned ones, or drawn ones. It is given tokens a
// block at a time, so that products with such numbers are products of matrices.
// What becomes of a token depends on nothing but the token, its head and side.
type Features[T tensor.Float] = spec.Features[T]

// FeatureBlock holds some tokens of one head as columns: rows of X, Y and DX lie Stride
// apart. Columns from N to kernel.Pad(N) may be overwritten and must not be read.
type FeatureBlock[T tensor.Float] = spec.FeatureBlock[T]

// BoundedProduct marks Features whose products φ(q)·φ(k) are bounded. The bound decides when a
// denominator nearly cancels.
type BoundedProduct = spec.BoundedProduct
