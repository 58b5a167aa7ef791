package band

import (
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// problem is a window of w keys before, and after keys after, the place of a query.
type problem struct {
	n, m, w, after, d, dv int
	masked, kept, decayed bool
	scale                 float64
}

var problems = []problem{
	{n: 1, m: 1, w: 1, d: 1, dv: 1, scale: 1},
	{n: 70, m: 70, w: 64, d: 16, dv: 16, scale: 0.3},
	{n: 130, m: 130, w: 7, d: 5, dv: 3, scale: 1},
	{n: 100, m: 140, w: 33, d: 32, dv: 48, scale: 0.2},
	{n: 90, m: 90, w: 20, after: 19, d: 16, dv: 16, scale: 0.4},
	{n: 60, m: 60, w: 16, d: 8, dv: 16, masked: true, scale: 0.5},
	{n: 60, m: 60, w: 16, d: 8, dv: 16, kept: true, decayed: true, scale: 0.5},
	{n: 60, m: 60, w: 16, d: 8, dv: 4, masked: true, decayed: true, scale: 0.5},
	{n: 80, m: 80, w: 40, d: 16, dv: 16, scale: 20},   // weights beyond the power of the last score
	{n: 80, m: 80, w: 40, d: 16, dv: 16, scale: 5000}, // powers of 2 beyond farPower
}

// weights returns the weights of row r by the formula, and their logarithm's sum.
func (b *Block) weights(keys tensor.Mat, r int) (w []float64, log float64) {
	w = make([]float64, keys.Rows)
	top, age, begun := math.Inf(-1), 0.0, false
	for j := int(b.Ends[r]) - 1; j >= int(b.Starts[r]); j-- {
		sees := b.sees(r, j)
		if begun = begun || sees; sees {
			for c, x := range keys.Row(j) {
				w[j] += float64(x) * float64(b.Queries[r*b.LDQ+c])
			}
			w[j] += age
			top = max(top, w[j])
		} else {
			w[j] = math.Inf(-1)
		}
		if begun && b.Rates != nil {
			age += float64(b.Rates[j])
		}
	}
	sum := 0.0
	for j := range w {
		if j < int(b.Starts[r]) || j >= int(b.Ends[r]) || math.IsInf(w[j], -1) {
			w[j] = 0
			continue
		}
		w[j] = math.Exp(w[j] - top)
		sum += w[j]
	}
	for j := range w {
		if sum > 0 {
			w[j] /= sum
		}
	}
	return w, top + math.Log(sum)
}
