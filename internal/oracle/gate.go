package oracle

import "math"

// The gate of random feature attention (arXiv 2103.02143, section 3.2):
// S_t = g_t·S_{t-1} + (1-g_t)·φ(k_t)·v_tᵀ, and the sum of features likewise.

// keyFactors is the factor of key j of s.
func (m *Mechanism) keyFactors(c *Call, s sequence, kh, j int) float64 {
	if !m.Gated || c.LogG.D == 0 {
		return 1
	}
	return -math.Expm1(c.LogG.Head(s.b, kh).Row(s.k0 + j)[0])
}

func scaledBy(f float64, x []float64) []float64 {
	y := make([]float64, len(x))
	addScaled(y, f, x)
	return y
}

// applyFloor is what divides in the place of a sum, where there is a floor, and its
// derivative by the sum.
func (m *Mechanism) applyFloor(sum float64) (g, slope float64) {
	g, slope = sum, 1
	if m.FloorSize && sum < 0 {
		g, slope = -sum, -1
	}
	if g < m.Floor {
		return m.Floor, 0
	}
	return g, slope
}
