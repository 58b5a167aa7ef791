//go:build !purego

package cpu

// detectSets returns the instruction sets, best first, and why any is missing: Go's
// arm64 has NEON.
func detectSets() (sets []string, lacking string) { return []string{NEON, Generic}, "" }
