package optim

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// GradNorm returns the 2-norm of all gradients together. It sums the squares of each
// weight in float64, and then the sums in the order of the weights.
func GradNorm(s *param.Set) float64 {
	all := s.All()
	ar := arena.Acquire()
	defer ar.Release()
	squares := arena.Take[float64](ar, len(all))
	par.Run(len(all), 1, 2*float64(s.Size()), gradSquares{squares, all})
	var sum float64
	for _, x := range squares {
		sum += x
	}
	if math.IsInf(sum, 1) {
		return scaledNorm(all)
	}
	return math.Sqrt(sum)
}

// scaledNorm returns GradNorm where squares overflow: it divides by the largest element first.
func scaledNorm(all []*param.Param) float64 {
	var largest, sum float64
	for _, p := range all {
		for _, g := range p.Grad {
			largest = max(largest, math.Abs(float64(g)))
		}
	}
	if math.IsInf(largest, 1) {
		return largest
	}
	for _, p := range all {
		for _, g := range p.Grad {
			x := float64(g) / largest
			sum += x * x
		}
	}
	return min(largest*math.Sqrt(sum), math.MaxFloat64)
}

// gradSquares sets dst to Σ g² of each weight.
type gradSquares struct {
	dst []float64
	all []*param.Param
}

func (f *gradSquares) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		f.dst[i] = sumSquares(f.all[i].Grad)
	}
}

// sumSquares returns Σ g².
func sumSquares(g []tensor.Float) float64 {
	// Four sums, so that an addition need not wait for the one before.
	var part [4]float64
	for ; len(g) >= 4; g = g[4:] {
		for l := range part {
			part[l] += float64(g[l]) * float64(g[l])
		}
	}
	for l, x := range g {
		part[l] += float64(x) * float64(x)
	}
	return (part[0] + part[1]) + (part[2] + part[3])
}

// ClipFactor returns the factor that reduces gradients of the given norm to a norm of at most
// limit (Pascanu et al. 2013, arXiv 1211.5063, algorithm 1). A limit of 0 means none, and the
// factor is 1. With a limit, the factor of an infinite norm is 0.
func ClipFactor(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}
