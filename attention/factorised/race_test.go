//go:build race

package factorised

// raced reports that the race detector is on. Pools then drop some of their elements at
// random, so allocations are not counted.
const raced = true
