package entry

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// ProjectTokens returns w·X [rows, b.Stride] in scratch memory, for w [rows, D] and the tokens
// X [D, b.Stride] of a block.
func ProjectTokens(b *attention.FeatureBlock, w []float, rows int) []float {
	table := kernel.Active[float]()
	u := b.Scratch.Take(rows * b.Stride)
	table.Block(rows, kernel.Pad(b.N), b.D, w, b.D, 1, b.X, b.Stride, u, b.Stride, false)
	return u
}

// ProjectTokensGrad sets b.DX to wᵀ·du, for w [rows, D] and du [rows, b.Stride].
func ProjectTokensGrad(b *attention.FeatureBlock, w []float, rows int, du []float) {
	kernel.Active[float]().Block(b.D, kernel.Pad(b.N), rows, w, 1, b.D, du, b.Stride, b.DX, b.Stride, false)
}
