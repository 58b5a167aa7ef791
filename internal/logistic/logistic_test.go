package logistic

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// newData returns rows of normal numbers, sparse where sparse is set, whose classes follow from a
// random linear map with noise.
func newData(rows, cols, classes int, sparse bool) (*Matrix, []int32) {
	key := rng.New(1)
	x, y := &Matrix{Cols: cols}, make([]int32, rows)
	truth := make([]float64, cols*classes)
	for i := range truth {
		truth[i] = key.Fold(1).Normal(uint64(i))
	}
	for i := range rows {
		var at []int32
		var values []float32
		for j := range cols {
			n := uint64(i*cols + j)
			if sparse && key.Fold(2).Intn(n, 4) > 0 {
				continue
			}
			at, values = append(at, int32(j)), append(values, float32(key.Fold(3).Normal(n)))
		}
		best := math.Inf(-1)
		for c := range classes {
			z := 2 * key.Fold(4).Normal(uint64(i*classes+c))
			for k, j := range at {
				z += float64(values[k]) * truth[int(j)*classes+c]
			}
			if z > best {
				best, y[i] = z, int32(c)
			}
		}
		if !sparse {
			at = nil
		}
		x.Add(at, values)
	}
	return x, y
}

// objective is the textbook objective and its gradient, with weights and bias in one list.
func objective(x *Matrix, y []int32, classes int, penalty float64, w []float64) (value float64, grad []float64) {
	grad = make([]float64, len(w))
	bias := x.Cols * classes
	for i := range x.Rows() {
		cols, values := x.Row(i)
		z, sum := make([]float64, classes), 0.
		for c := range z {
			z[c] = w[bias+c]
			for k, j := range cols {
				z[c] += float64(values[k]) * w[int(j)*classes+c]
			}
			sum += math.Exp(z[c])
		}
		value += (math.Log(sum) - z[y[i]]) / float64(x.Rows())
		for c := range z {
			d := math.Exp(z[c]) / sum
			if c == int(y[i]) {
				d--
			}
			d /= float64(x.Rows())
			grad[bias+c] += d
			for k, j := range cols {
				grad[int(j)*classes+c] += d * float64(values[k])
			}
		}
	}
	for i, v := range w[:bias] {
		value += penalty / 2 * v * v
		grad[i] += penalty * v
	}
	return value, grad
}

func TestGradientIsZeroAtTheSolution(t *testing.T) {
	for _, c := range []struct {
		name                string
		rows, cols, classes int
		sparse              bool
		penalty             float64
	}{
		{"dense", 300, 12, 3, false, 1e-3},
		{"sparse", 500, 40, 5, true, 1e-2},
		{"two classes", 200, 6, 2, false, 1e-4},
		{"more columns than rows", 30, 200, 4, true, 1e-4},
		{"one class of two", 20, 3, 7, false, 1e-2},
	} {
		x, y := newData(c.rows, c.cols, c.classes, c.sparse)
		p, err := NewProblem(x, y, c.classes)
		if err != nil {
			t.Fatal(err)
		}
		m, err := p.Fit(c.penalty, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		w := slices.Concat(m.Weights, m.Bias)
		_, at0 := objective(x, y, c.classes, c.penalty, make([]float64, len(w)))
		value, grad := objective(x, y, c.classes, c.penalty, w)
		if norm(grad) > 2*tolerance*norm(at0) {
			t.Errorf("%s: the gradient is %g, was %g at 0", c.name, norm(grad), norm(at0))
		}
		// The objective is convex: no other point is lower.
		for n := range 20 {
			other := slices.Clone(w)
			for i := range other {
				other[i] += 0.01 * rng.New(uint64(n)).Normal(uint64(i))
			}
			if v, _ := objective(x, y, c.classes, c.penalty, other); v < value {
				t.Errorf("%s: %g near the solution, %g at it", c.name, v, value)
			}
		}
		if loss := m.Loss(x, y) + c.penalty/2*dot(m.Weights, m.Weights); math.Abs(loss-value) > 1e-12*(1+value) {
			t.Errorf("%s: Loss is %g, of the textbook %g", c.name, loss, value)
		}
	}
}

func TestBitsDoNotDependOnThreadsOrStart(t *testing.T) {
	x, y := newData(2000, 60, 6, true)
	p, err := NewProblem(x, y, 6)
	if err != nil {
		t.Fatal(err)
	}
	fit := func() *Model {
		m, err := p.Fit(1e-3, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a := fit()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if b := fit(); !slices.Equal(a.Weights, b.Weights) || !slices.Equal(a.Bias, b.Bias) {
		t.Error("one thread gives other bits")
	}
	warm, err := p.Fit(1e-3, a)
	if err != nil || !slices.Equal(a.Weights, warm.Weights) {
		t.Errorf("a solution is not its own solution: %v", err)
	}
}

func TestFitBestTakesTheStrengthOfHeldOutRows(t *testing.T) {
	// Few rows of many columns need a stronger penalty than many rows of few.
	choose := func(rows, cols int) float64 {
		x, y := newData(rows, cols, 3, false)
		var held []int
		for i := 0; i < rows; i += 5 {
			held = append(held, i)
		}
		m, c, err := FitBest(x, y, 3, held)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Weights) != cols*3 {
			t.Errorf("%d weights for %d columns", len(m.Weights), cols)
		}
		return c.Penalty / float64(rows)
	}
	if few, many := choose(60, 60), choose(3000, 4); few <= many {
		t.Errorf("penalty %g of the mean for 60 rows with 60 columns, %g for 3000 with 4", few, many)
	}
	x, y := newData(10, 2, 2, false)
	if _, c, err := FitBest(x, y, 2, nil); err != nil || c.Penalty != 1 {
		t.Errorf("without held-out rows: penalty %g, error %v", c.Penalty, err)
	}
	if _, _, err := FitBest(x, y, 2, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); err == nil {
		t.Error("all rows are held out: no error")
	}
}

func TestNewProblemRefusesWrongClasses(t *testing.T) {
	x, y := newData(4, 2, 2, false)
	for _, bad := range [][]int32{nil, {0, 1, 0}, {0, 1, 2, 0}, {0, -1, 0, 0}} {
		if _, err := NewProblem(x, bad, 2); err == nil {
			t.Errorf("classes %v: no error", bad)
		}
	}
	if _, err := NewProblem(x, y, 2); err != nil {
		t.Error(err)
	}
}
