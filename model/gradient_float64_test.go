//go:build float64

package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// slope is the derivative of the loss along a direction of p, by a central
// difference of fourth order. A loss of about 3 is rounded by 2⁻⁵², so the
// slope is known to about 1e-15/step; its truncation, of order step⁴, is far
// below.
func slope(t testing.TB, m *Model, b *Batch, p *param.Param, direction []float64) float64 {
	const step = 1e-5
	start := slices.Clone(p.Data)
	at := func(x float64) float64 {
		for i, d := range direction {
			p.Data[i] = start[i] + x*step*d
		}
		return loss(t, m, b)
	}
	s := (8*(at(1)-at(-1)) - (at(2) - at(-2))) / (12 * step)
	copy(p.Data, start)
	return s
}

// wrong returns the error of a gradient along directions of length 1, in units of the
// tolerance of slope. A larger loss has a larger rounding error.
func wrong(got, want, norm, loss float64) float64 {
	return math.Abs(got-want) / (2e-10*max(1, loss/3) + 2e-9*norm)
}

func dot(x, y []float64) (s float64) {
	for i := range x {
		s += x[i] * y[i]
	}
	return s
}

// againstSlopes holds every weight's gradient against slopes along random
// directions, in which every element has a part.
func againstSlopes(t *testing.T, m *Model, b *Batch) {
	t.Helper()
	l := loss(t, m, b)
	if m.config.Loss == Logistics {
		l *= 2 // a difference of two rounded logarithms
	}
	backward(t, m)
	for i, p := range m.Params().All() {
		for try := range 2 {
			direction := make([]float64, len(p.Data))
			for j := range direction {
				direction[j] = rng.New(uint64(try)).Fold(uint64(i)).Normal(uint64(j))
			}
			length := math.Sqrt(dot(direction, direction))
			for j := range direction {
				direction[j] /= length
			}
			got, want := dot(p.Grad, direction), slope(t, m, b, p, direction)
			if r := wrong(got, want, math.Sqrt(dot(p.Grad, p.Grad)), l); !(r <= 1) {
				t.Errorf("%s: slope is %v, want %v (%.3g times what is allowed)", p.Name, got, want, r)
			}
		}
	}
}

func TestGradients(t *testing.T) {
	for name, c := range cases() {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s padded=%t", name, padded), func(t *testing.T) {
				t.Parallel()
				againstSlopes(t, made(t, c), batch(c, 1, 2, 5, padded))
			})
		}
	}
}

// In one model every element is held against its own slope.
func TestGradientOfEveryElement(t *testing.T) {
	c := tiny(Decoder, "taylorshift")
	m := made(t, c)
	b := batch(c, 1, 2, 5, true)
	l := loss(t, m, b)
	backward(t, m)
	for _, p := range m.Params().All() {
		norm := math.Sqrt(dot(p.Grad, p.Grad))
		direction := make([]float64, len(p.Data))
		for i, got := range p.Grad {
			direction[i] = 1
			want := slope(t, m, b, p, direction)
			direction[i] = 0
			if r := wrong(got, want, norm, l); !(r <= 1) {
				t.Errorf("%s[%d]: slope is %v, want %v (%.3g times what is allowed)", p.Name, i, got, want, r)
			}
		}
	}
}

func TestBackwardAdds(t *testing.T) {
	c := tiny(Decoder, "fastmax")
	m := made(t, c)
	b := batch(c, 1, 2, 5, false)
	loss(t, m, b)
	backward(t, m)
	once := map[string][]float64{}
	for _, p := range m.Params().All() {
		once[p.Name] = append([]float64{}, p.Grad...)
	}
	loss(t, m, b)
	if err := m.Backward(0.5); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params().All() {
		for i, g := range p.Grad {
			if d := math.Abs(g - 1.5*once[p.Name][i]); !(d <= 1e-14*(1+check.MaxAbs(once[p.Name]))) {
				t.Fatalf("%s[%d] is %v, once it was %v", p.Name, i, g, once[p.Name][i])
			}
		}
	}
	if err := m.Backward(1); err == nil {
		t.Error("a second Backward is accepted")
	}
}
