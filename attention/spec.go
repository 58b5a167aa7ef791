package attention

import (
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Spec defines a mechanism whose weights are a function of one query row and one key row.
// factorised.New makes the mechanism. Query and key rows go through
//
//	normalise → rotate (Rope) → scale (queries only) → feature map
//
// and the weight of a key is f of the product of the two resulting rows.
type Spec struct {
	Name string
	// Setting identifies all fields below that change results. Snapshots of states contain it.
	// If it is "", it is made of the fields, with Map and Features as their types, and of
	// Similarity and learned numbers only that they are set. Set it if two Specs of one Name
	// differ in functions alone, which Go cannot compare.
	Setting string

	Norm  Norm
	Scale float64      // multiplies every query row; 0: 1/√D
	Tau   *param.Param // [H] or [1], learned factor of each head's query rows; nil: none
	Map   FeatureMap   // nil: rows as they are
	// Features maps blocks of rows; it may be set instead of Map.
	Features Features

	// Exp, Similarity and Coef choose f; one of them is set. Exp is the exponential, stabilised
	// by the maximum of each row, and may follow Map or Features: the weight exp(-β|q-k|²) is the
	// exponential of a product of features. Similarity is any function. Both have only the direct
	// form.
	// Coef is the kernel polynomial f(s) = Σ_l Coef[l]·s^l.
	Exp        bool
	Similarity *Similarity
	Coef       []float64
	Eps        float64 // added to the denominator

	// Unnormalized omits the denominator: outputs are Σ_j w_ij·v_j. Eps is 0 then.
	Unnormalized bool
	// Floor, if above 0, is a lower bound of the denominator: the denominator is max(Floor,
	// Σw), or max(Floor, |Σw|) with FloorSize. Rows at the floor are not averages. Calls cannot
	// have a decay, and Eps is 0.
	Floor     float64
	FloorSize bool
	// Gated multiplies the features of each key by 1-g, where g = exp(Call.LogG) of its token.
	// It needs Features.
	Gated bool
	// BuiltinDecay is a fixed decay that is part of the mechanism. All calls must be causal
	// then; nil: none.
	BuiltinDecay *BuiltinDecay

	// OutputNorm multiplies the output of a query that sees n keys by √(n/D), where D is the
	// width of queries (TaylorShift, normalisation 3, where n is N). Weights do not contain the
	// factor.
	OutputNorm bool

	Positive    bool // f ≥ 0 for all possible scores; with Exp it need not be set
	NonNegative bool // f ≥ 0 for all numbers, so that Positive holds for any bound of scores

	// Window adds a sliding window of exact weights to the mechanism, which then is the tail
	// (the far field); nil: none. Only kernel polynomials support it.
	Window *Window
}

// FeatureMap maps single rows to features. It must not keep state between calls.
type FeatureMap interface {
	Dim(d int) int                 // width of the mapped row
	Map(dst, x []tensor.Float)     // sets dst [Dim(len(x))] to the features of x
	Grad(dx, dy, x []tensor.Float) // sets dx from the gradient dy of the features of x
}

// Elementwise marks a FeatureMap that maps each number independently. Its methods may be called
// with rows or with columns, and in place.
type Elementwise interface{ Elementwise() }

// ZeroingMap marks a FeatureMap or Features that can map a nonzero row to zeros.
type ZeroingMap interface{ Sparse() }

// BoundedRounding marks a FeatureMap with a known error: its results differ from exact
// arithmetic by at most Roundings roundings.
type BoundedRounding interface{ Roundings() float64 }

// Similarity is an arbitrary weight function f of the score and its derivative. It has only the
// direct form, because only polynomials can be written as sums over keys. Both functions set
// every element of dst from the same element of s; dst may be s. They may be called
// concurrently. They are also called for masked pairs, whose results are not used.
type Similarity struct {
	F     func(dst, s []tensor.Float)
	Slope func(dst, s []tensor.Float) // f′
}

// BuiltinDecay is a fixed log-decay per token, the same for all tokens of a key head. It is
// added to the log-decay of the call.
type BuiltinDecay struct {
	Name  string                 // name in errors
	Log   func(head int) float64 // log-decay of each token of a key head, finite and at most 0
	Heads int                    // number of key heads that Log supports; 0: any
}

// Window is a sliding window of exact weights over the keys near a query. Its scores s_ij are
// q_i·k_j/√D, from rows that are rotated but neither normalised nor mapped. Masked keys count
// towards the width. A query that reads a state has the position of the state's last token, so
// calls between states are causal. Decay applies to the window and the tail alike.
type Window struct {
	Width    int // from 1 to 1<<30
	Join     Join
	LogGamma *param.Param // [H] or [1], learned; nil: γ is 1
}

// Join is the way in which the window and the tail are combined. Below, γ is exp(LogGamma) of
// the query head, and query i has the position p = i+M-N. In a causal call the window is the
// keys p-Width < j ≤ p, where p is at most the last key; in an unmasked call it is the keys
// |p-j| < Width. All other visible keys are far.
type Join int

const (
	// OneDenominator weighs the far keys with the tail and divides both parts by one
	// denominator (LoLCATs, arXiv 2410.10254):
	//
	//	o_i = (Σ_far f(a_i·b_j)·v_j + γ·Σ_window exp(s_ij)·v_j) / (Σ_far f(a_i·b_j) + γ·Σ_window exp(s_ij) + eps)
	OneDenominator Join = iota
	// Separate adds γ times the softmax of the window to the output of the tail over all keys
	// (Based, arXiv 2402.18668).
	Separate
)

var joinNames = []string{OneDenominator: "denominator", Separate: "separate"}

// String returns the name of the join.
func (j Join) String() string { return joinNames[j] }

// Joins returns all joins.
func Joins() []Join { return []Join{OneDenominator, Separate} }

// Features is a feature map that depends on the head and on the side (queries or keys), and may
// have parameters, learned or drawn. It maps blocks of tokens, so that products with its
// parameters are products of matrices. The features of a token depend only on the token, its
// head and its side.
type Features interface {
	Dim(d int) int
	Params() *param.Set    // learned parameters; nil: none
	Constants() *param.Set // drawn numbers; nil: none
	// Check returns an error if the parameters do not fit the heads or the width d.
	Check(heads, keyHeads, d int) error
	// Map sets b.Y to the features of b.X.
	Map(b *FeatureBlock)
	// Grad sets b.DX from b.X and b.Y, which holds the gradient of the features. It adds the
	// gradient of the parameters to b.DParams, and may overwrite b.Y.
	Grad(b *FeatureBlock)
}

// FeatureBlock holds some tokens of one head as columns. The rows of X, Y and DX are Stride
// elements apart. Columns from N to Stride may be overwritten and must not be read.
type FeatureBlock struct {
	Scratch Scratch

	Keys        bool
	Head, First int // index of the query head; for a key head First, the first query head that shares it

	D, N, Stride int
	X            []tensor.Float   // [D, Stride] rows after normalisation, rotation and scale
	Y            []tensor.Float   // [Dim, Stride] features, or their gradient
	DX           []tensor.Float   // [D, Stride] gradient of X
	DParams      [][]tensor.Float // gradients of Params, one slice for each, in order
}

// Scratch allocates temporary memory, which is freed at the latest when the block is done.
type Scratch interface {
	// Take returns n numbers with undefined contents.
	Take(n int) []tensor.Float
	// Mark returns the current level, for Reset, which frees what was taken after it.
	Mark() int
	Reset(mark int)
}

// BoundedProduct marks Features whose product φ(q)·φ(k) is at most Bound. The bound decides
// whether a denominator counts as ill-conditioned.
type BoundedProduct interface{ Bound() float64 }
