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

// scopes are those that a mixer takes.
func scopes(m Mixer) []Scope {
	var list []Scope
	if x := m.Traits(); x.Causal {
		list = append(list, Scope{B: 2, Causal: true})
	}
	if !m.Traits().CausalOnly {
		list = append(list, Scope{B: 2}, Scope{B: 2, KeyLens: []int64{3, 5}})
	}
	return list
}

func TestGradientsOfMixers(t *testing.T) {
	for _, x := range subjects() {
		const n = 5
		m, weights := built(t, x, n)
		for _, scope := range scopes(m) {
			s := &source{key: rng.New(31)}
			in, dy := matrix(s, 2*n, x.width), matrix(s, 2*n, x.width)
			dx := matrix(s, 2*n, x.width)
			tr := m.NewTrace()
			f := func() float64 {
				y := tensor.NewMat(2*n, x.width)
				if err := m.Forward(y, y, in, scope, tr, true); err != nil {
					t.Fatal(err)
				}
				return sumOf(y, dy)
			}
			f()
			for _, p := range weights {
				for i := range p.Grad {
					p.Grad[i] = 1 // is added to
				}
			}
			if err := m.Backward(dx, dy, in, tr, new(Scratch)); err != nil {
				t.Fatal(err)
			}
			near := func(what string, got, want []float64) {
				t.Helper()
				if r := check.ErrorRatio(got, want, 1e-7*max(1, check.MaxAbs(want))); !(r <= 1) {
					t.Errorf("%v causal=%t %s: gradient errs by %.3g of its largest", x, scope.Causal, what, r*1e-7)
				}
			}
			for i := range in.Rows {
				near("dx", dx.Row(i), check.NumericGradient(f, in.Row(i)))
			}
			for _, p := range weights {
				want := check.NumericGradient(f, p.Data)
				for j := range want {
					want[j]++
				}
				near(p.Name, p.Grad, want)
			}
		}
	}
}

// Over sequences of many chunks, where other forms run, along directions in which
// every element has a part.
func TestGradientsOfMixersOverChunks(t *testing.T) {
	for _, x := range subjects() {
		const n = 230
		m, weights := built(t, x, n)
		s := &source{key: rng.New(33)}
		in, dy := matrix(s, n, x.width), matrix(s, n, x.width)
		dx, y, tr := tensor.NewMat(n, x.width), tensor.NewMat(n, x.width), m.NewTrace()
		f := func() float64 {
			clear(y.Data)
			if err := m.Forward(y, y, in, Scope{B: 1, Causal: m.Traits().Causal}, tr, true); err != nil {
				t.Fatal(err)
			}
			return sumOf(y, dy)
		}
		f()
		if err := m.Backward(dx, dy, in, tr, new(Scratch)); err != nil {
			t.Fatal(err)
		}
		slope := func(what string, data, grad []float64) {
			t.Helper()
			from, way := slices.Clone(data), make([]float64, len(data))
			var got, length float64
			for i := range way {
				way[i] = s.normal() / math.Sqrt(float64(len(way)))
				got += way[i] * grad[i]
				length += grad[i] * grad[i]
			}
			at := []float64{0}
			want := check.NumericGradientBy(1e-4, func() float64 {
				for i := range data {
					data[i] = from[i] + at[0]*way[i]
				}
				return f()
			}, at)[0]
			copy(data, from)
			if d := math.Abs(got - want); !(d <= 1e-7*(1+math.Sqrt(length))) {
				t.Errorf("%v %s: slope is %v, want %v", x, what, got, want)
			}
		}
		data := flat(in)
		grad := flat(dx)
		strided := in
		in = viewMatrix(data, n, x.width)
		slope("dx", data, grad)
		in = strided
		for _, p := range weights {
			slope(p.Name, p.Data, p.Grad)
		}
	}
}
