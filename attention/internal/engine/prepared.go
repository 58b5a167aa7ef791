package engine

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// Prepared returns the query and key rows of c as they enter the feature map. It returns an
// error if c does not fit.
func (e *Engine) Prepared(c *attention.Call) (q, k tensor.Heads, err error) {
	if err := e.CheckCall(c); err != nil {
		return q, k, err
	}
	q, k = tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.Q.D), tensor.NewHeads(c.K.B, c.K.H, c.K.N, c.K.D)
	if c.K.H == 0 {
		return q, k, nil
	}
	group := c.Q.H / c.K.H
	seqs := e.Sequences(nil, new([]attention.Sequence), c)
	e.measure(c, seqs)
	for _, s := range seqs {
		for kh := range c.K.H {
			ar := arena.Acquire()
			u := e.NewTask(c, &s, kh, ar)
			for g := range group {
				side := u.QuerySide(g)
				u.PreparedRows(q.Head(s.Batch, kh*group+g), s.Q0, s.N, &side)
			}
			side := u.KeySide()
			u.PreparedRows(k.Head(s.Batch, kh), s.K0, s.M, &side)
			e.Release(u)
			ar.Release()
		}
	}
	return q, k, nil
}
