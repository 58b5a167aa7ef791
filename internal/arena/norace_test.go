//go:build !race

package arena

const raced = false
