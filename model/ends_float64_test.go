//go:build float64

package model

import (
	"testing"
)

// A sequence without a valid position is pooled to zeros, and the rest of the batch
// does not mind.
func TestEmptySequences(t *testing.T) {
	for _, name := range []string{"mean", "cls", "last encoder", "net of classes"} {
		c := cases()[name]
		b := batch(c, 1, 2, 4, false)
		b.Lens = []int64{0, 4}
		m := made(t, c)
		got := logits(t, m, b)
		for i, x := range got {
			if x-x != 0 {
				t.Fatalf("%s: logit %d is %v", name, i, x)
			}
		}
		againstSlopes(t, m, b)
	}
}
