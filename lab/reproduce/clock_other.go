//go:build !linux

package reproduce

// processorSeconds returns 0: it is not known here.
func processorSeconds() float64 { return 0 }
