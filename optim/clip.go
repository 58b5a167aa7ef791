package optim

import (
	"math"

	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// GradNorm returns the 2-norm of all gradients together, summed in float64 in
// the order of the weights.
func GradNorm[T tensor.Float](s *param.Set[T]) float64 {
	var sum float64
	for _, p := range s.All() {
		// Four sums, so that an addition need not wait for the one before.
		var part [4]float64
		g := p.Grad
		for ; len(g) >= 4; g = g[4:] {
			for l := range part {
				part[l] += float64(g[l]) * float64(g[l])
			}
		}
		for l, x := range g {
			part[l] += float64(x) * float64(x)
		}
		sum += (part[0] + part[1]) + (part[2] + part[3])
	}
	return math.Sqrt(sum)
}

// Clip returns the factor that brings gradients of that norm to at most limit
// (Pascanu et al. 2013, arXiv 1211.5063, algorithm 1); a limit of 0 is none.
func Clip(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}
