package kernel

import "math"

// Cap sets dst to c·tanh(x/c), which is between -c and c. dst may be x. It sets NaN where x is not
// finite: a sum that has overflowed may have another sign.
func Cap[T Float](dst, x []T, c float64) {
	for i, v := range x {
		dst[i] = T(c*math.Tanh(float64(v)/c)) + (v - v)
	}
}

// CapSlope sets dst to the derivative of Cap where its result is y. dst may be y.
func CapSlope[T Float](dst, y []T, c float64) {
	for i, v := range y {
		share := float64(v) / c
		dst[i] = T(1 - float64(share*share))
	}
}
