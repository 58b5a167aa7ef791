//go:build race

package bench

// raced is set under the race detector, where pools drop some of their objects, so that
// allocations mean nothing.
const raced = true
