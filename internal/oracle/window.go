package oracle

import (
	"math"
)

// Window adds the softmax of a near field to a mechanism. Its scores are q·k/√D of rows that
// are rotated but not normalised or mapped. For a query at position p, the near field is the
// keys p-Width < j ≤ p in a causal call, and |p-j| < Width in other calls. By default both
// parts have one denominator and the mechanism weighs the far keys only (LoLCATs, arXiv
// 2410.10254). With Separate set, each part has its own denominator and the mechanism weighs
// all keys (Based, arXiv 2402.18668).
type Window struct {
	Width    int
	Separate bool
	Gamma    []float64 // γ of each query head, [H] or [1]
	Reading  bool      // queries of unmasked calls have the position of the state's last key
}

// gamma returns γ of head h.
func (w *Window) gamma(h int) float64 { return w.Gamma[h%len(w.Gamma)] }

// isInWindow reports whether key j of s is in the window of query i.
func (m *Mechanism) isInWindow(c *Call, s sequence, i, j int) bool {
	if !c.Causal && !m.Window.Reading {
		p := i + s.m - s.n
		return max(p-j, j-p) < m.Window.Width
	}
	return j > c.position(s, i)-m.Window.Width
}

// windowParts returns the mechanism without its window and the softmax of the
// window, and the calls that they have.
func (m *Mechanism) windowParts(c *Call) (tail, near *Mechanism, tailCall, nearCall *Call) {
	plain := *m
	plain.Window = nil
	tail, near = &plain, &Mechanism{Exp: true}
	t, n := *c, *c
	n.visible = func(s sequence, i, j int) bool { return m.isInWindow(c, s, i, j) }
	if !m.Window.Separate {
		tail.Eps = 0 // of the joined denominator
		t.visible = func(s sequence, i, j int) bool { return !m.isInWindow(c, s, i, j) }
	}
	return tail, near, &t, &n
}

// joined are the rows of one head of a sequence under one denominator.
type joined struct {
	tail, window *scores
	// A weight of either part times its factor is one of the row, relative to the
	// last key that the query sees.
	tailFactor, windowFactor []float64
	eps, g                   []float64
}

func (m *Mechanism) joined(c *Call, s sequence, h int) *joined {
	tail, near, tc, nc := m.windowParts(c)
	kh := h / (c.Q.H / c.K.H)
	x := &joined{tail: tail.scores(tc, s, h), window: near.scores(nc, s, h)}
	for i := range s.n {
		fade, whole, eps := 1.0, 0.0, m.Eps
		if x.window.keyCount[i] > 0 {
			whole = m.Window.gamma(h) * math.Exp(x.window.top[i])
		}
		if last := c.lastVisible(s, i); c.LogG.D > 0 && last >= 0 {
			if before := tc.lastVisible(s, i); before >= 0 {
				fade = math.Exp(c.logDecay(s, kh, before, last))
			}
			if eps != 0 {
				eps /= math.Exp(c.logDecay(s, kh, last, c.position(s, i)))
			}
		}
		x.tailFactor, x.windowFactor, x.eps = append(x.tailFactor, fade), append(x.windowFactor, whole), append(x.eps, eps)
		x.g = append(x.g, fade*x.tail.g[i]+whole*x.window.g[i]+eps)
	}
	return x
}

// nothing reports whether query i sees no key, or only keys of weight 0.
func (x *joined) nothing(i int) bool {
	return x.window.keyCount[i] == 0 && (x.tail.keyCount[i] == 0 || x.tail.weighsNothing(i))
}

func (m *Mechanism) forwardWindow(c *Call) *Result {
	tail, near, tc, nc := m.windowParts(c)
	if m.Window.Separate {
		r, n := tail.Forward(tc), near.Forward(nc)
		eachPair(r.O, n.O, m.Window.gamma)
		eachPair(r.W, n.W, m.Window.gamma)
		for at := range r.Cond {
			r.Cond[at] += m.Window.gamma(at/c.Q.N%c.Q.H) * n.Cond[at]
		}
		return r
	}
	r := newResult(c)
	for _, s := range c.sequences() {
		for h := range c.Q.H {
			x := m.joined(c, s, h)
			v := c.V.Head(s.b, h/(c.Q.H/c.K.H))
			for i := range s.n {
				if x.window.keyCount[i]+x.tail.keyCount[i] == 0 {
					r.QueriesWithoutKeys++
				}
				if x.nothing(i) {
					continue
				}
				o, w := r.O.Head(s.b, h).Row(s.q0+i), r.W.Head(s.b, h).Row(s.q0+i)
				for j := range s.m {
					if c.isVisible(s, i, j) {
						w[s.k0+j] = (x.tailFactor[i]*x.tail.w[i][j] + x.windowFactor[i]*x.window.w[i][j]) / x.g[i]
						addScaled(o, w[s.k0+j], v.Row(s.k0+j))
					}
				}
				at := (s.b*c.Q.H+h)*c.Q.N + s.q0 + i
				size, _ := tail.sizes(tc, s, h, x.tail, i)
				_, largest := near.sizes(nc, s, h, x.window, i)
				r.Cond[at] = (x.tailFactor[i]*size + x.eps[i] + x.windowFactor[i]*x.window.g[i]*(1+largest)) / math.Abs(x.g[i])
				r.Den[at], r.Factor[at] = math.Log(math.Abs(x.g[i])), 1
			}
		}
	}
	return r
}

// eachPair adds to y the heads of x times their factors.
func eachPair(y, x Heads, factor func(h int) float64) {
	for b := range y.B {
		for h := range y.H {
			for i := range y.N {
				addScaled(y.Head(b, h).Row(i), factor(h), x.Head(b, h).Row(i))
			}
		}
	}
}

// backwardWindow computes the gradients of the two parts as two mechanisms. It gives both the
// output and the denominator of the joined row:
//
//	dw_ij = do_i·(v_j - o_i)/g_i,  dγ = Σ_i Σ_window exp(s_ij)·dw_ij
func (m *Mechanism) backwardWindow(c *Call, do Heads) *Grads {
	tail, near, tc, nc := m.windowParts(c)
	dgamma := make([]float64, len(m.Window.Gamma)) // by log γ
	var r, n *Grads
	if m.Window.Separate {
		own := near.Forward(nc)
		scaled := NewHeads(do.B, do.H, do.N, do.D)
		eachPair(scaled, do, m.Window.gamma)
		for b := range do.B {
			for h := range do.H {
				for i := range do.N {
					dgamma[h%len(dgamma)] += dotProduct(scaled.Head(b, h).Row(i), own.O.Head(b, h).Row(i))
				}
			}
		}
		r, n = tail.Backward(tc, do), near.Backward(nc, scaled)
	} else {
		out := m.forwardWindow(c)
		r, n = newGrads(tail, c), newGrads(near, c)
		for _, s := range c.sequences() {
			for h := range c.Q.H {
				x := m.joined(c, s, h)
				o := out.O.Head(s.b, h)
				for i := range s.n {
					row, doi := o.Row(s.q0+i), do.Head(s.b, h).Row(s.q0+i)
					for j := range s.m {
						if w := x.windowFactor[i] * x.window.w[i][j]; w != 0 {
							w /= x.g[i]
							v := c.V.Head(s.b, h/(c.Q.H/c.K.H)).Row(s.k0 + j)
							dgamma[h%len(dgamma)] += w * (dotProduct(doi, v) - dotProduct(doi, row))
						}
					}
					x.tail.o, x.window.o = append(x.tail.o, row), append(x.window.o, row)
					x.tail.g[i], x.window.g[i] = x.g[i]/x.tailFactor[i], x.g[i]/x.windowFactor[i]
				}
				tail.backwardScores(tc, s, h, x.tail, do, r)
				near.backwardScores(nc, s, h, x.window, do, n)
			}
			tail.finish(c, s, r)
			near.finish(c, s, n)
		}
	}
	one := func(int) float64 { return 1 }
	eachPair(r.DQ, n.DQ, one)
	eachPair(r.DK, n.DK, one)
	eachPair(r.DV, n.DV, one)
	if r.DLogG.D > 0 {
		eachPair(r.DLogG, n.DLogG, one)
	}
	r.DLogGamma = dgamma
	return r
}
