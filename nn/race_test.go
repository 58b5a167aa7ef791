//go:build race

package nn

// raced says that the race detector is on, under which pools give back only
// some of what they were given, and allocations tell nothing.
const raced = true
