package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Conv is a short causal convolution of each channel on its own:
// y_n = Σ_k W_k∘x_{n-k}, over the token itself and the K-1 before it. It tells
// neighbours apart, which the few features of a linear attention cannot do in
// a long context.
type Conv[T tensor.Float] struct {
	W *param.Param[T] // [K,width]; row k is for the token k places back
}

// taps returns K.
func (c *Conv[T]) taps() int { return c.W.Shape[0] }

// Past returns the number of elements of the rows before a sequence that
// Forward needs of each batch row: (K-1)·width.
func (c *Conv[T]) Past() int { return (c.taps() - 1) * c.W.Shape[1] }

// Forward sets y [B·N,width] from x. past [B·Past()] holds the rows before each
// sequence, the latest last, and is brought up to date; nil means that nothing
// came before.
func (c *Conv[T]) Forward(y, x tensor.Mat[T], b int, past []T) {
	n, k, w := x.Rows/b, c.taps(), x.Cols
	if x.Rows <= normRows {
		c.rows(y, x, n, past, 0, x.Rows) // without a function value, which is allocated
	} else {
		inRows(x.Rows, normRows, 2*float64(k)*float64(x.Rows)*float64(w), func(i0, i1 int) {
			c.rows(y, x, n, past, i0, i1)
		})
	}
	if past == nil {
		return
	}
	for r := range b {
		rows := past[r*(k-1)*w:][:(k-1)*w]
		if keep := k - 1 - n; keep > 0 {
			copy(rows, rows[n*w:])
		}
		for i := max(n-(k-1), 0); i < n; i++ {
			copy(rows[(k-1-n+i)*w:][:w], x.Row(r*n+i))
		}
	}
}

// rows is Forward for rows i0 ≤ i < i1 of sequences of n.
func (c *Conv[T]) rows(y, x tensor.Mat[T], n int, past []T, i0, i1 int) {
	t := kernel.Active[T]()
	k, w := c.taps(), x.Cols
	for i := i0; i < i1; i++ {
		row := y.Row(i)
		t.Mul(row, x.Row(i), c.W.Data)
		at := i % n // place in the sequence
		for j := 1; j < k; j++ {
			switch {
			case j <= at:
				t.MulAdd(row, x.Row(i-j), c.W.Data[j*w:])
			case past != nil:
				t.MulAdd(row, past[i/n*(k-1)*w+(k-1+at-j)*w:], c.W.Data[j*w:])
			}
		}
	}
}

// Backward sets dx [B·N,width] and adds to the gradient of W; x is what Forward
// had, without rows before it. dx does not overlap dy.
func (c *Conv[T]) Backward(dx, dy, x tensor.Mat[T], b int) {
	t := kernel.Active[T]()
	ar := arena.Acquire()
	defer ar.Release()
	n, k, w := x.Rows/b, c.taps(), x.Cols
	pieces := (x.Rows + normRows - 1) / normRows
	parts := view(arena.Zeros[T](ar, pieces*k*w), pieces, k*w)
	inRows(x.Rows, normRows, 4*float64(k)*float64(x.Rows)*float64(w), func(i0, i1 int) {
		part := parts.Row(i0 / normRows)
		for i := i0; i < i1; i++ {
			at := i % n
			for j := range min(k, at+1) {
				t.MulAdd(part[j*w:][:w], dy.Row(i), x.Row(i-j))
			}
			row := dx.Row(i)
			t.Mul(row, dy.Row(i), c.W.Data)
			for j := 1; j < min(k, n-at); j++ {
				t.MulAdd(row, dy.Row(i+j), c.W.Data[j*w:])
			}
		}
	})
	addRows(c.W.Grad, parts)
}
