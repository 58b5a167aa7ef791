//go:build !race

package factorised

const raced = false
