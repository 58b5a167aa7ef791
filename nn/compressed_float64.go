//go:build float64

package nn

import "github.com/farfield-ml/farfield/tensor"

// In this build Reserve returns an error for every precision but Float32, so that no weights are
// compressed and the functions below are not called.

type compression struct {
	w    *Compressed
	rows tensor.Mat
}

func (compression) RunRange(_, _ int) {}

func compressedRow(*Compressed, []float, int) {}

func areCompressed([]rowProduct) bool { return false }

func multiplyCompressed(Activation, ...rowProduct) {}
