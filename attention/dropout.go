package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/rng"
)

// DropKind is a kind of attention dropout (FAST, figure 2).
type DropKind int

const (
	// TokenDrop drops whole tokens of the queries and of the keys ("1d"). A dropped key is not
	// masked: its score is 0, so its weight is f(0).
	TokenDrop DropKind = iota
	// ElementDrop drops channels of each query and key ("standard"), and with them every
	// product that has such a channel as a factor.
	ElementDrop
	// ProductDrop drops products of two channels of one query, or of one key, in the term of
	// degree 2 only ("quadratic"): the square of the score becomes Σ_ml (q_m·q_l)(k_m·k_l) over
	// the products that both sides keep. Only kernels of degree 2 without a feature map support
	// it. The products m·l and l·m are dropped independently, so features cannot be packed: a
	// row has D²+D+1 of them.
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

// ParseDropKind returns the kind that the paper calls name, and an error if there is none.
func ParseDropKind(name string) (DropKind, error) {
	for k, n := range dropNames {
		if n == name {
			return DropKind(k), nil
		}
	}
	return 0, fmt.Errorf("dropout: kind is %q, needs one of %q", name, dropNames)
}

// Drop is the dropout of one call, for training. A mask drops elements of prepared queries and
// keys (normalised, rotated and scaled, before any feature map), or products of their channels.
// Kept elements are divided by 1-Rate, so that means do not change. Attention weights are never
// masked, not even by softmax mechanisms.
//
// Masks are drawn from Key unless they are given. A drawn element depends only on Key, the
// batch row or packed sequence, the head, the position and the channel, so every form, chunk
// and number of threads draws the same mask. The position of a key is its index in the
// sequence. The position of a query is its index, too, or in a causal call the index of the
// last key that it sees, as for Rope. Queries and keys have separate masks. Query heads that
// share a key head share its mask of the keys.
type Drop struct {
	Kind DropKind
	Rate float64 // 0 ≤ Rate < 1; 0 without given masks: no dropout
	Key  rng.Key
	// Start is the position of the first token, for calls that continue a state.
	Start int64

	// QTok to K2 are given masks of kept elements. The masks of both sides are given together;
	// nothing is drawn then.
	QTok, KTok []bool // [B·H·N], [B·Hkv·M] of TokenDrop
	Q1, K1     []bool // [B·H·N·D], [B·Hkv·M·D] of ElementDrop
	Q2, K2     []bool // [B·H·N·D·D], [B·Hkv·M·D·D] of ProductDrop

	// Source is set if the call is a piece of a larger call, and locates the tokens there, so
	// that the piece uses the larger call's masks; nil: the call is whole.
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

// Given returns the given mask of the keys or of the queries, or nil if it is drawn.
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

// DropCoords locates the tokens of a piece of a call in the whole call.
type DropCoords struct {
	Row    int   // sequence index, an input of the drawn masks
	Start  int64 // position of the first key
	B      int   // batch row in given masks
	Q0, K0 int   // first query and first key in given masks
	N, M   int   // queries and keys per head in given masks
}
