package oracle

import (
	"math"
)

// Head is one query head of one sequence, with rotated rows. Rows of masked keys are zeros.
type Head struct {
	Q, K   [][]float64 // [n][D], [m][D]
	Exist  []bool      // [m] unmasked keys
	Causal bool
	Offset int // if Causal, query i sees keys j ≤ i+Offset
	Shift  int // M-N: a near field is around key i+Shift
	Head   int
	Heads  int // number of query heads of the call
	Group  int // query heads that share a key head
}

// Sees reports whether query i sees key j.
func (h *Head) Sees(i, j int) bool { return h.Exist[j] && (!h.Causal || j <= i+h.Offset) }

// end returns the number of keys without the masked keys at the end, which are padding.
func (h *Head) end() int {
	n := len(h.K)
	for n > 0 && !h.Exist[n-1] {
		n--
	}
	return n
}

// SeesAny reports whether query i sees any key.
func (h *Head) SeesAny(i int) bool {
	for j := range h.Exist {
		if h.Sees(i, j) {
			return true
		}
	}
	return false
}

// HeadMatrix is a mechanism whose outputs are linear in the values, given a whole head. It
// returns the attention matrix [n,m]. The row of a query without a visible key may be nil.
type HeadMatrix func(h *Head) [][]float64

// Forward computes O = A·V. Result.Den holds the sums of the rows of A. Result.Cond is 1 for
// queries that see a key.
func (f HeadMatrix) Forward(c *Call) *Result {
	n := c.Q.B * c.Q.H * c.Q.N
	r := &Result{
		O: NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D),
		W: NewHeads(c.Q.B, c.Q.H, c.Q.N, c.K.N), Den: make([]float64, n), Cond: make([]float64, n),
		Factor: make([]float64, n),
	}
	for _, s := range c.sequences() {
		for h := range c.Q.H {
			x, v := c.head(s, h), c.V.Head(s.b, h/(c.Q.H/c.K.H))
			var a [][]float64
			if x.hasKeys() && s.n > 0 {
				a = f(x)
			}
			for i := range s.n {
				if a == nil || a[i] == nil || !x.SeesAny(i) {
					r.QueriesWithoutKeys++
					continue
				}
				o, w := r.O.Head(s.b, h).Row(s.q0+i), r.W.Head(s.b, h).Row(s.q0+i)
				at := (s.b*c.Q.H+h)*c.Q.N + s.q0 + i
				r.Cond[at], r.Factor[at] = 1, 1
				for j, exists := range x.Exist {
					if !exists {
						continue
					}
					w[s.k0+j] = a[i][j]
					r.Den[at] += a[i][j]
					for e, y := range v.Row(s.k0 + j) {
						o[e] += a[i][j] * y
					}
				}
			}
		}
	}
	return r
}

// hasKeys reports whether a key is unmasked.
func (h *Head) hasKeys() bool {
	for _, exists := range h.Exist {
		if exists {
			return true
		}
	}
	return false
}

// head returns head h of s, whose keys end where the padding begins.
func (c *Call) head(s sequence, h int) *Head {
	x := &Head{Causal: c.Causal, Head: h, Heads: c.Q.H, Group: c.Q.H / c.K.H, Shift: s.m - s.n}
	if c.Causal {
		x.Offset = s.m - s.n
	}
	q, k := c.Q.Head(s.b, h), c.K.Head(s.b, h/(c.Q.H/c.K.H))
	for i := range s.n {
		x.Q = append(x.Q, rotateRow(q.Row(s.q0+i), c.Theta, c.queryPosition(s, i)))
	}
	for j := range s.validUntil {
		row := make([]float64, c.K.D)
		if c.isUnmasked(s, j) {
			row = rotateRow(k.Row(s.k0+j), c.Theta, j)
		}
		x.K, x.Exist = append(x.K, row), append(x.Exist, c.isUnmasked(s, j))
	}
	return x
}

// Softmax returns, for each row i of scores, the softmax over the keys that query i sees.
func (h *Head) Softmax(s [][]float64) [][]float64 {
	w := make([][]float64, len(s))
	for i := range s {
		w[i] = make([]float64, len(s[i]))
		top, sum := math.Inf(-1), 0.0
		for j := range s[i] {
			if h.Sees(i, j) {
				top = max(top, s[i][j])
			}
		}
		for j := range s[i] {
			if h.Sees(i, j) {
				w[i][j] = math.Exp(s[i][j] - top)
				sum += w[i][j]
			}
		}
		for j := range w[i] {
			w[i][j] /= sum
		}
	}
	return w
}

// Outputs is a mechanism that is given a whole head and returns outputs [n][Dv] that are not
// sums over keys. Rows of v are zeros at masked keys.
type Outputs func(h *Head, v [][]float64, dv int) [][]float64

// Forward computes the outputs, without weights. It skips queries that see no key.
func (f Outputs) Forward(c *Call) *Result {
	r := HeadMatrix(func(h *Head) [][]float64 {
		a := make([][]float64, len(h.Q))
		for i := range a {
			a[i] = make([]float64, len(h.K))
		}
		return a
	}).Forward(c)
	for _, s := range c.sequences() {
		for h := range c.Q.H {
			x := c.head(s, h)
			if !x.hasKeys() || s.n == 0 {
				continue
			}
			for i, row := range f(x, x.values(c, s, h), c.V.D) {
				if x.SeesAny(i) {
					copy(r.O.Head(s.b, h).Row(s.q0+i), row)
				}
			}
		}
	}
	return r
}
