package report

import "testing"

// A figure of one small number has an axis about it that stays positive.
func TestAxisOfOneNumber(t *testing.T) {
	for _, c := range []struct{ x, low, high float64 }{{0.04, 0.02, 0.06}, {-3, -4.5, -1.5}, {0, -0.5, 0.5}} {
		a := axis{min: c.x, max: c.x}
		if a.addTicks(nil); a.min != c.low || a.max != c.high {
			t.Errorf("about %g: from %g to %g, want %g to %g", c.x, a.min, a.max, c.low, c.high)
		}
	}
}
