//go:build float64

package engine

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/rng"
)

// In the mean over keys nothing changes: n draws of rate r have a deviation of
// √(r/((1-r)·n)).
func TestDropoutExpectation(t *testing.T) {
	const draws, d = 20000, 5
	for _, kind := range []attention.DropKind{attention.TokenDrop, attention.ElementDrop, attention.ProductDrop} {
		for _, rate := range []float64{0.1, 0.75} {
			sum := make([]float64, d)
			for seed := range draws {
				x := []float64{1, 1, 1, 1, 1}
				if kind == attention.ProductDrop {
					x = append(x, make([]float64, 1+d*d)...)
					headtask.Products{}.Map(x, slices.Repeat([]float64{1}, d))
				}
				drop := &attention.Drop{Kind: kind, Rate: rate, Key: rng.New(uint64(seed))}
				m := headtask.NewHeadDropout(drop, &attention.DropCoords{}, true, 0, 1, d, 11)
				if kind == attention.ProductDrop {
					headtask.DropProducts(&m, x, d, 0)
				} else {
					headtask.DropOut(&m, x, 1, d, d, 0, 1)
				}
				for c, y := range x[len(x)-d:] {
					sum[c] += y
				}
			}
			for c, s := range sum {
				if off := math.Abs(s/draws-1) / math.Sqrt(rate/(1-rate)/draws); off > 4.5 {
					t.Errorf("%v, rate %v: channel %d is off by %.1f deviations", kind, rate, c, off)
				}
			}
		}
	}
}
