package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/tensor"
)

// Package spec, below the engines, holds what a Spec is made of.

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

// Features is a feature map that knows the head and the side that it maps, and
// may have numbers of its own: learned ones, or drawn ones. It is given tokens a
// block at a time, so that products with such numbers are products of matrices.
type Features[T tensor.Float] = spec.Features[T]

// FeatureBlock holds some tokens of one head as columns: rows of X, Y and DX lie Stride
// apart. Columns from N to kernel.Pad(N) may be overwritten and must not be read.
type FeatureBlock[T tensor.Float] = spec.FeatureBlock[T]

// BoundedProduct marks Features whose products φ(q)·φ(k) are bounded. The bound decides when a
// denominator nearly cancels.
type BoundedProduct = spec.BoundedProduct

// Similarity is any weight f of a score, with its derivative. It has the direct form
// alone, because only polynomials have sums in place of their keys.
type Similarity[T any] = spec.Similarity[T]

// BuiltinDecay is a fixed decay of the mechanism, equal for all tokens of a key head. It
// is added to the decay of the call.
type BuiltinDecay = spec.BuiltinDecay

// Window is a window of exact weights over the keys near a query. Masked keys count
// towards its width.
type Window[T tensor.Float] = spec.Window[T]

// Join is how a window of exact weights and its tail make one output.
type Join = spec.Join

const (
	OneDenominator = spec.OneDenominator // the tail weighs the far keys (LoLCATs, arXiv 2410.10254)
	Separate       = spec.Separate       // the mechanism over all keys plus γ times the softmax of the window (Based, arXiv 2402.18668)
)

// Joins lists all joins.
func Joins() []Join { return spec.Joins() }

// Norm normalises one token's query or key over its channels. A token that cannot be
// normalised becomes exactly zero and has zero gradient.
type Norm = spec.Norm

const (
	NoNorm         = spec.NoNorm         // rows as they are
	Standard       = spec.Standard       // subtracts the mean and divides by the standard deviation (FAST, eq. 5-6): |x̂|² = D
	Unit           = spec.Unit           // divides by the 2-norm (TaylorShift, normalisation 1)
	Bounded        = spec.Bounded        // subtracts the mean and divides by the 2-norm
	MaxNorm        = spec.MaxNorm        // divides by the greatest 2-norm M of the sequence and head; never causal, as the next ones
	TokenCentred   = spec.TokenCentred   // subtracts of each channel the mean over the tokens, and divides by M
	ChannelCentred = spec.ChannelCentred // subtracts of each token the mean over its channels, and divides by M
	GlobalCentred  = spec.GlobalCentred  // subtracts one mean over tokens, channels and heads, and divides by M
	MaxSquared     = spec.MaxSquared     // divides by M², but by no less than 0.1
)

// Norms returns all kinds of normalisation.
func Norms() []Norm { return spec.Norms() }

// Rope holds rotations of channel pairs (j, j+Half) by position (Su et al. 2021,
// RoFormer, eq. 34; pairs as the halves of the first 2·Half channels). The other channels
// of a row stay.
type Rope[T tensor.Float] = spec.Rope[T]

// Frequencies are the angles by which a position turns pairs of channels.
type Frequencies = spec.Frequencies

// NewFrequencies returns the frequencies theta^(-2j/d) of the pairs j < d/2 of width d.
func NewFrequencies(d int, theta float64) Frequencies { return spec.NewFrequencies(d, theta) }

// NewRope returns the rotations of positions start ≤ t < start+rows for width d, with
// angles t·theta^(-2j/d).
func NewRope[T tensor.Float](d int, theta float64, start int64, rows int) *Rope[T] {
	return spec.NewRope[T](d, theta, start, rows)
}

// Drop is the dropout of one call, for training. A mask drops elements of prepared
// queries and keys (normalised, rotated and scaled, before any feature map), or products
// of their channels. Attention weights, softmax's too, are not masked.
type Drop = spec.Drop

// DropKind is a kind of attention dropout (FAST, figure 2).
type DropKind = spec.DropKind

const (
	TokenDrop   = spec.TokenDrop   // whole tokens ("1d")
	ElementDrop = spec.ElementDrop // channels of each query and key ("standard")
	ProductDrop = spec.ProductDrop // products of two channels of one query or key ("quadratic")
)

// ParseDropKind returns the kind with that name in the paper. Another name is an error.
func ParseDropKind(name string) (DropKind, error) { return spec.ParseDropKind(name) }
