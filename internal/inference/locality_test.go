package inference

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

func TestLocate(t *testing.T) {
	a := tensor.Mat{Rows: 3, Cols: 4, Stride: 4, Data: []float32{
		0, 1, 0, 0, // at its place
		0, 0, 0, 0, // sees nothing
		0, 0.5, 0, -0.5, // half two tokens away, half at its place
	}}
	got := Locate(a, 1)
	want := Locality{Queries: 2, Entropy: math.Ln2 / 2, Distance: 0.5, Diagonal: 0.75, Column: 0.75, ColumnAt: 1}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Locate(a.Slice(1, 2), 2); got != (Locality{}) {
		t.Errorf("of no weight: %+v", got)
	}
}
