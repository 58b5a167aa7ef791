package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/tensor"
)

// Package spec holds what a Spec is made of. These are its names for callers.

// DropKind is a kind of attention dropout (FAST, figure 2).
//
// Fields and methods:
//
//	func (k DropKind) String() string
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
//
// Fields and methods:
//
//	type Drop struct {
//		Kind DropKind
//		Rate float64 // 0 ≤ Rate < 1; 0 without given masks: none
//		Key  rng.Key
//		// Start is the position of the first token, for calls that continue a state.
//		Start int64
//
//		// Masks of kept elements. Both sides are given together, and then nothing is drawn.
//		QTok, KTok []bool // [B·H·N], [B·Hkv·M] of TokenDrop
//		Q1, K1     []bool // [B·H·N·D], [B·Hkv·M·D] of ElementDrop
//		Q2, K2     []bool // [B·H·N·D·D], [B·Hkv·M·D·D] of ProductDrop
//		// contains filtered or unexported fields
//	}
//	func (d *Drop) IsActive() bool
type Drop = spec.Drop

// Norm normalises one token's query or key over its channels. The mean is
// subtracted in two rounds, the second for what rounding left of the first;
// squares are summed in float64, or sums of a few of them. A token that cannot
// be normalised (all channels equal, or a length below 2⁻¹²⁶) becomes exactly
// zero and has zero gradient.
//
// Fields and methods:
//
//	func (n Norm) MaxLen(d int) float64
//	func (n Norm) String() string
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
//
// Fields and methods:
//
//	type Rope[T tensor.Float] struct {
//		Half     int // pairs per row, at most D/2
//		Cos, Sin []T // [rows·Half]
//	}
//	func (r *Rope[T]) Fill(f *Frequencies, start int64, rows int)
//	func (r *Rope[T]) RotateRows(x tensor.Mat[T], at int, back bool)
//	func (r *Rope[T]) Rows() int
//	func (r *Rope[T]) Slice(i int) *Rope[T]
type Rope[T tensor.Float] = spec.Rope[T]

// Frequencies are the angles by which a position turns pairs of channels.
//
// Fields and methods:
//
//	type Frequencies struct {
//		Pairs  []float64 // of each pair
//		Factor float64   // multiplies sines and cosines; 0: 1
//	}
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
//
// Fields and methods:
//
//	type Spec[T tensor.Float] struct {
//		Name string
//		// Setting identifies everything below that changes results; snapshots of
//		// states are bound to it.
//		Setting string
//
//		Norm  Norm
//		Scale float64         // multiplies every query row; 0: 1/√D
//		Tau   *param.Param[T] // [H] or [1], learned factor of each head's query rows; nil: none
//		Map   FeatureMap[T]   // nil: rows as they are
//		// Features maps whole blocks of rows instead, where Map is nil.
//		Features Features[T]
//
//		// f is one of three. Exp makes it the exponential, stabilised by its row
//		// maximum; Similarity is any function; both have the direct form only. Coef
//		// makes it f(s) = Σ_l Coef[l]·s^l.
//		Exp        bool
//		Similarity *Similarity[T]
//		Coef       []float64
//		Eps        float64 // added to the denominator
//
//		// Unnormalized leaves out the denominator: outputs are Σ_j w_ij·v_j. Eps is 0 then.
//		Unnormalized bool
//		// Floor is the least that a denominator is, where that is above 0: the larger of
//		// it and the sum of the weights, or with FloorSize of it and the sum's size.
//		// Rows at the floor are no averages. Calls have no decay, and Eps is 0.
//		Floor     float64
//		FloorSize bool
//		// Gated multiplies the features of a token's key by 1-g, where Call.LogG holds log
//		// g. It needs Features.
//		Gated bool
//		// BuiltinDecay is a decay that the mechanism brings along, and for which its calls
//		// are causal; nil: none.
//		BuiltinDecay *BuiltinDecay
//
//		// OutputNorm multiplies the output of a query that sees n keys by √(n/D), D
//		// the width of queries (TaylorShift, normalisation 3, whose n is N). Weights
//		// are as without it.
//		OutputNorm bool
//
//		Positive bool // f ≥ 0 wherever scores can lie
//
//		// Window joins a window of exact weights to the mechanism, which is then the
//		// tail; nil: none. Only kernel polynomials have one.
//		Window *Window[T]
//	}
type Spec[T tensor.Float] = spec.Spec[T]

// FeatureMap maps single rows to features. Implementations have no state.
//
// Fields and methods:
//
//	type FeatureMap[T tensor.Float] interface {
//		Dim(d int) int      // width of the mapped row
//		Map(dst, x []T)     // dst [Dim(len(x))]
//		Grad(dx, dy, x []T) // dx from the gradient dy of the mapped row
//	}
type FeatureMap[T tensor.Float] = spec.FeatureMap[T]

// Elementwise marks a FeatureMap that maps each number by itself, whatever
// stands beside it. It is given rows or columns, in place.
//
// Fields and methods:
//
//	type Elementwise interface{ Elementwise() }
type Elementwise = spec.Elementwise

// ZeroingMap marks a FeatureMap, or Features, that may map a row to zeros.
//
// Fields and methods:
//
//	type ZeroingMap interface{ Sparse() }
type ZeroingMap = spec.ZeroingMap

// BoundedRounding marks a FeatureMap with a known error: Roundings is the number of roundings
// by which its numbers differ from exact arithmetic at most.
//
// Fields and methods:
//
//	type BoundedRounding interface{ Roundings() float64 }
type BoundedRounding = spec.BoundedRounding

// Similarity is any weight f of a score, with its derivative. It has the direct form
// alone, because only polynomials have sums in place of their keys. Both functions set
// every element of dst from the element of s. dst may be s. They may be called
// concurrently. They are also called for masked pairs, whose results are not used.
//
// Fields and methods:
//
//	type Similarity[T any] struct {
//		F     func(dst, s []T)
//		Slope func(dst, s []T) // f′
//	}
type Similarity[T any] = spec.Similarity[T]

// BuiltinDecay is a fixed decay of the mechanism, equal for all tokens of a key head. It
// is added to the decay of the call.
//
// Fields and methods:
//
//	type BuiltinDecay struct {
//		Name  string                 // for errors
//		Log   func(head int) float64 // finite and 0 or less
//		Heads int                    // key heads that Log knows; 0: any
//	}
type BuiltinDecay = spec.BuiltinDecay

// Window is a window of exact weights over the keys near a query. Masked keys count
// towards its width. Its scores s_ij are products of the rows as they come, rotated,
// times 1/√D, whatever the mechanism does to rows. A query that reads a state stands at
// the state's last token, so calls between states are causal. A decay weighs both parts
// alike.
//
// Fields and methods:
//
//	type Window[T tensor.Float] struct {
//		Width    int
//		Join     Join
//		LogGamma *param.Param[T] // [H] or [1], learned; nil: γ is 1
//	}
type Window[T tensor.Float] = spec.Window[T]

// Join is how a window of exact weights and its tail make one output. γ is
// exp(LogGamma) of the query head, and query i stands at place p = i+M-N. The window of
// a causal call is the keys p-Width < j ≤ p, with p the last key at most. The window of
// an unmasked call is the keys |p-j| < Width. All other visible keys are far.
//
// Fields and methods:
//
//	func (j Join) String() string
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
//
// Fields and methods:
//
//	type Features[T tensor.Float] interface {
//		Dim(d int) int
//		Params() *param.Set[T]    // learned; nil: none
//		Constants() *param.Set[T] // drawn; nil: none
//		// Check reports heads and a width that the numbers do not fit.
//		Check(heads, keyHeads, d int) error
//		// Map sets b.Y from b.X.
//		Map(b *FeatureBlock[T])
//		// Grad sets b.DX from b.X and the gradient b.Y of the features, which it may
//		// use up, and adds to b.DParams.
//		Grad(b *FeatureBlock[T])
//	}
type Features[T tensor.Float] = spec.Features[T]

// FeatureBlock holds some tokens of one head as columns: rows of X, Y and DX lie Stride
// apart. Columns from N to kernel.Pad(N) may be overwritten and must not be read.
//
// Fields and methods:
//
//	type FeatureBlock[T tensor.Float] struct {
//		Table   *kernel.Table[T]
//		Scratch *arena.Arena
//
//		Keys        bool
//		Head, First int // query head, for keys First: the first of those that share them
//
//		D, N, Stride int
//		X            []T   // [D, Stride] normalised, rotated, scaled
//		Y            []T   // [Dim, Stride]
//		DX           []T   // [D, Stride]
//		DParams      [][]T // one as long as each of Params
//	}
//	func (b *FeatureBlock[T]) Take(n int) []T
type FeatureBlock[T tensor.Float] = spec.FeatureBlock[T]

// BoundedProduct marks Features whose products φ(q)·φ(k) are bounded. The bound decides when a
// denominator nearly cancels.
//
// Fields and methods:
//
//	type BoundedProduct interface{ Bound() float64 }
type BoundedProduct = spec.BoundedProduct
