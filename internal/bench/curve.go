package bench

import "math"

// FindCrossover returns the length from which on curve b [points] stays below curve a
// [points], at lengths n [points]. Both are straight between points on logarithmic axes.
// It finds nothing if b is not below a at the end, or is below from the start.
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

// Interpolate returns the value at x = at of the curve y [points] over x [points], at
// least two points with x ascending. It is straight on logarithmic axes, beyond the
// points, too.
func Interpolate(x, y []float64, at float64) float64 {
	i := 1
	for i < len(x)-1 && x[i] < at {
		i++
	}
	return y[i-1] * math.Pow(y[i]/y[i-1], math.Log(at/x[i-1])/math.Log(x[i]/x[i-1]))
}
