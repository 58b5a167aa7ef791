package oracle

// These normalisations use all tokens of a sequence, like the programs of FAST's authors. M is
// the largest 2-norm over the tokens of a head.
const (
	Max            Norm = iota + Bounded + 1 // x/M
	TokenCentred                             // (x - mean of the channel over tokens)/M
	ChannelCentred                           // (x - mean of the token over channels)/M
	GlobalCentred                            // (x - mean over tokens, channels and heads)/M
	MaxSquared                               // x/max(0.1, M²)
)

// side is the queries or the keys of all heads of a sequence.
type side struct {
	x     Heads
	b     int // batch row
	t0, n int
	// exists reports whether token t is unmasked.
	exists func(t int) bool
}

func (c *Call) querySide(s sequence) side {
	return side{c.Q, s.b, s.q0, s.n, func(int) bool { return true }}
}

func (c *Call) keySide(s sequence) side {
	return side{c.K, s.b, s.k0, s.m, func(j int) bool { return c.isUnmasked(s, j) }}
}

func (s *side) row(h, t int) []float64 { return s.x.Head(s.b, h).Row(s.t0 + t) }

// mean returns the mean that norm n subtracts from x[c] of head h and token t.
func (s *side) mean(n Norm, h, t, c int) float64 {
	var sum, count float64
	take := func(h, t, c int) { sum, count = sum+s.row(h, t)[c], count+1 }
	tokens := func(f func(t int)) {
		for t := range s.n {
			if s.exists(t) {
				f(t)
			}
		}
	}
	switch n {
	case TokenCentred:
		tokens(func(t int) { take(h, t, c) })
	case ChannelCentred:
		for c := range s.x.D {
			take(h, t, c)
		}
	case GlobalCentred:
		for h := range s.x.H {
			tokens(func(t int) {
				for c := range s.x.D {
					take(h, t, c)
				}
			})
		}
	default:
		return 0
	}
	return sum / count
}

// centred returns the rows of head h less their means.
func (s *side) centred(n Norm, h int) [][]float64 {
	rows := make([][]float64, s.n)
	for t := range rows {
		rows[t] = make([]float64, s.x.D)
		if s.exists(t) {
			for c, y := range s.row(h, t) {
				rows[t][c] = y - s.mean(n, h, t, c)
			}
		}
	}
	return rows
}

// longestLength returns the largest 2-norm of rows and where it is.
func longestLength(rows [][]float64) (m float64, at int) {
	for t, y := range rows {
		if l := euclideanNorm(y); l > m {
			m, at = l, t
		}
	}
	return m, at
}

// normalised returns the rows of head h under norm n.
func (s *side) normalised(n Norm, h int) [][]float64 {
	if n < Max {
		rows := make([][]float64, s.n)
		for t := range rows {
			rows[t] = n.apply(s.row(h, t))
		}
		return rows
	}
	rows := s.centred(n, h)
	m, _ := longestLength(rows)
	over := m
	if n == MaxSquared {
		over = max(0.1, m*m)
	}
	for t := range rows {
		for c := range rows[t] {
			if over != 0 {
				rows[t][c] /= over
			}
		}
	}
	return rows
}

// Lengths returns the divisor of each query and of each key under the normalisation, in the
// order of their rows. It is 1 if the normalisation divides by nothing.
func (m *Mechanism) Lengths(c *Call) (q, k []float64) {
	one := func(x Heads) Heads {
		l := NewHeads(x.B, x.H, x.N, 1)
		for i := range l.Data {
			l.Data[i] = 1
		}
		return l
	}
	lq, lk := one(c.Q), one(c.K)
	for _, s := range c.sequences() {
		queries, keys := c.querySide(s), c.keySide(s)
		queries.lengths(m.Norm, lq)
		keys.lengths(m.Norm, lk)
	}
	return lq.Data, lk.Data
}

// lengths puts what norm n divides the rows of s by where it is not 0.
func (s *side) lengths(n Norm, to Heads) {
	if n == NoNorm {
		return
	}
	for h := range s.x.H {
		longest, _ := longestLength(s.centred(n, h))
		for t := range s.n {
			over := longest
			switch {
			case n < Max:
				_, over = n.centre(s.row(h, t))
			case n == MaxSquared:
				over = max(0.1, longest*longest)
			}
			if over != 0 {
				to.Head(s.b, h).Row(s.t0 + t)[0] = over
			}
		}
	}
}

// normalisedGrad turns d, the gradients by normalised rows, into those by the
// raw ones. They lie as the rows of s do.
func (s *side) normalisedGrad(n Norm, d Heads) {
	to := *s
	to.x = d
	for h := range s.x.H {
		if n < Max {
			for t := range s.n {
				if s.exists(t) {
					copy(to.row(h, t), n.grad(s.row(h, t), to.row(h, t)))
				}
			}
			continue
		}
		// x̂_t = y_t/L(M): dy_t = dx̂_t/L, dL = -Σ_t dx̂_t·y_t/L², and M is the
		// length of y_at.
		y := s.centred(n, h)
		m, at := longestLength(y)
		l, slope := m, 1.0 // dL/dM
		if n == MaxSquared {
			l, slope = max(0.1, m*m), 2*m
			if m*m <= 0.1 {
				slope = 0
			}
		}
		var dl float64
		for t := range s.n {
			row := to.row(h, t)
			for c := range row {
				if l == 0 {
					row[c] = 0
					continue
				}
				dl -= row[c] * y[t][c] / (l * l)
				row[c] /= l
			}
		}
		if m > 0 {
			addScaled(to.row(h, at), dl*slope/m, y[at])
		}
	}
	// The mean is subtracted, so its share of the gradient is as well.
	if n >= Max {
		all := make([][][]float64, s.x.H)
		for h := range all {
			all[h] = to.centred(n, h)
		}
		for h := range all {
			for t := range s.n {
				copy(to.row(h, t), all[h][t])
			}
		}
	}
}
