package optim

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// weights has one weight that decays and one that does not.
func weights(n int) *param.Set {
	var s param.Set
	key := rng.New(7)
	for i, decay := range []bool{true, false} {
		p := s.New([]string{"matrix", "gain"}[i], decay, n)
		for j := range p.Data {
			p.Data[j] = tensor.Float(key.Fold(uint64(i)).Normal(uint64(j)))
		}
	}
	return &s
}

func fillGrad(s *param.Set, step int) {
	key := rng.New(8).Fold(uint64(step))
	for i, p := range s.All() {
		for j := range p.Grad {
			p.Grad[j] = tensor.Float(key.Fold(uint64(i)).Normal(uint64(j)))
		}
	}
}

// Five steps follow the algorithm in double precision within their roundings.
func TestAdamWFollowsDoublePrecision(t *testing.T) {
	const rate = 0.01
	s := weights(101)
	a := NewAdamW(s)
	all := s.All()
	want, m, v := make([][]float64, len(all)), make([][]float64, len(all)), make([][]float64, len(all))
	for i, p := range all {
		want[i], m[i], v[i] = make([]float64, len(p.Data)), make([]float64, len(p.Data)), make([]float64, len(p.Data))
		for j, w := range p.Data {
			want[i][j] = float64(w)
		}
	}
	for step := range 5 {
		fillGrad(s, step)
		for i, p := range all {
			for j, x := range p.Grad {
				g := float64(x)
				m[i][j] = 0.9*m[i][j] + 0.1*g
				v[i][j] = 0.99*v[i][j] + 0.01*g*g
				mh := m[i][j] / (1 - math.Pow(0.9, float64(step+1)))
				vh := v[i][j] / (1 - math.Pow(0.99, float64(step+1)))
				w := want[i][j]
				want[i][j] -= rate * mh / (math.Sqrt(vh) + 1e-8)
				if p.Decay {
					want[i][j] -= rate * a.Decay * w
				}
			}
		}
		a.Step(rate, 1)
	}
	u := check.UnitRoundoff[tensor.Float]()
	for i, p := range all {
		for j, w := range want[i] {
			got := float64(p.Data[j])
			// Each step moves by about the rate, known to a few roundings of it,
			// and is then rounded to the weight's own precision.
			if d := math.Abs(got - w); !(d <= 6*u*math.Abs(w)+5*rate*64*u) {
				t.Errorf("%s[%d] is %v, want %v", p.Name, j, got, w)
			}
		}
	}
}

func TestRestoreContinues(t *testing.T) {
	whole, first := weights(23), weights(23)
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
	var s param.Set
	copy(s.New("a", true, 5).Grad, []tensor.Float{1, -2, 3, -4, 5})
	copy(s.New("b", true, 2).Grad, []tensor.Float{6, 3})
	norm := GradNorm(&s)
	if norm != 10 {
		t.Errorf("norm is %v, want 10", norm)
	}
	for _, c := range []struct{ limit, want float64 }{{0, 1}, {5, 0.5}, {10, 1}, {20, 1}} {
		if got := ClipFactor(norm, c.limit); got != c.want {
			t.Errorf("limit %v: factor %v, want %v", c.limit, got, c.want)
		}
	}
	var long param.Set // whose squares overflow
	grad := long.New("a", true, 2).Grad
	far := check.Pick(0x1p100, 0x1p600)
	for _, c := range []struct{ x, y, want float64 }{{3 * far, -4 * far, 5 * far}, {math.Inf(-1), 1, math.Inf(1)}} {
		grad[0], grad[1] = tensor.Float(c.x), tensor.Float(c.y)
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

func TestStepDoesNotDependOnThreads(t *testing.T) {
	defer par.SetThreads(0)
	run := func(threads int) []tensor.Float {
		par.SetThreads(threads)
		s := weights(3*pieceSize + 11)
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
