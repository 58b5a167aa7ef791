package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestDropout(t *testing.T) {
	const rows, width, rate = 700, 33, 0.3
	x, base, y := tensor.NewMat(rows, width), tensor.NewMat(rows, width), tensor.NewMat(rows, width)
	for i := range x.Data {
		x.Data[i], base.Data[i] = 1, 2
	}
	d := Dropout{Rate: rate, Key: rng.New(4)}
	defer par.SetThreads(0)
	par.SetThreads(1)
	DropoutForward(d, y, base, x)
	dropped := 0
	for i, v := range y.Data {
		switch v {
		case 2:
			dropped++
		case 2 + float(1/(1-rate)):
		default:
			t.Fatalf("element %d is %v", i, v)
		}
	}
	// Five deviations of as many coins.
	n := float64(len(y.Data))
	if got := float64(dropped); math.Abs(got-rate*n) > 5*math.Sqrt(n*rate*(1-rate)) {
		t.Errorf("%v of %v elements are left out, rate %v", got, n, rate)
	}
	par.SetThreads(2)
	again := tensor.NewMat(rows, width)
	DropoutForward(d, again, base, x)
	if !slices.Equal(y.Data, again.Data) {
		t.Error("two threads leave out other elements than one")
	}
	// What goes back is what went forward.
	DropoutBackward(d, again, x)
	for i := range again.Data {
		if again.Data[i] != y.Data[i]-2 && (again.Data[i] == 0) != (y.Data[i] == 2) {
			t.Fatalf("element %d: forward %v, backward %v", i, y.Data[i]-2, again.Data[i])
		}
	}
}
