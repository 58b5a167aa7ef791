package oracle

import "math"

// Monomials maps rows to the features of truncated polynomials: products of components of R·x.
// Features of queries also contain the coefficient 1/a!. Each row of List holds the factors of
// one feature as indices from 1 on; 0 is no factor.
type Monomials struct {
	R    [][]float64 // [D][D]
	List [][]float64
}

// rotated returns R·x, or what its roundings are measured by.
func (f *Monomials) rotated(x []float64, size bool) []float64 {
	var y []float64
	for _, r := range f.R {
		if size {
			y = append(y, dotProduct(absRow(r), absRow(x)))
		} else {
			y = append(y, dotProduct(r, x))
		}
	}
	return y
}

// exponents counts how often each component is a factor.
func (f *Monomials) exponents(m []float64) []int {
	a := make([]int, len(f.R))
	for _, i := range m {
		if i > 0 {
			a[int(i)-1]++
		}
	}
	return a
}

func (f *Monomials) weight(at Place, a []int) float64 {
	w := 1.0
	for _, n := range a {
		if !at.Keys {
			w /= math.Gamma(float64(n) + 1)
		}
	}
	return w
}

func (f *Monomials) products(at Place, y []float64) (list []float64) {
	for _, m := range f.List {
		a := f.exponents(m)
		product := f.weight(at, a)
		for i, n := range a {
			product *= math.Pow(y[i], float64(n))
		}
		list = append(list, product)
	}
	return list
}

// Map returns the features of a row x [D], one for each row of List.
func (f *Monomials) Map(at Place, x []float64) []float64 { return f.products(at, f.rotated(x, false)) }

// Size bounds the rounding errors of the features of a row x [D].
func (f *Monomials) Size(at Place, x []float64) []float64 { return f.products(at, f.rotated(x, true)) }

// Grad returns the gradient of x [D] from dy, the gradient of the features.
func (f *Monomials) Grad(at Place, x, dy, _ []float64) []float64 {
	y, du := f.rotated(x, false), make([]float64, len(x))
	for r, m := range f.List {
		a := f.exponents(m)
		for c, n := range a {
			if n == 0 {
				continue
			}
			d := dy[r] * f.weight(at, a) * float64(n)
			for i, k := range a {
				if i == c {
					k--
				}
				d *= math.Pow(y[i], float64(k))
			}
			du[c] += d
		}
	}
	dx := make([]float64, len(x))
	for c, r := range f.R {
		addScaled(dx, du[c], r)
	}
	return dx
}

// Learned returns nil, because R is constant.
func (f *Monomials) Learned(int) []float64 { return nil }
