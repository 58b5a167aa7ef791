//go:build float64

package nn

import "github.com/farfield-ml/farfield/tensor"

// Weights in fewer bits are those of float32: Reserve refuses them here.

type compression struct {
	w    *Compressed
	rows tensor.Mat
}

func (compression) RunRange(_, _ int) {}

func compressedRow(*Compressed, []float, int) {}

func areCompressed([]rowProduct) bool { return false }

func multiplyCompressed(Activation, ...rowProduct) {}
