package nn

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Conv is a short causal convolution of each channel by itself:
// y_n = Σ_k W_k∘x_{n-k} + B, over the token itself and the K-1 before it. It
// distinguishes neighbours, which linear attention with few features cannot do in a
// long context.
type Conv struct {
	W *param.Param // [K,width]; row k is for the token k places back
	B *param.Param // [width]; nil: none
}

// countTaps returns K.
func (c *Conv) countTaps() int { return c.W.Shape[0] }

// PastSize returns (K-1)·width, the number of elements of past that Forward needs for
// each batch row.
func (c *Conv) PastSize() int { return (c.countTaps() - 1) * c.W.Shape[1] }

// Forward sets y [B·N,width] to the convolution of x [B·N,width]. past [B·PastSize()] holds
// the rows before each sequence, the latest last, and is updated to the last rows of past
// and x; nil means that nothing came before.
func (c *Conv) Forward(y, x tensor.Mat, b int, past []tensor.Float) {
	n, k, w := x.Rows/b, c.countTaps(), x.Cols
	if f := (convForward{c, y, x, n, past}); x.Rows <= normRows {
		f.RunRange(0, x.Rows)
	} else {
		par.Run(x.Rows, normRows, 2*float64(k)*float64(x.Rows)*float64(w), f)
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

// convForward is Forward of sequences of n rows.
type convForward struct {
	c        *Conv
	y, x     tensor.Mat
	n        int
	pastRows []float
}

func (f *convForward) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
	c, y, x, n, past := f.c, f.y, f.x, f.n, f.pastRows
	k, w := c.countTaps(), x.Cols
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
		if c.B != nil {
			t.Add(row, row, c.B.Data)
		}
	}
}

// ConvEnds holds the rows and gradients around sequences that are parts of longer
// sequences, for Backward. The zero value is for whole sequences.
type ConvEnds struct {
	PastRows []tensor.Float // [B·PastSize()] as Forward had it; nil: nothing came before
	// NextGrads [B·PastSize()] holds dy of the K-1 rows after each sequence; nil: nothing
	// follows. Backward overwrites it by dy of the first K-1 rows, the NextGrads of the part
	// before. A part with another part before it needs K-1 rows or more.
	NextGrads []tensor.Float
	// Last is set if nothing follows, whatever NextGrads holds.
	Last bool
}

// Backward sets dx [B·N,width] from dy [B·N,width] and adds to the gradients of W and
// B. x [B·N,width] is the argument of Forward. dx does not overlap dy.
func (c *Conv) Backward(dx, dy, x tensor.Mat, b int, ends ConvEnds) {
	ar := arena.Acquire()
	defer ar.Release()
	k, w, n := c.countTaps(), x.Cols, x.Rows/b
	pieces := (x.Rows + normRows - 1) / normRows
	parts := viewMatrix(arena.TakeZeros[float](ar, pieces*k*w), pieces, k*w)
	par.Run(x.Rows, normRows, 4*float64(k)*float64(x.Rows)*float64(w), convBackward{c, dx, dy, x, parts, n, ends})
	addRows(c.W.Grad, parts)
	if c.B != nil {
		addRows(c.B.Grad, dy)
	}
	if ends.NextGrads != nil {
		for i := range b * (k - 1) {
			row := ends.NextGrads[i*w:][:w]
			clear(row)
			if at := i % (k - 1); at < n {
				copy(row, dy.Row(i/(k-1)*n+at))
			}
		}
	}
}

// convBackward computes Backward for sequences of n rows. Each piece has sums of its own for
// the gradient of W.
type convBackward struct {
	c                *Conv
	dx, dy, x, parts tensor.Mat
	n                int
	ends             ConvEnds
}

func (f *convBackward) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
	k, w, n := f.c.countTaps(), f.x.Cols, f.n
	part, weight := f.parts.Row(i0/normRows), f.c.W.Data
	for i := i0; i < i1; i++ {
		at := i % n
		around := i / n * (k - 1) * w // of rows before or after the sequence
		for j := range k {
			switch {
			case j <= at:
				t.MulAdd(part[j*w:][:w], f.dy.Row(i), f.x.Row(i-j))
			case f.ends.PastRows != nil:
				t.MulAdd(part[j*w:][:w], f.dy.Row(i), f.ends.PastRows[around+(k-1+at-j)*w:])
			}
		}
		row := f.dx.Row(i)
		t.Mul(row, f.dy.Row(i), weight)
		for j := 1; j < k; j++ {
			switch {
			case j < n-at:
				t.MulAdd(row, f.dy.Row(i+j), weight[j*w:])
			case f.ends.NextGrads != nil && !f.ends.Last:
				t.MulAdd(row, f.ends.NextGrads[around+(at+j-n)*w:], weight[j*w:])
			}
		}
	}
}
