//go:build !float64

package mechanism

import "testing"

// derivatives needs more digits than float32 has: the law is checked with -tags float64.
func derivatives(t *testing.T, _ subject) {
	t.Skip("finite differences need -tags float64")
}
