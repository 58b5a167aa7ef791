package reproduce

import (
	"math"
	"slices"
)

// singularValues returns the singular values of the matrix a [n,n], the largest first, by
// one-sided Jacobi rotations (Hestenes 1958): pairs of columns are rotated until all are
// orthogonal; their lengths are the singular values.
func singularValues(a []float64, n int) []float64 {
	const (
		sweeps = 30
		// Columns count as orthogonal whose product is so small beside their lengths,
		// or beside all: rounding leaves as much.
		still, small = 1e-12, 1e-14
	)
	total := 0.0
	for _, v := range a {
		total += v * v
	}
	column := make([][]float64, n)
	for j := range column {
		column[j] = make([]float64, n)
		for i := range n {
			column[j][i] = a[i*n+j]
		}
	}
	for range sweeps {
		turned := false
		for p := range n {
			for q := p + 1; q < n; q++ {
				x, y := column[p], column[q]
				var xx, yy, xy float64
				for i := range x {
					xx, yy, xy = xx+x[i]*x[i], yy+y[i]*y[i], xy+x[i]*y[i]
				}
				if math.Abs(xy) <= max(still*math.Sqrt(xx*yy), small*total) {
					continue
				}
				turned = true
				zeta := (yy - xx) / (2 * xy)
				t := 1 / (math.Abs(zeta) + math.Hypot(1, zeta))
				if zeta < 0 {
					t = -t
				}
				c := 1 / math.Hypot(1, t)
				s := c * t
				for i := range x {
					x[i], y[i] = c*x[i]-s*y[i], s*x[i]+c*y[i]
				}
			}
		}
		if !turned {
			break
		}
	}
	values := make([]float64, n)
	for j, x := range column {
		var sum float64
		for _, v := range x {
			sum += v * v
		}
		values[j] = math.Sqrt(sum)
	}
	slices.Sort(values)
	slices.Reverse(values)
	return values
}
