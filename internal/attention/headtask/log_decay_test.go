package headtask

import (
	"math"
	"testing"
)

// What rounding leaves out of sums of log_g is not lost: after a key that took 1e12,
// sums of a million small ones are right to the last digits.
func TestSumsOfLogGKeepWhatRoundingLeavesOut(t *testing.T) {
	const n, rate = 1 << 20, -0x1p-30 / 3
	a := HeapAges(n + 1)
	a.Add(-1e12, true)
	for range n {
		a.Add(rate, true)
	}
	for _, tokens := range []int{1, 1000, n} {
		if got, want := a.SumBetween(0, tokens), rate*float64(tokens); math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%d tokens of %g: the sum is %g, want %g", tokens, rate, got, want)
		}
	}
}
