package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/rng"
)

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

	// Source is where the tokens stand in the call of which this call is a piece, by which
	// masks are drawn or read; nil: the call is whole.
	Source *DropCoords
}

// IsActive reports whether anything may be left out.
func (d *Drop) IsActive() bool {
	return d != nil && (d.Rate > 0 || d.Given(false) != nil || d.Given(true) != nil)
}

// checkDrop returns an error for the first field of d that does not fit the numbers of
// queries and keys, of all heads, and their width.
func checkDrop(d *Drop, queries, keys, width int) error {
	if d == nil {
		return nil
	}
	if d.Kind < 0 || int(d.Kind) >= len(dropNames) {
		return fmt.Errorf("dropout: kind is %v, needs one of %q", d.Kind, dropNames)
	}
	if !(d.Rate >= 0 && d.Rate < 1) {
		return fmt.Errorf("dropout: rate is %v, needs 0 ≤ rate < 1", d.Rate)
	}
	if d.Source != nil {
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
	q, k := d.Given(false), d.Given(true)
	if given && (q == nil && queries > 0 || k == nil && keys > 0) {
		return fmt.Errorf("dropout: the mask of one side is given without the other's")
	}
	return nil
}

// Given returns the given mask of the keys or of the queries; nil: it is drawn.
func (d *Drop) Given(keys bool) []bool {
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

// DropCoords says where the tokens of a piece of a call stand in the call.
type DropCoords struct {
	Row    int   // sequence, by which what is drawn differs
	Start  int64 // position of the first key
	B      int   // batch row of the given masks
	Q0, K0 int   // first query and key there
	N, M   int   // queries and keys of a head there
}
