//go:build race

package sessions

// raced reports that the race detector is on, which changes the sizes of objects.
const raced = true
