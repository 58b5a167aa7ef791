package oracle

// Drop holds the factors that dropout multiplies with: 0 or 1/(1-rate). A nil slice means
// factors of 1.
type Drop struct {
	Q, K []float64 // [B·H·N·D], [B·Hkv·M·D] for channels of prepared rows, before the map
	// QQ [B·H·N·D·D] and KK [B·Hkv·M·D·D] are for products of two channels in the term of
	// degree 2 ("quadratic" in FAST, figure 2).
	QQ, KK []float64
}

// dropFactors returns the width factors of one token; nil without dropout.
func (c *Call) dropFactors(factors func(d *Drop) []float64, token, width int) []float64 {
	if c.Drop == nil || factors(c.Drop) == nil {
		return nil
	}
	return factors(c.Drop)[token*width:][:width]
}

func (c *Call) queryIndex(s sequence, h, i int) int { return (s.b*c.Q.H+h)*c.Q.N + s.q0 + i }
func (c *Call) keyIndex(s sequence, kh, j int) int  { return (s.b*c.K.H+kh)*c.K.N + s.k0 + j }

func (c *Call) keptQuery(s sequence, h, i int) []float64 {
	return c.dropFactors(func(d *Drop) []float64 { return d.Q }, c.queryIndex(s, h, i), c.Q.D)
}

func (c *Call) keptKey(s sequence, kh, j int) []float64 {
	return c.dropFactors(func(d *Drop) []float64 { return d.K }, c.keyIndex(s, kh, j), c.K.D)
}

// pairFactors returns the factors that the products of channels of query i and key j
// have together, [D·D]; nil where there are none.
func (c *Call) pairFactors(s sequence, h, i, j int) []float64 {
	if c.Drop == nil || c.Drop.QQ == nil {
		return nil
	}
	d := c.Q.D
	q := c.Drop.QQ[c.queryIndex(s, h, i)*d*d:][:d*d]
	k := c.Drop.KK[c.keyIndex(s, h/(c.Q.H/c.K.H), j)*d*d:][:d*d]
	m := make([]float64, d*d)
	for x := range m {
		m[x] = q[x] * k[x]
	}
	return m
}

// pairWeight is Σ_l c_l·s^l, l ≤ 2, with s² = Σ_{m,l} a_m·a_l·b_m·b_l each times
// its factor.
func pairWeight(coef, a, b, pairs []float64) float64 {
	var square float64
	for m := range a {
		for l := range a {
			square += a[m] * a[l] * b[m] * b[l] * pairs[m*len(a)+l]
		}
	}
	return coef[0] + coef[1]*dotProduct(a, b) + coef[2]*square
}

// pairSlope adds to da the derivative of pairWeight by a, times dw.
func pairSlope(da []float64, dw float64, coef, a, b, pairs []float64) {
	for m := range a {
		sum := coef[1] * b[m]
		for l := range a {
			sum += coef[2] * a[l] * b[m] * b[l] * (pairs[m*len(a)+l] + pairs[l*len(a)+m])
		}
		da[m] += dw * sum
	}
}

// scaleRow is y times factors, in place; nil ones are 1.
func scaleRow(y, factors []float64) []float64 {
	for e, f := range factors {
		y[e] *= f
	}
	return y
}
