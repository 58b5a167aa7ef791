package headtask

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// TurnColumns rotates n columns of x [d, ld], the first by row i0 of the table and the others
// by the rows that follow. With back set it rotates in the opposite direction.
func TurnColumns(r *attention.Rope, t *kernel.Table[float], ar *arena.Arena, x []float, ld, i0, n int, back bool) {
	if r.Half == 0 {
		return
	}
	mark := ar.Mark()
	h, lt := r.Half, kernel.Pad(n)
	c, s := arena.Take[float](ar, h*lt), arena.Take[float](ar, h*lt)
	t.Transpose(c, lt, r.Cos[i0*h:], h, n, h)
	t.Transpose(s, lt, r.Sin[i0*h:], h, n, h)
	lo, hi := x, x[h*ld:]
	if back {
		lo, hi = hi, lo
	}
	t.Rotate(lo, hi, ld, c, s, lt, h, n)
	ar.Reset(mark)
}
