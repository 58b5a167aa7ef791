package runs

import (
	"math"
	"testing"
)

// Quantiles are those of tables of Student's t.
func TestCriticalFactorIsTheQuantileOfStudent(t *testing.T) {
	for _, c := range []struct {
		freedom     float64
		comparisons int
		want        float64
	}{
		{1, 1, 12.706}, {2, 1, 4.303}, {3, 1, 3.182}, {4, 1, 2.776}, {9, 1, 2.262}, {10, 1, 2.228}, {30, 1, 2.042},
		{2.9, 1, 4.303}, {2, 5, 9.925}, {10, 10, 3.581}, {math.Inf(1), 10, 2.807}, {math.Inf(1), 1, 2}, {0, 1, 12.706},
	} {
		if got := criticalFactor(c.freedom, c.comparisons); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%v degrees of freedom, %d comparisons: %.4f, want %.3f", c.freedom, c.comparisons, got, c.want)
		}
	}
}
