package oracle

import "math"

// Pattern is softmax attention over pairs of positions. Query i has the position i+Offset.
type Pattern struct {
	Scale float64 // 0: 1/√D
	// Times returns how often the query of head h at position at sees key j.
	Times func(h, at, j int, causal bool) float64
	// Score returns the score of a pair; nil: scale·q·k.
	Score func(h int, q, k []float64, at, j int, scale float64) float64
}

// HeadMatrix returns the mechanism whose weights are n·exp(s), divided by their sum, where n is
// the result of Times and s the result of Score. A query without visible keys has no row.
func (p *Pattern) HeadMatrix() HeadMatrix {
	return func(h *Head) [][]float64 {
		a := make([][]float64, len(h.Q))
		for i, q := range h.Q {
			scale := p.Scale
			if scale == 0 {
				scale = 1 / math.Sqrt(float64(len(q)))
			}
			at := i + h.Offset
			w, top, sum := make([]float64, len(h.K)), math.Inf(-1), 0.0
			for j, k := range h.K {
				w[j] = math.Inf(-1)
				if n := p.Times(h.Head, at, j, h.Causal); n > 0 && h.Sees(i, j) {
					score := scale * dotProduct(q, k)
					if p.Score != nil {
						score = p.Score(h.Head, q, k, at, j, scale)
					}
					w[j] = math.Log(n) + score
					top = max(top, w[j])
				}
			}
			if math.IsInf(top, -1) {
				continue
			}
			for j := range w {
				w[j] = math.Exp(w[j] - top)
				sum += w[j]
			}
			for j := range w {
				w[j] /= sum
			}
			a[i] = w
		}
		return a
	}
}

// indicator returns 1 if ok holds, otherwise 0.
func indicator(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}

// NewLocal returns softmax over the keys with -⌊w/2⌋ ≤ j-i < ⌈w/2⌉.
func NewLocal(w int, scale float64) HeadMatrix {
	return (&Pattern{Scale: scale, Times: func(_, at, j int, _ bool) float64 {
		return indicator(-(w/2) <= j-at && j-at < (w+1)/2)
	}}).HeadMatrix()
}

// CappedLocal is NewLocal with scores capped to c·tanh(scale·q·k/c).
func CappedLocal(w int, scale, c float64) HeadMatrix {
	return (&Pattern{Scale: scale, Score: cappedScore(c), Times: func(_, at, j int, _ bool) float64 {
		return indicator(-(w/2) <= j-at && j-at < (w+1)/2)
	}}).HeadMatrix()
}

// CappedSoftmax returns softmax over all keys, with scores capped to c·tanh(scale·q·k/c).
func CappedSoftmax(scale, c float64) HeadMatrix {
	return (&Pattern{Scale: scale, Score: cappedScore(c), Times: func(int, int, int, bool) float64 { return 1 }}).HeadMatrix()
}

func cappedScore(c float64) func(int, []float64, []float64, int, int, float64) float64 {
	return func(_ int, q, k []float64, _, _ int, scale float64) float64 {
		return c * math.Tanh(scale*dotProduct(q, k)/c)
	}
}

// LocalSpan returns softmax over the near field of w tokens: for a query at position p = i+M-N
// the keys |p-j| < w, or p-w < j ≤ p in a causal call.
func LocalSpan(w int, scale float64) HeadMatrix {
	return func(h *Head) [][]float64 {
		near := Pattern{Scale: scale, Times: func(_, at, j int, causal bool) float64 {
			p := at - h.Offset + h.Shift
			return indicator(p-w < j && (j <= p || !causal && j < p+w))
		}}
		return near.HeadMatrix()(h)
	}
}

// LocalBlocks returns softmax over blocks of w tokens: the block of the query, back blocks
// before it and forward blocks after it. With exact set, a query sees at most back·w tokens
// before and forward·w tokens after itself.
func LocalBlocks(w, back, forward int, exact bool, scale float64) HeadMatrix {
	return (&Pattern{Scale: scale, Times: func(_, at, j int, causal bool) float64 {
		far := exact && (at-j > back*w || !causal && j-at > forward*w)
		return indicator(!far && at/w-back <= j/w && (causal || j/w <= at/w+forward))
	}}).HeadMatrix()
}

// NewLongformer returns softmax over the pairs with |i-j| ≤ ⌊w/2⌋ and the pairs with a global
// token (Beltagy et al. 2020, section 3.1).
func NewLongformer(w int, globals []int, scale float64) HeadMatrix {
	is := map[int]bool{}
	for _, g := range globals {
		is[g] = true
	}
	return (&Pattern{Scale: scale, Times: func(_, at, j int, _ bool) float64 {
		return indicator(max(at-j, j-at) <= w/2 || is[at] || is[j])
	}}).HeadMatrix()
}

// SparseStrided returns softmax over the pairs with |i-j| < s, and those where i-j is a
// multiple of s (Child et al. 2019, section 4.2).
func SparseStrided(s int, scale float64) HeadMatrix {
	return (&Pattern{Scale: scale, Times: func(_, at, j int, _ bool) float64 {
		return indicator(max(at-j, j-at) < s || (at-j)%s == 0)
	}}).HeadMatrix()
}

// SparseFixed returns softmax over the query's block of s tokens and the last c tokens of every
// block (Child et al. 2019, section 4.2).
func SparseFixed(s, c int, scale float64) HeadMatrix {
	return (&Pattern{Scale: scale, Times: func(_, at, j int, _ bool) float64 {
		return indicator(at/s == j/s || j%s >= s-c)
	}}).HeadMatrix()
}

// LongNet returns the dilated attention of LongNet (Ding et al. 2023, section 3). Each branch
// has segments of w tokens and a ratio r. In a branch, a token whose index in its segment is o
// modulo r sees the tokens of the segment whose index is o modulo r, too; other tokens see
// nothing. o is h mod r, or ⌊h/⌈H/r⌉⌋ mod r as in the authors' program if code is set. Branches
// are mixed by their log-sum-exp, so that together they are one softmax.
func LongNet(segments, ratios []int, code bool, scale float64) HeadMatrix {
	return func(head *Head) [][]float64 {
		branches := Pattern{Scale: scale, Times: func(h, at, j int, _ bool) (n float64) {
			for b, w := range segments {
				r := ratios[b]
				o := h % r
				if code {
					o = h / ((head.Heads + r - 1) / r) % r
				}
				n += indicator(at/w == j/w && at%w%r == o && j%w%r == o)
			}
			return n
		}}
		return branches.HeadMatrix()(head)
	}
}

// AdaptiveSpan returns softmax whose weights are multiplied by (R+z-|i-j|)/R, clamped to [0,1],
// where R is ramp and z [H] or [1] is clamped to [0,limit] (Sukhbaatar et al. 2019, eq. 5-7).
func AdaptiveSpan(z []float64, ramp, limit, scale float64) HeadMatrix {
	return (&Pattern{Scale: scale, Times: func(h, at, j int, _ bool) float64 {
		span := min(max(z[min(h, len(z)-1)], 0), limit)
		return min(max((ramp+span-math.Abs(float64(at-j)))/ramp, 0), 1)
	}}).HeadMatrix()
}

// TransformerXL returns softmax over the last n tokens up to the query's own, with the scores
// scale·((q+u)·k + (q+v)·r_x), x = i-j (Dai et al. 2019, section 3.3). r is [heads, n, width],
// u and v are [heads, width]; only the first D channels of their rows are used.
func TransformerXL(r, u, v []float64, heads, n, width int, scale float64) HeadMatrix {
	row := func(x []float64, h, rows, i, d int) []float64 {
		return x[(min(h, heads-1)*rows+i)*width:][:d]
	}
	return (&Pattern{
		Scale: scale,
		Times: func(_, at, j int, _ bool) float64 { return indicator(0 <= at-j && at-j < n) },
		Score: func(h int, q, k []float64, at, j int, scale float64) float64 {
			var s float64
			u, v, r := row(u, h, 1, 0, len(q)), row(v, h, 1, 0, len(q)), row(r, h, n, at-j, len(q))
			for e := range q {
				s += (q[e]+u[e])*k[e] + (q[e]+v[e])*r[e]
			}
			return scale * s
		},
	}).HeadMatrix()
}
