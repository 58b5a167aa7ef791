//go:build float64

package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// textbook is the layer as arXiv 2302.10866 writes it, in float64 and O(N²).
func textbook(m *hyenaLayer, x tensor.Mat) tensor.Mat {
	affine := func(l *Linear, x tensor.Mat) tensor.Mat {
		y := tensor.NewMat(x.Rows, l.W.Shape[0])
		for i := range y.Rows {
			for j := range y.Cols {
				for k, a := range x.Row(i) {
					y.Row(i)[j] += l.W.Data[j*x.Cols+k] * a
				}
				if l.B != nil {
					y.Row(i)[j] += l.B.Data[j]
				}
			}
		}
		return y
	}
	n, w, f := x.Rows, x.Cols, &m.Filter
	mixed := affine(&m.In, x)
	proj := tensor.NewMat(n, mixed.Cols)
	copyRows(proj, mixed)
	for i := range n {
		for c := range mixed.Cols {
			sum := m.Conv.B.Data[c]
			for k := range min(m.Conv.countTaps(), i+1) {
				sum += m.Conv.W.Data[k*mixed.Cols+c] * proj.Row(i - k)[c]
			}
			mixed.Row(i)[c] = sum
		}
	}
	bands := (f.Features - 1) / 2
	e := tensor.NewMat(n, f.Features)
	for i := range n {
		e.Row(i)[0] = float64(i) / float64(f.Context-1)
		for j := range bands {
			freq := 1e-4
			if bands > 1 {
				freq += float64(j) * (float64(bands) - 1 - 1e-4) / (float64(bands) - 1)
			}
			angle := freq * 2 * math.Pi * float64(i) / float64(f.Context)
			e.Row(i)[1+j], e.Row(i)[1+bands+j] = math.Cos(angle), -math.Sin(angle)
		}
	}
	for l := range f.Hidden {
		e = affine(&f.Hidden[l], e)
		for i := range n {
			for j := range e.Row(i) {
				e.Row(i)[j] = math.Sin(f.Freq.Data[j] * e.Row(i)[j])
			}
		}
	}
	h := affine(&f.Out, e)
	for i := range n {
		for c := range h.Cols {
			slow, fast := math.Log(100)/1.5, math.Log(100)/0.3
			h.Row(i)[c] *= math.Exp(-float64(i) / float64(f.Context-1) * (slow + (fast-slow)*float64(c%w)/float64(w-1)))
		}
	}
	z := tensor.NewMat(n, w)
	copyRows(z, m.partOf(mixed, 0))
	for g := range m.Order {
		if k := g - m.Direct; k >= 0 {
			z, _ = directConv(z, m.partOf(h, k), m.skipWeights(m.D.Data, k), 1)
		}
		for i := range n {
			for c, x := range m.partOf(mixed, 1+g).Row(i) {
				z.Row(i)[c] *= x
			}
		}
	}
	return affine(&m.Out, z)
}

func TestHyenaIsItsDefinition(t *testing.T) {
	for _, x := range subjects() {
		if x.name != "hyena" {
			continue
		}
		for _, n := range []int{2, 70, 300} {
			m, _ := built(t, x, n)
			in := matrix(&source{key: rng.New(91)}, n, x.width)
			want := textbook(m.(*hyenaLayer), in)
			got := mixed(t, m, in, Scope{B: 1, Causal: true})
			if r := check.ErrorRatio(got.Data, want.Data, 1e-12*check.MaxAbs(want.Data)); !(r <= 1) {
				t.Errorf("%v, %d tokens: errs by %.3g of 1e-12", x, n, r)
			}
		}
	}
}

// Filters go on beyond the context that the model was trained on.
func TestHyenaGoesBeyondItsContext(t *testing.T) {
	x := subject{"hyena", map[string]string{"filter": "5", "features": "5", "freq": "1"}, 4, 1}
	m, _ := built(t, x, 20)
	in := matrix(&source{key: rng.New(93)}, 50, x.width)
	want := textbook(m.(*hyenaLayer), in)
	state, err := m.NewState(1)
	if err != nil {
		t.Fatal(err)
	}
	got := feed(t, m, state, false, in, 1, 0, 50)
	if r := check.ErrorRatio(got.Data, want.Data, 1e-12*check.MaxAbs(want.Data)); !(r <= 1) {
		t.Errorf("errs by %.3g of 1e-12", r)
	}
}

// A restored state makes the filters of all its places, in memory that does not grow with them.
func TestHyenaMakesFiltersInParts(t *testing.T) {
	x := subject{"hyena", map[string]string{"filter": "5", "features": "5", "freq": "1"}, 4, 1}
	b, _ := built(t, x, 20)
	m, n := b.(*hyenaLayer), 2*filterPlaces+3
	var tr hyenaTrace
	state := m.newState(1)
	state.tokens = int64(n - 1)
	got, places := state.extendFilters(m, 1, &tr), cap(tr.filter.features)/m.Filter.Features
	if want := m.Filter.Forward(0, n, &tr.filter); !slices.Equal(got.Data, want.Data) {
		t.Error("filters made in parts differ from filters made at once")
	}
	if places > 2*filterPlaces {
		t.Errorf("memory of %d places is kept, of %d at most is needed", places, filterPlaces)
	}
}
