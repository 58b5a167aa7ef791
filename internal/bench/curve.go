package bench

import "math"

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

// Interpolate returns y at the place at, straight between the points on
// logarithmic axes, and so on beyond them. There are two points at least, in
// the order of x.
func Interpolate(x, y []float64, at float64) float64 {
	i := 1
	for i < len(x)-1 && x[i] < at {
		i++
	}
	return y[i-1] * math.Pow(y[i]/y[i-1], math.Log(at/x[i-1])/math.Log(x[i]/x[i-1]))
}
