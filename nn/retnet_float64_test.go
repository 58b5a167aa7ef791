//go:build float64

package nn

import (
	"math"
	"math/cmplx"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// retained is the layer as arXiv 2307.08621 writes it in eq. 1 to 8: pairs of
// channels as complex numbers that are turned by the place, and the sum over all
// tokens before, in float64.
func retained(m *msr, x tensor.Mat) tensor.Mat {
	affine := func(l *Linear, x []float64) []float64 {
		y := make([]float64, l.W.Shape[0])
		for i := range y {
			for j, a := range x {
				y[i] += l.W.Data[i*len(x)+j] * a
			}
			if l.B != nil {
				y[i] += l.B.Data[i]
			}
		}
		return y
	}
	half := m.D / 2
	pairs := func(x []float64, h, place int) []complex128 {
		z := make([]complex128, half)
		for j := range z {
			angle := float64(place)
			if half > 1 {
				angle *= math.Pow(10000, -float64(j)/float64(half-1))
			}
			z[j] = complex(x[h*m.D+j], x[h*m.D+half+j]) * cmplx.Rect(1, angle)
		}
		return z
	}
	y := tensor.NewMat(x.Rows, x.Cols)
	var keys, values [][]float64
	for i := range x.Rows {
		q, g := affine(&m.Q, x.Row(i)), affine(&m.G, x.Row(i))
		keys, values = append(keys, affine(&m.K, x.Row(i))), append(values, affine(&m.V, x.Row(i)))
		u := make([]float64, m.H*m.P)
		for h := range m.H {
			o := u[h*m.P:][:m.P]
			turned := pairs(q, h, i)
			for j := range i + 1 {
				var score complex128
				for c, key := range pairs(keys[j], h, j) {
					score += turned[c] * cmplx.Conj(key)
				}
				product := real(score)
				if m.D%2 == 1 { // the last channel stays
					product += q[(h+1)*m.D-1] * keys[j][(h+1)*m.D-1]
				}
				w := product / math.Sqrt(float64(m.D)) * math.Pow(1-math.Exp2(float64(-5-h)), float64(i-j))
				for p := range o {
					o[p] += w * values[j][h*m.P+p]
				}
			}
			var mean, square float64
			for _, v := range o {
				mean += v / float64(m.P)
			}
			if !m.Centred {
				mean = 0
			}
			for _, v := range o {
				square += (v - mean) * (v - mean) / float64(m.P)
			}
			for p := range o {
				z := g[h*m.P+p]
				o[p] = (o[p] - mean) / math.Sqrt(square+m.Eps) * z / (1 + math.Exp(-z))
			}
		}
		copy(y.Row(i), affine(&m.Out, u))
	}
	return y
}

func TestRetNetIsItsSum(t *testing.T) {
	for _, x := range subjects() {
		if x.name != "retnet" {
			continue
		}
		for _, n := range []int{1, 2, 70, 500} {
			m, _ := built(t, x, n)
			in := matrix(&source{key: rng.New(71)}, n, x.width)
			want := retained(m.(*msr), in)
			got := mixed(t, m, in, Scope{B: 1, Causal: true})
			if r := check.ErrorRatio(got.Data, want.Data, 1e-12*check.MaxAbs(want.Data)); !(r <= 1) {
				t.Errorf("%v, %d tokens: errs by %.3g of 1e-12", x, n, r)
			}
		}
	}
}

// Heads of every width turn their first pair by 1 with each token and the last by
// 1/10000.
func TestRotationsOfRetNet(t *testing.T) {
	for _, d := range []int{1, 2, 3, 4, 5, 16, 65} {
		var tr msrTrace
		r := tr.ropeFrom(d, 7, 2)
		if r.Half != d/2 {
			t.Fatalf("width %d: %d pairs", d, r.Half)
		}
		for j := range r.Half {
			freq := 1.0
			if r.Half > 1 {
				freq = math.Pow(10000, -float64(j)/float64(r.Half-1))
			}
			if s, c := math.Sincos(8 * freq); math.Abs(r.Sin[r.Half+j]-s) > 1e-13 || math.Abs(r.Cos[r.Half+j]-c) > 1e-13 {
				t.Errorf("width %d, pair %d: %v and %v, want %v and %v", d, j, r.Sin[r.Half+j], r.Cos[r.Half+j], s, c)
			}
		}
	}
}
