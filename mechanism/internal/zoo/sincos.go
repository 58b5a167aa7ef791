package zoo

import (
	"math"
)

// SinCos sets s and c to sines and cosines of x, all of one length. Both may overlap x.
func SinCos(s, c, x []float) {
	var one float
	if _, double := any(one).(float64); double {
		for i, v := range x {
			sin, cos := math.Sincos(float64(v))
			s[i], c[i] = float(sin), float(cos)
		}
		return
	}
	s, c = s[:len(x)], c[:len(x)]
	for i, v := range x {
		sin, cos := sincos32(float64(v))
		s[i], c[i] = float(sin), float(cos)
	}
}

// sincos32 returns sine and cosine with an error of at most 3e-9, below the resolution
// of float32. It subtracts the nearest multiple of π/2, in two parts, and sums the
// first terms of both series.
func sincos32(x float64) (sin, cos float64) {
	const (
		far   = 1 << 19 // beyond it the first product is rounded
		shift = 3 << 51 // added and taken away it rounds to a whole number
		high  = 0x1.921fb544p+0
		low   = 0x1.0b4611a626331p-34
	)
	if !(x < far && x > -far) {
		return math.Sincos(x)
	}
	n := float64(x*(2/math.Pi)+shift) - shift
	r := (x - n*high) - n*low
	z := r * r
	sin = r + r*z*(-1./6+z*(1./120+z*(-1./5040+z*(1./362880))))
	cos = 1 - z*(1./2-z*(1./24+z*(-1./720+z*(1./40320-z*(1./3628800)))))
	switch int64(n) & 3 {
	case 0:
		return sin, cos
	case 1:
		return cos, -sin
	case 2:
		return -sin, -cos
	}
	return -cos, sin
}
