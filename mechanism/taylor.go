package mechanism

// taylorCoefs returns the coefficients 1/l! of T_p. FAST's eq. 8 has the ½ of l = 2,
// which its eq. 20-35 leave out.
func taylorCoefs(p int) []float64 {
	c := make([]float64, p+1)
	c[0] = 1
	for l := 1; l <= p; l++ {
		c[l] = c[l-1] / float64(l)
	}
	return c
}

// evalPolynomial returns Σ c[l]·x^l.
func evalPolynomial(c []float64, x float64) float64 {
	var y float64
	for l := len(c) - 1; l >= 0; l-- {
		y = y*x + c[l]
	}
	return y
}
