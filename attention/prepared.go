package attention

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Prepared returns the rows of a call as the feature map of m gets them: normalised,
// rotated and, for queries, scaled; q [B,H,N,D] and k [B,Hkv,M,D]. Masked keys are
// zeros. Constants of a map are fitted to these rows. It returns an error if c does not
// fit, and for mechanisms of whole heads and with a window.
func Prepared[T tensor.Float](m Mechanism[T], c *Call[T]) (q, k tensor.Heads[T], err error) {
	e, ok := m.(*engine[T])
	if !ok {
		return q, k, fmt.Errorf("%s: has no single form of prepared rows", m.Traits().Name)
	}
	if err := e.checks().check(c); err != nil {
		return q, k, err
	}
	q, k = tensor.NewHeads[T](c.Q.B, c.Q.H, c.Q.N, c.Q.D), tensor.NewHeads[T](c.K.B, c.K.H, c.K.N, c.K.D)
	if c.K.H == 0 {
		return q, k, nil
	}
	group := c.Q.H / c.K.H
	seqs := e.sequences(nil, c)
	e.measure(c, seqs)
	for _, s := range seqs {
		for kh := range c.K.H {
			ar := arena.Acquire()
			u := e.newTask(c, &s, kh, ar)
			for g := range group {
				side := u.rows().querySide(g)
				u.rows().preparedRows(q.At(s.Batch, kh*group+g), s.Q0, s.N, &side)
			}
			side := u.rows().keySide()
			u.rows().preparedRows(k.At(s.Batch, kh), s.K0, s.M, &side)
			e.release(u)
			ar.Release()
		}
	}
	return q, k, nil
}

// preparedRows sets n rows of dst, from row r0 on, to tokens before the map.
func (u preparation[T]) preparedRows(dst tensor.Mat[T], r0, n int, s *headRows[T]) {
	for i := 0; i < n; i += stretch {
		l := min(stretch, n-i)
		mark := u.ar.Mark()
		ld := scratch.Stride[T](l)
		x := arena.Take[T](u.ar, u.d*ld)
		u.prepareUnmapped(x, ld, s, i, i+l)
		rows := dst.Slice(r0+i, r0+i+l)
		for r := range l {
			for c := range u.d {
				rows.Row(r)[c] = x[c*ld+r]
			}
			if s.isMasked(i + r) {
				clear(rows.Row(r))
			}
		}
		u.ar.Reset(mark)
	}
}
