//go:build race

package calltest

// Raced reports that the race detector is on. Pools then drop some of their elements at
// random, so allocations are not counted.
const Raced = true
