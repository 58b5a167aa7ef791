package reproduce

import (
	"context"
	"testing"
)

// Both ways to carry sums stay within their bounds. The bound of rounded sums grows with
// the tokens, and the final outputs of compensated sums are nearer.
func TestCarry(t *testing.T) {
	c := carryConfig{fastmax2, 4, 1 << 10, 1 << 19, 16, 7}
	list, err := c.run(&Work{Ctx: context.Background()})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 10 || list[0].N != c.First || list[9].N != c.Last {
		t.Fatalf("lengths are %+v", list)
	}
	for _, x := range list {
		if x.Rounded <= 0 || x.Rounded > x.RoundedBound || x.Compensated <= 0 || x.Compensated > x.CompensatedBound {
			t.Errorf("%d tokens: %+v", x.N, x)
		}
	}
	first, last := list[0], list[len(list)-1]
	if last.RoundedBound < 2*first.RoundedBound || last.CompensatedBound > 1.1*first.CompensatedBound {
		t.Errorf("bounds are %g and %g, at first %g and %g", last.RoundedBound, last.CompensatedBound, first.RoundedBound, first.CompensatedBound)
	}
	if last.Rounded < 2*last.Compensated {
		t.Errorf("rounded sums err by %g, compensated ones by %g", last.Rounded, last.Compensated)
	}
}
