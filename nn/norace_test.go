//go:build !race

package nn

const raced = false
