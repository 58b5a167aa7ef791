package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
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

	source *dropoutCoords // of a piece of another call; nil: the call's own
}

// IsActive reports whether anything may be left out.
func (d *Drop) IsActive() bool {
	return d != nil && (d.Rate > 0 || givenMask(d, false) != nil || givenMask(d, true) != nil)
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

// bitsOf returns the bits of a token of d channels.
func bitsOf(k DropKind, d int) int {
	switch k {
	case TokenDrop:
		return 1
	case ElementDrop:
		return d
	}
	return d * d
}

// dropoutCoords is where the tokens of a task stand.
type dropoutCoords struct {
	row    int   // sequence, by which what is drawn differs
	start  int64 // position of the first key
	b      int   // batch row of the given masks
	q0, k0 int   // first query and key there
	n, m   int   // queries and keys of a head there
}

// sourceOf returns where the tokens of d stand in the call that d is a piece of; nil: d is
// of a whole call.
func sourceOf(d *Drop) *dropoutCoords { return d.source }

// relocate returns a copy of d for the tokens at p of another call.
func relocate(d *Drop, p dropoutCoords) *Drop {
	x := *d
	x.source = &p
	return &x
}

// headDropout is a Drop as one side of one head has it.
type headDropout struct {
	*Drop                 // nil: nothing is left out
	key        rng.Key    // of the side and head
	first      int64      // position of token 0
	mask       []bool     // given, from token 0 on; nil: drawn
	threshold  uint32     // numbers below it are left out
	keptFactor float64    // factor of kept elements
	coef       [3]float64 // of ProductDrop: what else the rows of queries are multiplied with
}

// newHeadDropout returns the dropout of query head or key head h of heads. pos is the position of
// token 0 in its sequence.
func newHeadDropout(d *Drop, p *dropoutCoords, keys bool, h, heads, width, pos int) headDropout {
	side, tokens, token0 := uint64(0), p.n, p.q0
	if keys {
		side, tokens, token0 = 1, p.m, p.k0
	}
	x := headDropout{
		Drop: d, key: d.Key.Fold(side).Fold(uint64(p.row)).Fold(uint64(h)), first: p.start + int64(pos),
		threshold: uint32(d.Rate * 0x1p32), keptFactor: 1 / (1 - d.Rate), coef: [3]float64{1, 1, 1},
	}
	if x.mask = givenMask(d, keys); x.mask != nil {
		x.mask = x.mask[((p.b*heads+h)*tokens+token0)*bitsOf(d.Kind, width):]
	}
	return x
}

// draws are the bits of one token, in order.
type draws struct {
	*headDropout
	bits     []bool // nil: from numbers
	number   uint64 // the next one
	words    [4]uint32
	usedBits int // of words
}

// token returns the first width bits of token i.
func (m *headDropout) token(i, width int) draws {
	if m.mask != nil {
		return draws{headDropout: m, bits: m.mask[i*width:][:width]}
	}
	// A number decides four times.
	return draws{headDropout: m, number: uint64(m.first+int64(i)) * (uint64(width+3) / 4), usedBits: 4}
}

// next returns the factor of the next element: 0 if it is dropped.
func (d *draws) next() float64 {
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

// dropOut multiplies masks of tokens or channels into n tokens from i on with d
// channels, where channel c of token i+r is x[c·cs+r·ts].
func dropOut[T tensor.Float](m *headDropout, x []T, cs, ts, d, i, n int) {
	for r := range n {
		switch x := x[r*ts:]; m.Kind {
		case TokenDrop:
			bits := m.token(i+r, 1)
			f := T(bits.next())
			for c := range d {
				x[c*cs] *= f
			}
		case ElementDrop:
			bits := m.token(i+r, d)
			for c := range d {
				x[c*cs] *= T(bits.next())
			}
		}
	}
}
