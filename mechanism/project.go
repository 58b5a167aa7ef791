package mechanism

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// projectTokens returns w·X, [rows, b.Stride], for w [rows, D].
func projectTokens[T tensor.Float](b *attention.FeatureBlock[T], w []T, rows int) []T {
	table := kernel.Active[T]()
	u := b.Scratch.Take(rows * b.Stride)
	table.Block(rows, kernel.Pad(b.N), b.D, w, b.D, 1, b.X, b.Stride, u, b.Stride, false)
	return u
}

// projectTokensGrad sets b.DX to wᵀ·du, for w [rows, D] and du [rows, b.Stride].
func projectTokensGrad[T tensor.Float](b *attention.FeatureBlock[T], w []T, rows int, du []T) {
	kernel.Active[T]().Block(b.D, kernel.Pad(b.N), rows, w, 1, b.D, du, b.Stride, b.DX, b.Stride, false)
}
