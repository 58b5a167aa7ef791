package headtask

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
)

// HeadDropout is the dropout of the queries, or of the keys, of one head.
type HeadDropout struct {
	*attention.Drop            // nil: no dropout
	key             rng.Key    // of the side and head
	first           int64      // position of token 0
	mask            []bool     // given, from token 0 on; nil: drawn
	threshold       uint32     // numbers below it are left out
	keptFactor      float64    // factor of kept elements
	Coef            [3]float64 // for ProductDrop: further factors of the rows of queries, by degree
}

// NewHeadDropout returns the dropout of the given query head or key head h, one of heads. pos
// is the position of token 0 in its sequence.
func NewHeadDropout(d *attention.Drop, p *attention.DropCoords, keys bool, h, heads, width, pos int) HeadDropout {
	side, tokens, token0 := uint64(0), p.N, p.Q0
	if keys {
		side, tokens, token0 = 1, p.M, p.K0
	}
	x := HeadDropout{
		Drop: d, key: d.Key.Fold(side).Fold(uint64(p.Row)).Fold(uint64(h)), first: p.Start + int64(pos),
		threshold: uint32(d.Rate * 0x1p32), keptFactor: 1 / (1 - d.Rate), Coef: [3]float64{1, 1, 1},
	}
	if x.mask = d.Given(keys); x.mask != nil {
		x.mask = x.mask[((p.B*heads+h)*tokens+token0)*BitsOf(d.Kind, width):]
	}
	return x
}

// BitsOf returns the number of mask bits for a token of d channels.
func BitsOf(k attention.DropKind, d int) int {
	switch k {
	case attention.TokenDrop:
		return 1
	case attention.ElementDrop:
		return d
	}
	return d * d
}

// draws are the bits of one token, in order.
type draws struct {
	*HeadDropout
	bits     []bool // nil: from numbers
	number   uint64 // the next one
	words    [4]uint32
	usedBits int // of words
}

// Token returns the first width mask bits of token i.
func (m *HeadDropout) Token(i, width int) draws {
	if m.mask != nil {
		return draws{HeadDropout: m, bits: m.mask[i*width:][:width]}
	}
	// A number decides four times.
	return draws{HeadDropout: m, number: uint64(m.first+int64(i)) * (uint64(width+3) / 4), usedBits: 4}
}

// Next returns the factor of the next element, which is 0 if the element is dropped.
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

// DropOut multiplies the masks of tokens or channels into n tokens from token i on. Channel c
// of token i+r is x[c·cs+r·ts], for d channels.
func DropOut(m *HeadDropout, x []float, cs, ts, d, i, n int) {
	for r := range n {
		switch x := x[r*ts:]; m.Kind {
		case attention.TokenDrop:
			bits := m.Token(i+r, 1)
			f := float(bits.Next())
			for c := range d {
				x[c*cs] *= f
			}
		case attention.ElementDrop:
			bits := m.Token(i+r, d)
			for c := range d {
				x[c*cs] *= float(bits.Next())
			}
		}
	}
}
