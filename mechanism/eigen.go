package mechanism

import (
	"cmp"
	"math"
	"slices"
)

// symmetricEigenvectors returns the eigenvectors of a symmetric matrix a [d, d] as
// rows, sorted by descending eigenvalue, by Jacobi rotations. The component of largest
// magnitude of each row is positive. It overwrites a.
func symmetricEigenvectors(a []float64, d int) []float64 {
	v := make([]float64, d*d)
	for i := range d {
		v[i*d+i] = 1
	}
	for range 60 { // sweeps; about ten suffice
		var off, all float64
		for i := range d {
			for j := range d {
				all += a[i*d+j] * a[i*d+j]
				if i != j {
					off += a[i*d+j] * a[i*d+j]
				}
			}
		}
		if off <= 1e-30*all {
			break
		}
		for p := range d {
			for q := p + 1; q < d; q++ {
				rotatePlane(a, v, d, p, q)
			}
		}
	}
	order := make([]int, d)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(a[j*d+j], a[i*d+i]) })
	sorted := make([]float64, 0, d*d)
	for _, i := range order {
		row := v[i*d:][:d]
		largest := 0.0
		for _, x := range row {
			if math.Abs(x) > math.Abs(largest) {
				largest = x
			}
		}
		for _, x := range row {
			sorted = append(sorted, math.Copysign(1, largest)*x)
		}
	}
	return sorted
}

// rotatePlane rotates the plane of axes p and q such that a[p,q] becomes 0, and rotates
// the rows of v with it. a and v are [d, d].
func rotatePlane(a, v []float64, d, p, q int) {
	if a[p*d+q] == 0 {
		return
	}
	theta := (a[q*d+q] - a[p*d+p]) / (2 * a[p*d+q])
	t := math.Copysign(1, theta) / (math.Abs(theta) + math.Hypot(theta, 1))
	c := 1 / math.Hypot(t, 1)
	s := t * c
	for i := range d {
		x, y := a[i*d+p], a[i*d+q]
		a[i*d+p], a[i*d+q] = c*x-s*y, s*x+c*y
	}
	for i := range d {
		x, y := a[p*d+i], a[q*d+i]
		a[p*d+i], a[q*d+i] = c*x-s*y, s*x+c*y
		x, y = v[p*d+i], v[q*d+i]
		v[p*d+i], v[q*d+i] = c*x-s*y, s*x+c*y
	}
}
