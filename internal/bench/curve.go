package bench

import "math"

// FindCrossover returns the length from which curve b stays below curve a. Both have points at the
// lengths n, and are straight between them on logarithmic axes. It finds nothing if b is not below
// a at the end, or is below it from the start.
func FindCrossover(n, a, b []float64) (at float64, found bool) {
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

// Interpolate returns the value at x = at of the curve y [points] over x [points]. There must be at
// least two points, and x must ascend. The curve is straight on logarithmic axes, also beyond its
// points.
func Interpolate(x, y []float64, at float64) float64 {
	i := 1
	for i < len(x)-1 && x[i] < at {
		i++
	}
	return y[i-1] * math.Pow(y[i]/y[i-1], math.Log(at/x[i-1])/math.Log(x[i]/x[i-1]))
}
