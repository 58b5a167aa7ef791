//go:build float64

package oracle

import "github.com/farfield-ml/farfield/tensor"

type (
	// Heads is tensor.Heads in float64.
	Heads = tensor.Heads
	// Mat is tensor.Mat in float64.
	Mat = tensor.Mat
)

// NewMat returns a zeroed matrix.
func NewMat(rows, cols int) Mat { return tensor.NewMat(rows, cols) }

// NewHeads returns zeroed heads in the order [B,H,N,D].
func NewHeads(b, h, n, d int) Heads { return tensor.NewHeads(b, h, n, d) }

// HeadsOf views data as contiguous [B,H,N,D].
func HeadsOf(data []float64, b, h, n, d int) Heads { return tensor.HeadsOf(data, b, h, n, d) }
