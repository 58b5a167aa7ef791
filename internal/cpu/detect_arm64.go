//go:build !purego

package cpu

// detect returns the instruction sets, best first, and why any is missing: Go's
// arm64 has NEON.
func detect() (sets []string, lacking string) { return []string{NEON, Generic}, "" }
