//go:build !race

package calltest

const Raced = false
