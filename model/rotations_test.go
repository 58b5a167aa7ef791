package model

import (
	"math"
	"testing"
)

// longRope is a decoder whose rotations become others after 6 tokens.
func longRope() Config {
	return with(llama(), func(c *Config) {
		c.Context, c.HeadWidth = 12, 4
		c.RopeScaling = &RopeScaling{Kind: LongScaling, Factor: 2, OriginalContext: 6, ShortFactors: []float64{1, 1.5}, LongFactors: []float64{2, 9}}
	})
}

// Where the fraction is of an odd number of channels, one more is rotated.
func TestOddChannelsAreRotatedInPairs(t *testing.T) {
	c := with(cases()["phi"], func(c *Config) { c.RopeFraction = 0.625 })
	turns := c.rotations()
	d := float64(c.rotatedWidth())
	f := turns.plain[globalRotation].Pairs
	if c.rotatedWidth()%2 == 0 || len(f) != c.rotatedWidth()/2+1 {
		t.Fatalf("%d of %d channels have %d frequencies", c.rotatedWidth(), c.headWidth(), len(f))
	}
	for j, got := range f {
		if want := math.Pow(c.ropeBase(), -2*float64(j)/d); got != want {
			t.Errorf("frequency %d is %g, want %g", j, got, want)
		}
	}
}
