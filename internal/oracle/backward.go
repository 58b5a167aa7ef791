package oracle

// Grads holds the gradients of Σ o·do with respect to the raw inputs.
type Grads struct {
	DQ, DK, DV Heads
	DTau       []float64 // shape of Tau
	DFeatures  []float64 // shape of Features.Learned
	DLogG      Heads
	DLogGamma  []float64 // gradient of log γ, shape of Window.Gamma
}

// Backward returns the gradients of Forward, from formulas written out by hand. With p_ij =
// w_ij/g_i:
//
//	dv_j  = Σ_i p_ij·do_i
//	dw_ij = do_i·(v_j - o_i)/g_i
//	ds_ij = f'(s_ij)·dw_ij          (f' = f for the exponential)
//	da_i  = Σ_j ds_ij·b_j,  db_j = Σ_i ds_ij·a_i
//
// Then da and db go back through the map, the factor, the rotation and the normalisation.
func (m *Mechanism) Backward(c *Call, do Heads) *Grads {
	if m.Window != nil {
		return m.backwardWindow(c, do)
	}
	r := newGrads(m, c)
	c = m.withDecay(c)
	for _, s := range c.sequences() {
		for h := range c.Q.H {
			m.backwardScores(c, s, h, m.scores(c, s, h), do, r)
		}
		m.finish(c, s, r)
	}
	return r
}

func newGrads(m *Mechanism, c *Call) *Grads {
	r := &Grads{
		DQ:   NewHeads(c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		DK:   NewHeads(c.K.B, c.K.H, c.K.N, c.K.D),
		DV:   NewHeads(c.V.B, c.V.H, c.V.N, c.V.D),
		DTau: make([]float64, len(m.Tau)),
	}
	if m.Features != nil {
		r.DFeatures = make([]float64, len(m.Features.Learned(c.Q.D)))
	}
	if c.LogG.D > 0 {
		r.DLogG = NewHeads(c.K.B, c.K.H, c.K.N, 1)
	}
	return r
}

// finish turns gradients by the normalised rows of s, which DQ and DK hold until
// here, into those by the raw ones.
func (m *Mechanism) finish(c *Call, s sequence, r *Grads) {
	queries, keys := c.querySide(s), c.keySide(s)
	queries.normalisedGrad(m.Norm, r.DQ)
	keys.normalisedGrad(m.Norm, r.DK)
}

func (m *Mechanism) backwardScores(c *Call, s sequence, h int, x *scores, do Heads, r *Grads) {
	kh := h / (c.Q.H / c.K.H)
	v, dv := c.V.Head(s.b, kh), r.DV.Head(s.b, kh)
	factor := m.factor(c.Q.D, h)
	db := make([][]float64, s.m)
	for j := range db {
		db[j] = make([]float64, len(x.b[j]))
	}
	for i := range s.n {
		if x.keyCount[i] == 0 || x.weighsNothing(i) {
			continue
		}
		doi := make([]float64, c.V.D)
		addScaled(doi, m.outputFactor(c, x.keyCount[i]), do.Head(s.b, h).Row(s.q0+i))
		o := make([]float64, c.V.D)
		for j := range s.m {
			if x.sees[i][j] && x.o == nil {
				addScaled(o, x.w[i][j]/x.g[i], v.Row(s.k0+j))
			}
		}
		if x.o != nil {
			o = x.o[i]
		}
		da, ages := make([]float64, len(x.a[i])), make([]float64, s.m)
		for j := range s.m {
			if !x.sees[i][j] {
				continue
			}
			vj := v.Row(s.k0 + j)
			addScaled(dv.Row(s.k0+j), x.w[i][j]/x.g[i], doi)
			dw := (dotProduct(doi, vj) - x.slope[i]*dotProduct(doi, o)) / x.g[i]
			ages[j] = x.w[i][j] * dw
			left := x.left[i][j]
			if pairs := c.pairFactors(s, h, i, j); pairs != nil {
				pairSlope(da, left*dw, m.Coef, x.a[i], x.b[j], pairs)
				pairSlope(db[j], left*dw, m.Coef, x.b[j], x.a[i], pairs)
				continue
			}
			f1 := x.w[i][j]
			if !m.Exp {
				f1 = evaluateDerivative(m.Coef, x.s[i][j]) * left
			}
			addScaled(da, f1*dw, x.b[j])
			addScaled(db[j], f1*dw, x.a[i])
		}
		c.addAges(s, kh, i, ages, r)
		dq, dfactor := m.prepareGrad(c, c.placeOf(h, false), x.q[i], c.queryPosition(s, i), factor, c.keptQuery(s, h, i), da, r.DFeatures)
		copy(r.DQ.Head(s.b, h).Row(s.q0+i), dq)
		if len(m.Tau) > 0 {
			plain := Mechanism{Scale: m.Scale}
			r.DTau[h%len(m.Tau)] += dfactor * plain.factor(c.Q.D, h) // d(scale·τ)/dτ = scale
		}
	}
	for j := range s.m {
		if c.isUnmasked(s, j) {
			kept := c.keptKey(s, kh, j)
			if m.Gated && c.LogG.D > 0 {
				whole := m.prepare(c, c.placeOf(h, true), x.k[j], j, 1, kept)
				r.DLogG.Head(s.b, kh).Row(s.k0 + j)[0] += (x.enters[j] - 1) * dotProduct(db[j], whole)
			}
			dk, _ := m.prepareGrad(c, c.placeOf(h, true), x.k[j], j, 1, kept, scaledBy(x.enters[j], db[j]), r.DFeatures)
			addScaled(r.DK.Head(s.b, kh).Row(s.k0+j), 1, dk)
		}
	}
}

// addScaled is y += f·x.
func addScaled(y []float64, f float64, x []float64) {
	for c := range y {
		y[c] += f * x[c]
	}
}
