//go:build float64

package mechanism

import (
	"math"
	"testing"
)

// wholeDerivatives is derivatives for a mechanism that computes whole heads: of
// every element, with heads that share keys and keys that do not exist.
func wholeDerivatives(t *testing.T, s subject) {
	for i, sh := range []shape{
		{b: 1, h: 2, hkv: 1, n: 3, m: 4, d: 5, dv: 2, causal: true},
		{b: 2, h: 2, hkv: 2, n: 5, m: 6, d: 3, dv: 2, mask: true},
	} {
		oc, do := s.fit(sh).call(77 + uint64(i))
		m, book := build(t, s, 2)
		differences(t, book, oc, do, gradients(t, m, book, oc, do), math.MaxInt, nil)
	}
}
