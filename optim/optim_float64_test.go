//go:build float64

package optim

import (
	"math"
	"testing"
)

// Algorithm 2 of the paper, line by line.
func TestAdamWIsTheAlgorithm(t *testing.T) {
	const n, rate, scale, decay = 37, 0.01, 0.5, 0.1
	s := weights(n)
	a := NewAdamW(s)
	a.Decay = decay
	want := weights(n)
	m, v := [2][n]float64{}, [2][n]float64{}
	for step := 1; step <= 5; step++ {
		fillGrad(s, step)
		fillGrad(want, step)
		a.Step(rate, scale)
		for i, p := range want.All() {
			for j := range p.Data {
				g := p.Grad[j] * scale
				m[i][j] = 0.9*m[i][j] + 0.1*g
				v[i][j] = 0.99*v[i][j] + 0.01*g*g
				mh := m[i][j] / (1 - math.Pow(0.9, float64(step)))
				vh := v[i][j] / (1 - math.Pow(0.99, float64(step)))
				w := p.Data[j]
				p.Data[j] -= rate * mh / (math.Sqrt(vh) + 1e-8)
				if i == 0 {
					p.Data[j] -= rate * decay * w
				}
			}
		}
	}
	for i, p := range want.All() {
		got := s.All()[i]
		for j, w := range p.Data {
			if d := math.Abs(got.Data[j] - w); !(d <= 1e-14*math.Max(1, math.Abs(w))) {
				t.Fatalf("%s[%d] is %v, want %v", p.Name, j, got.Data[j], w)
			}
		}
	}
}

// Algorithm 2 of RAdam's paper, line by line, with the first step that divides
// where the authors' program has it.
func TestRAdamIsTheAlgorithm(t *testing.T) {
	const n, rate, beta1, beta2, decay, eps = 23, 0.01, 0.9, 0.99, 0.1, 1e-8
	s, want := weights(n), weights(n)
	a := NewAdamW(s)
	a.Decay, a.Rectified = decay, true
	m, v := [2][n]float64{}, [2][n]float64{}
	divided := 0
	for step := 1; step <= 9; step++ {
		fillGrad(s, step)
		fillGrad(want, step)
		a.Step(rate, 1)
		last := 2/(1-beta2) - 1
		power := math.Pow(beta2, float64(step))
		rho := last - 2*float64(step)*power/(1-power)
		if rho > 5 {
			divided++
		}
		for i, p := range want.All() {
			for j, w := range p.Data {
				g := p.Grad[j]
				m[i][j] = beta1*m[i][j] + (1-beta1)*g
				v[i][j] = beta2*v[i][j] + (1-beta2)*g*g
				mean := m[i][j] / (1 - math.Pow(beta1, float64(step)))
				if i == 0 {
					p.Data[j] -= rate * decay * w
				}
				if rho <= 5 {
					p.Data[j] -= rate * mean
					continue
				}
				r := math.Sqrt((rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho))
				p.Data[j] -= rate * r * mean / (math.Sqrt(v[i][j]/(1-power)) + eps)
			}
		}
	}
	if divided != 4 {
		t.Errorf("%d of 9 steps divide, want 4", divided)
	}
	for i, p := range want.All() {
		got := s.All()[i]
		for j, w := range p.Data {
			if d := math.Abs(got.Data[j] - w); !(d <= 1e-14*math.Max(1, math.Abs(w))) {
				t.Fatalf("%s[%d] is %v, want %v", p.Name, j, got.Data[j], w)
			}
		}
	}
}
