package bench

import (
	"math"
	"slices"
	"time"
)

// Medians calls every f in turn, rounds times over, and returns the median
// seconds of each. Taking turns spreads what disturbs the machine over all of
// them.
func Medians(rounds int, f ...func()) []float64 {
	runs := make([][]float64, len(f))
	for range rounds {
		for i, f := range f {
			start := time.Now()
			f()
			runs[i] = append(runs[i], time.Since(start).Seconds())
		}
	}
	medians := make([]float64, len(f))
	for i, r := range runs {
		medians[i] = median(r)
	}
	return medians
}

// median sorts x. Of an even number it takes the mean of the middle two.
func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	if n == 0 {
		return 0
	}
	return (x[(n-1)/2] + x[n/2]) / 2
}

// Crossover returns the n from which on b stays below a: both are taken as
// straight between the points on logarithmic axes. It is not found if b is not
// below a at the end, or is so from the start.
func Crossover(n, a, b []float64) (at float64, found bool) {
	last := len(n) - 1
	if last < 0 || b[last] >= a[last] {
		return 0, false
	}
	for i := last; i > 0; i-- {
		if b[i-1] < a[i-1] {
			continue
		}
		// log(a/b) goes from d0 ≤ 0 to d1 > 0.
		d0, d1 := math.Log(a[i-1]/b[i-1]), math.Log(a[i]/b[i])
		x0, x1 := math.Log(n[i-1]), math.Log(n[i])
		return math.Exp(x0 - d0*(x1-x0)/(d1-d0)), true
	}
	return 0, false
}
