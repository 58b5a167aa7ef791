//go:build !float64

package mechanism

import "testing"

// derivatives needs more digits than float32 has: the law is checked with -tags float64. It does not
// skip, because the matrix of laws is compared if every law was held.
func derivatives(t *testing.T, _ subject) {
	t.Log("finite differences need -tags float64")
}
