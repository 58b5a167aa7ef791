//go:build !(amd64 || arm64) || purego

package cpu

import "runtime"

// detectSets returns the instruction sets, best first, and why others are missing.
func detectSets() (sets []string, lacking string) {
	return []string{Generic}, "this build for " + runtime.GOARCH + " has no assembly"
}
