package optim

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// weights has one weight that decays and one that does not.
func weights[T tensor.Float](n int) *param.Set[T] {
	var s param.Set[T]
	key := rng.New(7)
	for i, decay := range []bool{true, false} {
		p := s.New([]string{"matrix", "gain"}[i], decay, n)
		for j := range p.Data {
			p.Data[j] = T(key.Fold(uint64(i)).Normal(uint64(j)))
		}
	}
	return &s
}

func fillGrad[T tensor.Float](s *param.Set[T], step int) {
	key := rng.New(8).Fold(uint64(step))
	for i, p := range s.All() {
		for j := range p.Grad {
			p.Grad[j] = T(key.Fold(uint64(i)).Normal(uint64(j)))
		}
	}
}

// Algorithm 2 of the paper, line by line.
func TestAdamWIsTheAlgorithm(t *testing.T) {
	const n, rate, scale, decay = 37, 0.01, 0.5, 0.1
	s := weights[float64](n)
	a := NewAdamW(s)
	a.Decay = decay
	want := weights[float64](n)
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
	s, want := weights[float64](n), weights[float64](n)
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

// Single precision follows double within the roundings of five steps.
func TestAdamWInSinglePrecision(t *testing.T) {
	a32, a64 := weights[float32](101), weights[float64](101)
	o32, o64 := NewAdamW(a32), NewAdamW(a64)
	for step := range 5 {
		fillGrad(a32, step)
		fillGrad(a64, step)
		o32.Step(0.01, 1)
		o64.Step(0.01, 1)
	}
	for i, p := range a64.All() {
		for j, w := range p.Data {
			got := float64(a32.All()[i].Data[j])
			// Each step moves by about the rate, known to a few roundings of it,
			// and is then rounded to the weight's own precision.
			if d := math.Abs(got - w); !(d <= 6*0x1p-24*math.Abs(w)+5*0.01*64*0x1p-24) {
				t.Errorf("%s[%d] is %v, want %v", p.Name, j, got, w)
			}
		}
	}
}

func TestStepDoesNotDependOnThreads(t *testing.T) {
	defer par.SetThreads(0)
	run := func(threads int) []float32 {
		par.SetThreads(threads)
		s := weights[float32](3*pieceSize + 11)
		a := NewAdamW(s)
		for step := range 3 {
			fillGrad(s, step)
			a.Step(0.01, 1)
		}
		return s.All()[0].Data
	}
	if !slices.Equal(run(1), run(3)) {
		t.Error("weights differ")
	}
}

func TestRestoreContinues(t *testing.T) {
	whole, first := weights[float32](23), weights[float32](23)
	a, b := NewAdamW(whole), NewAdamW(first)
	for step := range 4 {
		fillGrad(whole, step)
		a.Step(0.01, 1)
		if step < 2 {
			fillGrad(first, step)
			b.Step(0.01, 1)
		}
	}
	c := NewAdamW(first)
	for i, m := range b.Moments() {
		copy(c.Moments()[i].M, m.M)
		copy(c.Moments()[i].V, m.V)
	}
	if err := c.Restore(b.Steps()); err != nil {
		t.Fatal(err)
	}
	for step := 2; step < 4; step++ {
		fillGrad(first, step)
		c.Step(0.01, 1)
	}
	for i, p := range whole.All() {
		if !slices.Equal(p.Data, first.All()[i].Data) {
			t.Errorf("%s differs from the uninterrupted run", p.Name)
		}
	}
	if err := c.Restore(-1); err == nil {
		t.Error("a negative number of steps is accepted")
	}
}

func TestGradNormAndClip(t *testing.T) {
	var s param.Set[float32]
	copy(s.New("a", true, 5).Grad, []float32{1, -2, 3, -4, 5})
	copy(s.New("b", true, 2).Grad, []float32{6, 3})
	norm := GradNorm(&s)
	if norm != 10 {
		t.Errorf("norm is %v, want 10", norm)
	}
	for _, c := range []struct{ limit, want float64 }{{0, 1}, {5, 0.5}, {10, 1}, {20, 1}} {
		if got := ClipFactor(norm, c.limit); got != c.want {
			t.Errorf("limit %v: factor %v, want %v", c.limit, got, c.want)
		}
	}
	var long param.Set[float64] // whose squares overflow
	grad := long.New("a", true, 2).Grad
	for _, c := range []struct{ x, y, want float64 }{{3 * 0x1p600, -4 * 0x1p600, 5 * 0x1p600}, {math.Inf(-1), 1, math.Inf(1)}} {
		grad[0], grad[1] = c.x, c.y
		if norm := GradNorm(&long); math.Abs(norm-c.want) > 1e-15*c.want {
			t.Errorf("norm of %v and %v is %v, want %v", c.x, c.y, norm, c.want)
		}
	}
}

func TestSchedules(t *testing.T) {
	c := Cosine{Peak: 1, Floor: 0.1, WarmUp: 4, Steps: 14}
	for _, x := range []struct {
		step int
		want float64
	}{{0, 0.25}, {3, 1}, {4, 1}, {9, 0.55}, {14, 0.1}, {1000, 0.1}} {
		if got := c.Rate(x.step); math.Abs(got-x.want) > 1e-15 {
			t.Errorf("step %d: rate %v, want %v", x.step, got, x.want)
		}
	}
	l := Linear{Peak: 1, Floor: 0.1, WarmUp: 4, Steps: 14}
	for _, x := range []struct {
		step int
		want float64
	}{{0, 0.25}, {3, 1}, {4, 1}, {9, 0.55}, {12, 0.28}, {14, 0.1}, {1000, 0.1}} {
		if got := l.Rate(x.step); math.Abs(got-x.want) > 1e-15 {
			t.Errorf("linear, step %d: rate %v, want %v", x.step, got, x.want)
		}
	}
	if got := Constant(0.3).Rate(12345); got != 0.3 {
		t.Errorf("constant rate is %v", got)
	}
	for _, c := range []Cosine{{Peak: 1, Steps: 3}, {Peak: 1, WarmUp: 3, Steps: 3}, {Peak: 1}} {
		for step := range 5 {
			if r := c.Rate(step); math.IsNaN(r) || r < 0 || r > 1 {
				t.Errorf("%+v: rate of step %d is %v", c, step, r)
			}
		}
	}
}
