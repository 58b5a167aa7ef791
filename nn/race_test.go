//go:build race

package nn

// raced says that the race detector is on, under which pools give back only
// some of their memory, so that allocations are not counted.
const raced = true
