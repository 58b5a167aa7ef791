//go:build float64

package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// MSSA is softmax(U x (U x)ᵀ/√D)·U x of each head, projected.
func TestMSSAIsItsDefinition(t *testing.T) {
	const n = 9
	x := subject{"crate", nil, 6, 2}
	m, _ := built(t, x, n)
	l := m.(*mssa)
	in := matrix(&source{key: rng.New(95)}, n, x.width)
	for _, causal := range []bool{false, true} {
		want := tensor.NewMat(n, x.width)
		u := tensor.NewMat(n, x.width)
		for i := range n {
			for j := range x.width {
				for k, v := range in.Row(i) {
					u.Row(i)[j] += l.U.W.Data[j*x.width+k] * v
				}
			}
		}
		for i := range n {
			o := make([]float64, x.width)
			for h := range l.H {
				last, sum := n-1, 0.0
				if causal {
					last = i
				}
				for j := 0; j <= last; j++ {
					var s float64
					for c := h * l.D; c < (h+1)*l.D; c++ {
						s += u.Row(i)[c] * u.Row(j)[c]
					}
					w := math.Exp(s / math.Sqrt(float64(l.D)))
					sum += w
					for c := h * l.D; c < (h+1)*l.D; c++ {
						o[c] += w * u.Row(j)[c]
					}
				}
				for c := h * l.D; c < (h+1)*l.D; c++ {
					o[c] /= sum
				}
			}
			for j := range x.width {
				want.Row(i)[j] = l.O.B.Data[j]
				for c, v := range o {
					want.Row(i)[j] += l.O.W.Data[j*x.width+c] * v
				}
			}
		}
		got := mixed(t, m, in, Scope{B: 1, Causal: causal})
		if r := check.ErrorRatio(got.Data, want.Data, 1e-13*check.MaxAbs(want.Data)); !(r <= 1) {
			t.Errorf("causal=%t: errs by %.3g of 1e-13", causal, r)
		}
	}
}

func TestISTA(t *testing.T) {
	const n, w = 70, 5
	s := &source{key: rng.New(97)}
	m := &ista{D: Linear{W: weight(s, w, w)}, Rate: 0.3, Lambda: 0.2}
	x, dy := matrix(s, n, w), matrix(s, n, w)
	var tr istaTrace
	y := matrix(s, n, w)
	m.Forward(y, y, x, Scope{}, &tr, true)
	var zeros int
	for i := range n {
		r := make([]float64, w)
		for j := range w {
			r[j] = x.Row(i)[j]
			for k, v := range x.Row(i) {
				r[j] -= m.D.W.Data[j*w+k] * v
			}
		}
		for j := range w {
			want := x.Row(i)[j] - 0.3*0.2
			for k, v := range r {
				want += 0.3 * m.D.W.Data[k*w+j] * v
			}
			want = max(want, 0)
			if want == 0 {
				zeros++
			}
			if got := y.Row(i)[j]; math.Abs(got-want) > 1e-13 {
				t.Errorf("row %d, channel %d: %v, want %v", i, j, got, want)
			}
		}
	}
	if zeros == 0 || zeros == n*w {
		t.Errorf("%d of %d numbers are 0", zeros, n*w)
	}
	f := func() float64 {
		y := tensor.NewMat(n, w)
		m.Forward(y, y, x, Scope{}, new(istaTrace), true)
		return sumOf(y, dy)
	}
	dx, kept := tensor.NewMat(n, w), tensor.NewMat(n, w)
	copyRows(kept, dy)
	m.Backward(dx, kept, x, &tr, nil)
	// Steps short enough to stay on one side of max.
	for i := range n {
		if r := check.ErrorRatio(dx.Row(i), check.NumericGradientBy(1e-6, f, x.Row(i)), 1e-6); !(r <= 1) {
			t.Errorf("dx of row %d errs by %.3g of 1e-6", i, r)
		}
	}
	want := check.NumericGradientBy(1e-7, f, m.D.W.Data)
	for j := range want {
		want[j]++
	}
	if r := check.ErrorRatio(m.D.W.Grad, want, 1e-6*check.MaxAbs(want)); !(r <= 1) {
		t.Errorf("the gradient of the dictionary errs by %.3g of 1e-6", r)
	}
}
