package zoo

import (
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

// segmentBounds returns the rows i0 ≤ i < i1 of part p, when n rows are divided into
// parts of neighbours. Sizes differ by at most one, and no part is empty if n ≥ parts.
func segmentBounds(p, parts, n int) (i0, i1 int) { return p * n / parts, (p + 1) * n / parts }

// segmentMeans sets each row of dst [parts, D] to the mean of its part of the rows of x
// [n, D].
func segmentMeans(h *headwise.Head, dst, x tensor.Mat) {
	for p := range dst.Rows {
		i0, i1 := segmentBounds(p, dst.Rows, x.Rows)
		row := dst.Row(p)
		clear(row)
		for i := i0; i < i1; i++ {
			h.Table.Add(row, row, x.Row(i))
		}
		h.Table.Scale(row, 1/float(i1-i0), row)
	}
}

// segmentMeansGrad adds to dx [n, D] the gradient of segmentMeans, from dmeans [parts,
// D].
func segmentMeansGrad(h *headwise.Head, dx, dmeans tensor.Mat) {
	for p := range dmeans.Rows {
		i0, i1 := segmentBounds(p, dmeans.Rows, dx.Rows)
		for i := i0; i < i1; i++ {
			h.Table.Axpy(dx.Row(i), 1/float(i1-i0), dmeans.Row(p))
		}
	}
}
