//go:build race

package calltest

// Raced reports whether the race detector is on. Pools then drop some of their elements at
// random, so tests do not count allocations.
const Raced = true
