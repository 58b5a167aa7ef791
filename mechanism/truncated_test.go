package mechanism

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/rng"
)

// truncations are the subjects of fastmax-truncated: as it starts, and with axes
// and monomials drawn at random, the same for all heads.
func truncations() (list []subject) {
	for _, x := range []struct {
		drawn    bool
		order    int
		settings []string
	}{
		{false, 0, nil},
		{true, 0, nil},
		{true, 3, []string{"norm", "unit", "scale", "2", "keep", "4"}},
		{true, 2, []string{"norm", "none", "eps", "0.5", "keep", "3"}},
		{false, 2, []string{"norm", "none", "eps", "0.5", "keep", "2"}}, // fewer than D
	} {
		s := subject{label: "fastmax-truncated", name: "fastmax-truncated", o: Options{Order: x.order, Width: streamed.d, Set: map[string]string{}},
			book: oracle.Mechanism{Norm: oracle.Standard, Coef: []float64{0, 1}}}
		if x.order > 0 {
			s.label += fmt.Sprintf(" p=%d", x.order)
		}
		for i := 0; i < len(x.settings); i += 2 {
			s.o.Set[x.settings[i]] = x.settings[i+1]
			s.label += " " + x.settings[i] + "=" + x.settings[i+1]
		}
		switch s.o.Set["norm"] {
		case "unit":
			s.book.Norm, s.book.Scale = oracle.Unit, 2
		case "none":
			s.book.Norm, s.book.Eps = oracle.NoNorm, 0.5
		}
		if x.drawn {
			s.label += " of random axes"
			s.constant = randomAxes
		}
		s.features = func(p numbers, d int) oracle.Features {
			order := 4
			if s.o.Order > 0 {
				order = s.o.Order
			}
			heads := len(p["rotation"]) / d / d
			return &oracle.Monomials{R: rowsOf(p["rotation"][:d*d], d), List: rowsOf(p["monomials"][:len(p["monomials"])/heads], order)}
		}
		list = append(list, s)
	}
	return list
}

// randomAxes gives the constants of fastmax-truncated a rotation and monomials of
// all degrees, the constant among them.
func randomAxes(name string, shape []int, d int) (all []float64) {
	key := rng.New(44)
	heads, keep, p := shape[0], shape[1], shape[2]
	var one []float64 // of a head
	if name == "rotation" {
		g := make([]float64, keep*p)
		for i := range g {
			g[i] = key.Normal(uint64(i))
		}
		one = orthogonalFactor(g, p)
	} else {
		list := lowestMonomials(d, p, monomialCount(d, p))
		for i := len(list) - 1; i > 1; i-- {
			j := 1 + key.Fold(1).Intn(uint64(i), i)
			list[i], list[j] = list[j], list[i]
		}
		kept := make([]float, keep*p)
		setMonomials(kept, p, list[:keep])
		one = widened(kept)
	}
	for range heads {
		all = append(all, one...)
	}
	return all
}

func TestEigenvectorsAreOrthonormalAndSorted(t *testing.T) {
	for _, d := range []int{1, 2, 3, 17} {
		a := make([]float64, d*d)
		for i := range d {
			for j := range i + 1 {
				a[i*d+j] = rng.New(8).Normal(uint64(i*d + j))
				a[j*d+i] = a[i*d+j]
			}
		}
		v := symmetricEigenvectors(slices.Clone(a), d)
		last := math.Inf(1)
		for i := range d {
			var image []float64
			for r := range d {
				image = append(image, dotOf(a[r*d:][:d], v[i*d:][:d]))
			}
			for j := range d {
				want := 0.0
				if i == j {
					want = 1
				}
				if x := dotOf(v[i*d:][:d], v[j*d:][:d]); math.Abs(x-want) > 1e-13 {
					t.Errorf("d %d: rows %d and %d have the product %g", d, i, j, x)
				}
				if x := dotOf(image, v[j*d:][:d]); i != j && math.Abs(x) > 1e-12 {
					t.Errorf("d %d: %d is mapped onto %d by %g", d, i, j, x)
				}
			}
			if x := dotOf(image, v[i*d:][:d]); x > last {
				t.Errorf("d %d: eigenvalue %d is %g, that before it %g", d, i, x, last)
			} else {
				last = x
			}
		}
	}
}

func dotOf(x, y []float64) (sum float64) {
	for i, a := range x {
		sum += a * y[i]
	}
	return sum
}
