//go:build float64

package features

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// TestFeatureProductsAreTheKernel compares the weighted features of a times the features
// of b with the kernel of a·b, for every degree and width, in blocks of several sizes.
// The features of one token have the bits they have among others.
func TestFeatureProductsAreTheKernel(t *testing.T) {
	const tokens = 5
	r := rand.New(rand.NewPCG(1, 1))
	ar := arena.Acquire()
	defer ar.Release()
	for _, coef := range [][]float64{
		{1, 1}, {0, 1}, {1, 1, 0.5}, {0, 0, 1}, {1, 1, 0.5, 0.25}, {0, 0, 0, 3}, {0, 1, 0, 2, 0.5}, {0, 0, 0, 0, 0, 0, 1},
	} {
		for _, w := range []int{1, 2, 3, 5, 8} {
			m := NewMonomials(kernel.Active[float64](), coef, !isPower(coef), w)
			ld := scratch.Stride[float64](tokens)
			x, y := arena.TakeZeros[float64](ar, (w+1)*ld), arena.TakeZeros[float64](ar, (w+1)*ld)
			for c := range w + 1 {
				for i := range tokens {
					x[c*ld+i], y[c*ld+i] = r.NormFloat64(), r.NormFloat64()
					if c == 0 {
						x[i], y[i] = 1, 1
					}
				}
			}
			y[2], y[ld+2] = 0, 0 // a token left out
			for c := range w {
				y[(c+1)*ld+2] = 0
			}
			phi, psi := make([]float64, m.Count*ld), make([]float64, m.Count*ld)
			m.Rewind()
			z, den := make([]float64, m.Count), make([]float64, tokens)
			for f := range z {
				z[f] = r.NormFloat64()
			}
			m.ExpandWeighted(ar, phi, x, ld, m.Count, z, den)
			if m.next != m.Count {
				t.Fatalf("%v, width %d: %d features, want %d", coef, w, m.next, m.Count)
			}
			m.Rewind()
			number, sums := []float64{1, 2, 3, -1, -2}, make([]float64, m.Count)
			for f := 0; f < m.Count; f += 7 {
				m.Expand(ar, psi[f*ld:], y, ld, min(7, m.Count-f), number, sums[f:])
			}
			for f := range m.Count {
				var want float64
				for i, v := range psi[f*ld:][:tokens] {
					want += v * number[i]
				}
				if math.Abs(sums[f]-want) > 0x1p-48*(1+math.Abs(want)) {
					t.Errorf("%v, width %d: feature %d sums to %g, want %g", coef, w, f, sums[f], want)
				}
			}
			one, row := make([]float64, m.Count+kernel.Lanes), make([]float64, w+1, w+1+kernel.Lanes)
			for i := range tokens {
				var dot, sum, abs, weighted float64
				for c := range w {
					dot += x[(c+1)*ld+i] * y[(c+1)*ld+i]
					row[c+1] = x[(c+1)*ld+i]
				}
				row[0] = 1
				for f := range m.Count {
					sum += phi[f*ld+i] * psi[f*ld+i]
					abs += math.Abs(phi[f*ld+i] * psi[f*ld+i])
					weighted += z[f] * phi[f*ld+i]
				}
				if math.Abs(den[i]-weighted) > 0x1p-40*(1+math.Abs(weighted)) {
					t.Errorf("%v, width %d, token %d: products with z are %g, want %g", coef, w, i, den[i], weighted)
				}
				var want float64
				for l, c := range coef {
					want += c * math.Pow(dot, float64(l))
				}
				if i == 2 {
					want = 0
				}
				if math.Abs(sum-want) > 0x1p-48*(1+abs) {
					t.Errorf("%v, width %d, token %d: features give %g, want %g", coef, w, i, sum, want)
				}
				m.Rewind()
				for m.next < m.Count { // in as little room as can be
					f := m.next
					dst := one[f : min(f+w+1, m.Count)+kernel.Lanes]
					if n := m.ExpandToken(dst, row); n == 0 || m.next != f+n {
						t.Fatalf("%v, width %d: %d features from %d to %d", coef, w, n, f, m.next)
					}
				}
				for f := range m.Count {
					if one[f] != phi[f*ld+i] {
						t.Fatalf("%v, width %d, token %d: feature %d alone is %g, among others %g", coef, w, i, f, one[f], phi[f*ld+i])
					}
				}
			}
		}
	}
}

// TestGradientOfFeatures compares the gradient through features, in blocks of several
// sizes, with central differences. A feature is a polynomial in each component.
func TestGradientOfFeatures(t *testing.T) {
	const h = 1e-6
	r := rand.New(rand.NewPCG(2, 2))
	ar := arena.Acquire()
	defer ar.Release()
	for _, coef := range [][]float64{{1, 1}, {0, 0, 1}, {1, 1, 0.5}, {1, 1, 1, 1}, {0, 0, 0, 0, 1}, {1, 1, 1, 1, 1, 1}} {
		for _, w := range []int{1, 2, 4} {
			m := NewMonomials(kernel.Active[float64](), coef, !isPower(coef), w)
			ld := scratch.Stride[float64](1)
			x := arena.TakeZeros[float64](ar, (w+1)*ld)
			x[0] = 1
			for c := range w {
				x[(c+1)*ld] = r.NormFloat64()
			}
			phi, dphi := make([]float64, m.Count*ld), make([]float64, m.Count*ld)
			z, y := make([]float64, m.Count), []float64{r.NormFloat64()}
			for f := range m.Count {
				dphi[f*ld], z[f] = r.NormFloat64(), r.NormFloat64()
			}
			loss := func() (l float64) {
				m.Rewind()
				m.Expand(ar, phi, x, ld, m.Count, []float64{1}, make([]float64, m.Count))
				for f := range m.Count {
					l += m.Weights[f] * (dphi[f*ld] + z[f]*y[0]) * phi[f*ld]
				}
				return l
			}
			dx := make([]float64, (w+1)*ld)
			m.Rewind()
			for f := 0; f < m.Count; f += 3 {
				m.FoldGrad(ar, dx, dphi[f*ld:], x, ld, min(3, m.Count-f), z[f:], y)
			}
			for c := 1; c <= w; c++ {
				was := x[c*ld]
				x[c*ld] = was + h
				up := loss()
				x[c*ld] = was - h
				down := loss()
				x[c*ld] = was
				if want := (up - down) / (2 * h); math.Abs(dx[c*ld]-want) > 1e-6*(1+math.Abs(want)) {
					t.Errorf("%v, width %d: component %d has gradient %g, differences give %g", coef, w, c, dx[c*ld], want)
				}
			}
		}
	}
}

// isPower reports whether all coefficients but the last are 0.
func isPower(coef []float64) bool {
	return !slices.ContainsFunc(coef[:len(coef)-1], func(c float64) bool { return c != 0 })
}
