package engine

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// Between tokens, a state of degree 1 with chunks of one token holds only its moments, which
// are small. A step therefore reads them once, to answer the query and to add the key
// (kernel.Table.Renew), with the same bits as opening, reading and closing a chunk.

// allHeadsClosed reports whether all heads hold only moments, with an unmasked key, so that a
// step need not check each head. The result is cached in HasClosedCount, which every other
// change of the heads resets.
func (s *RecurrentState) allHeadsClosed() bool {
	if s.HasClosedCount {
		return true
	}
	if !s.byHead {
		return false
	}
	for _, h := range s.Heads {
		if !h.Moments.NonEmpty || h.First != -1 || h.Count != 0 || h.Decays != nil {
			return false
		}
	}
	s.HasClosedCount = len(s.Heads) > 0
	return s.HasClosedCount
}

// fuseStepHeads steps one token of heads lo ≤ i < hi, all of which hold only moments. Heads are
// counted head by head, over all batch rows.
func (s *RecurrentState) fuseStepHeads(lo, hi int, out tensor.Heads, c *attention.Call, rows tokenRows) {
	ar := arena.Acquire()
	defer ar.Release()
	u, n := s.Heads[0].Task, s.Shape.B
	r := u.NewFusedStepper(ar, s.Heads[0].Monomials, n)
	size := r.Count * r.Ld
	o, ldo := arena.Take[float](ar, n*r.Ld), r.Ld
	factors := arena.Take[float](ar, n)
	for ; lo < hi; lo = (lo/n + 1) * n {
		b0, h := lo%n, lo/n
		b1 := min(n, b0+hi-lo)
		to, v := out.Data[h*out.SH:], c.V.Data[h*c.V.SH:]
		if out.D == r.Ld {
			o, ldo = to, out.SB
		}
		i, next := h*n+b0, s.moments.size
		moments := s.moments.data[i*next:]
		r.Tokens(b1-b0, o[b0*ldo:], ldo, rows.query(i), rows.key(i), rows.ld, v[b0*c.V.SB:], c.V.SB, moments, moments[size:], next, factors[b0:])
		for b := b0; b < b1; b++ {
			factors[b] = r.InvertDen(factors[b])
		}
		r.Table.ScaleRows(to[b0*out.SB:], out.SB, o[b0*ldo:], ldo, out.D, factors[b0:b1])
	}
}
