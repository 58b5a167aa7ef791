//go:build !(amd64 || arm64) || purego

package cpu

import "runtime"

// detect returns the instruction sets, best first, and why any is missing.
func detect() (sets []string, lacking string) {
	return []string{Generic}, "this build for " + runtime.GOARCH + " has no assembly"
}
