//go:build !race

package attention

const raced = false
