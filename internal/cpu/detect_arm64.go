//go:build !purego

package cpu

// detectSets returns the instruction sets, best first. Every arm64 of Go has NEON.
func detectSets() (sets []string, lacking string) { return []string{NEON, Generic}, "" }
