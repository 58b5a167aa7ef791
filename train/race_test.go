//go:build race

package train

// raced reports the race detector, under which pools drop some of their items, so that
// counts of allocations mean nothing.
const raced = true
