package attention

import (
	"math"
	"testing"
)

// The distance of keys of two sequences is the root of the mean of all squares.
func TestDiagnosesMergeDistances(t *testing.T) {
	var d Diagnosis
	d.Merge(&Diagnosis{Rows: 3, KeyDistance: 1}, 0, false)
	if d.KeyDistance != 1 {
		t.Errorf("distance %g after one sequence, want 1", d.KeyDistance)
	}
	d.Merge(&Diagnosis{Rows: 1, KeyDistance: 5}, 3, false)
	if want := math.Sqrt(7); math.Abs(d.KeyDistance-want) > 1e-12 {
		t.Errorf("distance %g, want %g", d.KeyDistance, want)
	}
}
