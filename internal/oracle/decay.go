package oracle

import (
	"math"
)

// Retentive networks (arXiv 2307.08621, eq. 5-7) multiply the weight of key j for query i by
// γ^(i-j). With a factor for each token (gated retention, arXiv 2405.05254, eq. 3) the product
// is exp(Σ_{j<t≤i} log_g_t). Query i has the position i + (M-N) among the keys.

// position returns the position of query i of s among the keys within the key length. In a call
// that is not causal it is after all of them, as for a query that reads a state.
func (c *Call) position(s sequence, i int) int {
	if !c.Causal {
		return s.validUntil - 1
	}
	return min(i+s.m-s.n, s.validUntil-1)
}

// logDecay returns Σ_{j<t≤i} log_g_t over the tokens of key head kh, masked ones included.
func (c *Call) logDecay(s sequence, kh, j, i int) float64 {
	g := c.LogG.Head(s.b, kh)
	var sum float64
	for t := j + 1; t <= i; t++ {
		sum += g.Row(s.k0 + t)[0]
	}
	return sum
}

// lastVisible returns the last key that query i of s sees, or -1 if there is none. Weights are
// relative to this key. That changes no quotient, and keeps the weights from vanishing
// together.
func (c *Call) lastVisible(s sequence, i int) int {
	for j := s.m - 1; j >= 0; j-- {
		if c.isVisible(s, i, j) {
			return j
		}
	}
	return -1
}

// logDecays returns for query i of s the sums from each key to the last that it sees,
// and the factor by which that has decayed itself.
func (c *Call) logDecays(s sequence, kh, i int) (ages []float64, left float64) {
	ages = make([]float64, s.m)
	if c.LogG.D == 0 {
		return ages, 1
	}
	last := c.lastVisible(s, i)
	if last < 0 {
		return ages, 1
	}
	var sum float64
	for j := last; j >= 0; j-- {
		ages[j] = sum
		sum += c.LogG.Head(s.b, kh).Row(s.k0 + j)[0]
	}
	return ages, math.Exp(c.logDecay(s, kh, last, c.position(s, i)))
}

// addAges adds x [m], weights of query i times their gradients, to the gradients of log_g: each to those of
// every token after its key up to the query's position.
func (c *Call) addAges(s sequence, kh, i int, x []float64, r *Grads) {
	if r.DLogG.D == 0 {
		return
	}
	g, sum := r.DLogG.Head(s.b, kh), 0.0
	for t := range c.position(s, i) + 1 {
		g.Row(s.k0 + t)[0] += sum
		sum += x[t]
	}
}

// withDecay returns c with the mechanism's own log-decay added to the call's
// (γ_h of each head: RetNet, eq. 5).
func (m *Mechanism) withDecay(c *Call) *Call {
	if m.Forget == nil {
		return c
	}
	x := *c
	x.LogG = NewHeads(c.K.B, c.K.H, c.K.N, 1)
	for b := range c.K.B {
		for h := range c.K.H {
			for j := range c.K.N {
				g := m.Forget(h)
				if c.LogG.D > 0 {
					g += c.LogG.Head(b, h).Row(j)[0]
				}
				x.LogG.Head(b, h).Row(j)[0] = g
			}
		}
	}
	return &x
}
