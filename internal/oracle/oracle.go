// Package oracle computes attention in the most obvious way, as a reference for tests: in
// float64, every weight by itself, in O(N·M), without any code of the engines that it judges.
// Comments name the equation of each step.
//
// FAST is arXiv 2402.07901; TaylorShift is arXiv 2403.02920; Linear is Katharopoulos et al.,
// arXiv 2006.16236; RoFormer is arXiv 2104.09864.
package oracle

import (
	"math"
)

// Mechanism describes an attention function. A row goes through
//
//	normalise → rotate → scale (queries only) → map
//
// and the weight of a key is f of the product of the two rows.
type Mechanism struct {
	Norm  Norm
	Scale float64   // factor of the query row; 0: 1/√D
	Tau   []float64 // further factor of each query head, [H] or [1]; nil: none
	Map   *Map      // nil: rows as they are

	Features Features // instead of Map; nil: none

	Exp  bool      // whether f is the exponential; otherwise Coef is used
	Coef []float64 // f(s) = Σ_l Coef[l]·s^l
	Eps  float64   // added to the denominator

	Unnormalized bool                   // outputs are Σ_j w_ij·v_j, without a denominator
	Forget       func(head int) float64 // log_g of every token of a key head, added to the call's; nil: none

	// Floor is a lower bound of the denominator, or with FloorSize of its absolute value; 0:
	// none. Gated multiplies the features of each key by 1 - exp(log_g).
	Floor            float64
	FloorSize, Gated bool

	OutputNorm bool // outputs are multiplied by √(n/D), where n is the number of keys that a query sees

	Window *Window // nil: none
}

// TaylorCoef returns the coefficients 1/l! of the Taylor polynomial T_p of the exponential
// (FAST, eq. 8 for p = 2).
func TaylorCoef(p int) []float64 {
	c := make([]float64, p+1)
	c[0] = 1
	for l := 1; l <= p; l++ {
		c[l] = c[l-1] / float64(l)
	}
	return c
}

// Call holds the arguments of one attention call. Masks mean the same as in attention.Call.
type Call struct {
	Q Heads // [B,H,N,D]
	K Heads // [B,Hkv,M,D]
	V Heads // [B,Hkv,M,Dv]

	Causal   bool
	KeyLens  []int64 // [B]
	KeyMask  []bool  // [B·M]
	AttnKeep []bool  // [N·M]
	CuQ, CuK []int64

	// LogG [B,Hkv,M,1] is the log-decay of each token, in a causal call; empty: none.
	LogG Heads

	// Theta is the base of the rotation frequencies; 0: no rotation. Key j has position j.
	// Query i has position i, or i+M-N in a causal call.
	Theta float64

	Drop *Drop // nil: none

	visible func(s sequence, i, j int) bool // further pairs that see each other; nil: all
}

// Result is the result of Forward.
type Result struct {
	O Heads // [B,H,N,Dv]
	W Heads // [B,H,N,M], weights divided by the denominator
	// Den [B,H,N] holds the denominators, or their logarithms for the exponential. With decay
	// they are sums of weights relative to the last visible key. With FloorSize a denominator
	// keeps the sign of its sum.
	Den []float64
	// Cond [B,H,N] is the condition (Σ_j f̄(|a_i|·|b_j|) + eps) / |g_i|, where f̄ has the
	// absolute values of the coefficients: the precision that is lost when the terms of the sum
	// are computed separately. For the exponential it is 1 + max_j |a_i|·|b_j|, because the
	// absolute error of a score is the relative error of its weight. It is 0 for queries that
	// see no key, or only keys of weight 0.
	Cond []float64
	// Factor [B,H,N] is the factor that OutputNorm multiplies outputs by, 0 if the query sees
	// no key.
	Factor             []float64
	QueriesWithoutKeys int // queries that see no key
}

// sequence is one independent stretch of tokens.
type sequence struct {
	b          int // batch row
	q0, n      int // its queries
	k0, m      int // its keys
	validUntil int // keys from here on are padding
}

func (c *Call) sequences() []sequence {
	var list []sequence
	if c.CuQ != nil {
		for s := 1; s < len(c.CuQ); s++ {
			q0, q1, k0, k1 := int(c.CuQ[s-1]), int(c.CuQ[s]), int(c.CuK[s-1]), int(c.CuK[s])
			list = append(list, sequence{0, q0, q1 - q0, k0, k1 - k0, k1 - k0})
		}
		return list
	}
	for b := range c.Q.B {
		s := sequence{b, 0, c.Q.N, 0, c.K.N, c.K.N}
		if c.KeyLens != nil {
			s.validUntil = int(c.KeyLens[b])
		}
		list = append(list, s)
	}
	return list
}

// isUnmasked reports whether key j of s takes part at all.
func (c *Call) isUnmasked(s sequence, j int) bool {
	return j < s.validUntil && (c.KeyMask == nil || c.KeyMask[s.b*c.K.N+s.k0+j])
}

// isVisible reports whether query i of s sees key j. Causal queries are aligned with
// the last key: j ≤ i + (M-N).
func (c *Call) isVisible(s sequence, i, j int) bool {
	if !c.isUnmasked(s, j) || c.Causal && j > i+s.m-s.n {
		return false
	}
	if c.visible != nil && !c.visible(s, i, j) {
		return false
	}
	return c.AttnKeep == nil || c.AttnKeep[(s.q0+i)*c.K.N+s.k0+j]
}

// queryPosition is the position by which query i of s is rotated.
func (c *Call) queryPosition(s sequence, i int) int {
	if c.Causal {
		return i + s.m - s.n
	}
	return i
}

// factor is what multiplies the query rows of head h.
func (m *Mechanism) factor(d, h int) float64 {
	f := m.Scale
	if f == 0 {
		f = 1 / math.Sqrt(float64(d))
	}
	switch len(m.Tau) {
	case 0:
		return f
	case 1:
		return f * m.Tau[0]
	}
	return f * m.Tau[h]
}

// scores is everything that one head of one sequence computes on the way.
type scores struct {
	q, k         [][]float64 // normalised queries and keys
	a, b         [][]float64 // prepared ones
	aSize, bSize [][]float64 // their absolute values, as conditions have them
	s            [][]float64 // a_i·b_j
	w            [][]float64 // f(s), 0 where unseen; for the exponential over e^shift
	left         [][]float64 // what decay leaves of w
	sees         [][]bool    // whether query i sees key j
	eps          []float64   // on the scale of w
	g            []float64   // Σ_j w_ij + eps, or what divides in its place
	slope        []float64   // derivative of g by the sum
	enters       []float64   // factors of the keys, of gates
	keyCount     []int       // keys that query i sees
	top          []float64   // shift of the exponential: the row's largest score
	o            [][]float64 // outputs, where w and g do not make them
}

func (m *Mechanism) scores(c *Call, s sequence, h int) *scores {
	queries, keys := c.querySide(s), c.keySide(s)
	kh := h / (c.Q.H / c.K.H)
	x := &scores{
		q: queries.normalised(m.Norm, h), k: keys.normalised(m.Norm, h/(c.Q.H/c.K.H)),
		g: make([]float64, s.n), slope: make([]float64, s.n), keyCount: make([]int, s.n), top: make([]float64, s.n),
	}
	for i := range s.n {
		at, factor, kept := c.queryPosition(s, i), m.factor(c.Q.D, h), c.keptQuery(s, h, i)
		x.a = append(x.a, m.prepare(c, c.placeOf(h, false), x.q[i], at, factor, kept))
		x.aSize = append(x.aSize, m.size(c, c.placeOf(h, false), x.q[i], at, factor, kept, x.a[i]))
	}
	for j := range s.m {
		kept := c.keptKey(s, kh, j)
		x.b = append(x.b, m.prepare(c, c.placeOf(h, true), x.k[j], j, 1, kept))
		x.bSize = append(x.bSize, m.size(c, c.placeOf(h, true), x.k[j], j, 1, kept, x.b[j]))
		x.enters = append(x.enters, m.keyFactors(c, s, kh, j))
		x.b[j], x.bSize[j] = scaledBy(x.enters[j], x.b[j]), scaledBy(x.enters[j], x.bSize[j])
	}
	for i := range s.n {
		row, w, faded, sees := make([]float64, s.m), make([]float64, s.m), make([]float64, s.m), make([]bool, s.m)
		ages, left := c.logDecays(s, kh, i)
		x.top[i] = math.Inf(-1)
		for j := range s.m {
			if sees[j] = c.isVisible(s, i, j); sees[j] {
				if faded[j] = 1; ages[j] != 0 {
					faded[j] = math.Exp(ages[j])
				}
				row[j] = dotProduct(x.a[i], x.b[j])
				x.top[i] = max(x.top[i], row[j]+ages[j])
				x.keyCount[i]++
			}
		}
		for j := range s.m {
			if sees[j] {
				if m.Exp {
					w[j] = math.Exp(row[j] + ages[j] - x.top[i])
				} else {
					w[j] = evaluatePolynomial(m.Coef, row[j]) * faded[j] // FAST eq. 7-8
				}
				if pairs := c.pairFactors(s, h, i, j); pairs != nil {
					w[j] = pairWeight(m.Coef, x.a[i], x.b[j], pairs) * faded[j]
				}
				x.g[i] += w[j] // FAST eq. 9; Linear eq. 4
			}
		}
		eps := 0.0
		if m.Eps != 0 {
			eps = m.Eps / left
		}
		x.g[i] += eps
		x.slope[i] = 1
		switch {
		case m.Unnormalized:
			eps = 1 / left
			x.g[i], x.slope[i] = eps, 0
		case m.Floor > 0:
			x.g[i], x.slope[i] = m.applyFloor(x.g[i])
		}
		x.s, x.w, x.eps = append(x.s, row), append(x.w, w), append(x.eps, eps)
		x.left, x.sees = append(x.left, faded), append(x.sees, sees)
	}
	return x
}

// weighsNothing reports whether query i sees keys but all their weights are 0.
func (x *scores) weighsNothing(i int) bool {
	for _, w := range x.w[i] {
		if w != 0 {
			return false
		}
	}
	return x.g[i] == 0
}

// Forward computes o_i = Σ_j w_ij·v_j / g_i (FAST, eq. 11-12; Linear, eq. 3). The output is 0
// for a query that sees no key, or only keys of weight 0.
func (m *Mechanism) Forward(c *Call) *Result {
	c = m.withDecay(c)
	if m.Window != nil {
		return m.forwardWindow(c)
	}
	r := newResult(c)
	for _, s := range c.sequences() {
		for h := range c.Q.H {
			x := m.scores(c, s, h)
			v := c.V.Head(s.b, h/(c.Q.H/c.K.H))
			for i := range s.n {
				if x.keyCount[i] == 0 {
					r.QueriesWithoutKeys++
					continue
				}
				if x.weighsNothing(i) {
					continue
				}
				o, w := r.O.Head(s.b, h).Row(s.q0+i), r.W.Head(s.b, h).Row(s.q0+i)
				for j := range s.m {
					if !x.sees[i][j] {
						continue
					}
					w[s.k0+j] = x.w[i][j] / x.g[i]
					for e, ve := range v.Row(s.k0 + j) {
						o[e] += w[s.k0+j] * ve
					}
				}
				at := (s.b*c.Q.H+h)*c.Q.N + s.q0 + i
				r.Factor[at] = m.outputFactor(c, x.keyCount[i])
				for e := range o {
					o[e] *= r.Factor[at]
				}
				r.Den[at], r.Cond[at] = x.g[i], m.condf(c, s, h, x, i)
				if x.slope[i] < 0 {
					r.Den[at] = -x.g[i]
				}
				if m.Exp {
					r.Den[at] = math.Log(x.g[i]) + x.top[i]
				}
			}
		}
	}
	return r
}

func newResult(c *Call) *Result {
	return &Result{
		O:    NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D),
		W:    NewHeads(c.Q.B, c.Q.H, c.Q.N, c.K.N),
		Den:  make([]float64, c.Q.B*c.Q.H*c.Q.N),
		Cond: make([]float64, c.Q.B*c.Q.H*c.Q.N),

		Factor: make([]float64, c.Q.B*c.Q.H*c.Q.N),
	}
}

// outputFactor is √(n/D) for a query that sees n keys: TaylorShift,
// normalisation 3.
func (m *Mechanism) outputFactor(c *Call, n int) float64 {
	if !m.OutputNorm {
		return 1
	}
	return math.Sqrt(float64(n) / float64(c.Q.D))
}

func (m *Mechanism) condf(c *Call, s sequence, h int, x *scores, i int) float64 {
	sum, largest := m.sizes(c, s, h, x, i)
	if m.Exp {
		return 1 + largest
	}
	if math.IsInf(x.eps[i], 1) {
		return 1 // nothing but eps is left
	}
	return (sum + x.eps[i]) / math.Abs(x.g[i])
}

// sizes returns Σ_j f̄(|a_i|·|b_j|) over the decayed keys, and the largest |a_i|·|b_j|.
func (m *Mechanism) sizes(c *Call, s sequence, h int, x *scores, i int) (sum, largest float64) {
	bar := make([]float64, len(m.Coef))
	for l, cl := range m.Coef {
		bar[l] = math.Abs(cl)
	}
	for j := range s.m {
		if !x.sees[i][j] {
			continue
		}
		var size float64
		for e := range x.aSize[i] {
			size += x.aSize[i][e] * x.bSize[j][e]
		}
		left := x.left[i][j]
		if pairs := c.pairFactors(s, h, i, j); pairs != nil {
			sum += left * pairWeight(bar, absRow(x.a[i]), absRow(x.b[j]), pairs)
		} else {
			sum += left * evaluatePolynomial(bar, size)
		}
		largest = max(largest, size)
	}
	return sum, largest
}

func absRow(x []float64) []float64 {
	y := make([]float64, len(x))
	for c := range x {
		y[c] = math.Abs(x[c])
	}
	return y
}

// evaluatePolynomial is Σ_l c[l]·x^l by Horner's rule.
func evaluatePolynomial(c []float64, x float64) float64 {
	var y float64
	for l := len(c) - 1; l >= 0; l-- {
		y = y*x + c[l]
	}
	return y
}

// evaluateDerivative is the derivative of poly.
func evaluateDerivative(c []float64, x float64) float64 {
	var y float64
	for l := len(c) - 1; l >= 1; l-- {
		y = y*x + float64(l)*c[l]
	}
	return y
}

func dotProduct(a, b []float64) float64 {
	var s float64
	for c := range a {
		s += a[c] * b[c]
	}
	return s
}

// euclideanNorm returns |x|, also where its squares leave the range of float64.
func euclideanNorm(x []float64) float64 {
	length := math.Sqrt(dotProduct(x, x))
	if math.IsInf(length, 1) || length < 0x1p-480 {
		length = 0
		for _, v := range x {
			length = math.Hypot(length, v)
		}
	}
	return length
}
