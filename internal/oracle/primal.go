package oracle

// Primal is Primal-Attention (arXiv 2305.19798, eq. 6). Its outputs [n][Dv] are made from two
// projections: e of each query, and r of the key at the query's position. Rows are divided by
// their lengths before. In a causal call e and r are running means.
type Primal struct {
	We, Wr  [][][]float64 // [H][D or L][R]
	Wc      [][]float64   // [Dv][2R]
	Bias    []float64
	Tokens  int // the projections are made from the values of this many tokens; 0: they are learned
	Lambda  [][]float64
	Means   bool // Loss takes the mean over positions, with Λ² in place of Λ
	Learned bool // the trace of the loss is of We and Wr even if Tokens is set
}

func unitRow(x []float64) []float64 {
	if l := euclideanNorm(x); l > 0 {
		return scaledBy(1/l, x)
	}
	return make([]float64, len(x))
}

// projections returns the projections of a head: w, or one made from values v.
func (p *Primal) projections(h *Head, w [][]float64, v [][]float64) [][]float64 {
	if p.Tokens == 0 {
		return w
	}
	var exist []int
	for j := range h.Exist {
		if h.Exist[j] {
			exist = append(exist, j)
		}
	}
	y := make([][]float64, len(h.Q[0]))
	for c := range y {
		y[c] = make([]float64, len(w[0]))
	}
	l := min(p.Tokens, len(exist))
	for i := range l {
		at := 0
		if l > 1 {
			at = exist[i*(len(exist)-1)/(l-1)]
		} else {
			at = exist[0]
		}
		for c := range y {
			if c < len(v[at]) {
				addScaled(y[c], v[at][c], w[i])
			}
		}
	}
	return y
}

// scores returns the rows e and r, and the projections.
func (p *Primal) scores(h *Head, v [][]float64) (e, r, we, wr [][]float64) {
	we, wr = p.projections(h, p.We[h.Head%len(p.We)], v), p.projections(h, p.Wr[h.Head%len(p.Wr)], v)
	project := func(x []float64, w [][]float64) []float64 {
		y := make([]float64, len(w[0]))
		for c, value := range unitRow(x) {
			addScaled(y, value, w[c])
		}
		return y
	}
	queries := make([]float64, len(h.Q[0]))
	count := 0.0
	for i := range h.Q {
		q, k := h.Q[i], make([]float64, len(h.Q[i]))
		at := i + h.Offset
		if h.Causal {
			keys := 0.0
			for j := range h.Exist {
				if h.Sees(i, j) {
					addScaled(k, 1, h.K[j])
					keys++
				}
			}
			if keys > 0 {
				addScaled(queries, 1, q)
				count++
				q, k = scaledBy(1/count, queries), scaledBy(1/keys, k)
			}
		} else if at < len(h.K) && h.Exist[at] {
			k = h.K[at]
		}
		e, r = append(e, project(q, we)), append(r, project(k, wr))
	}
	return e, r, we, wr
}

// Outputs returns the outputs [n,dv] of a head with values v [m,dv].
func (p *Primal) Outputs(h *Head, v [][]float64, dv int) [][]float64 {
	e, r, _, _ := p.scores(h, v)
	o := make([][]float64, len(e))
	for i := range o {
		both := append(append([]float64{}, e[i]...), r[i]...)
		for c := range dv {
			o[i] = append(o[i], dotProduct(p.Wc[c], both)+p.Bias[c])
		}
	}
	return o
}

// Loss returns the loss J of a head with values v [m,Dv]: eq. 10 without its factor, over the
// positions of unmasked keys. Every query must see a key.
func (p *Primal) Loss(h *Head, v [][]float64) float64 {
	e, r, we, wr := p.scores(h, v)
	if p.Learned {
		we, wr = p.We[h.Head%len(p.We)], p.Wr[h.Head%len(p.Wr)]
	}
	var counts []int
	for i := range e {
		if at := i + h.Offset; at < len(h.Exist) && h.Exist[at] {
			counts = append(counts, i)
		}
	}
	var j float64
	for c, l := range p.Lambda[h.Head%len(p.Lambda)] {
		share := 0.5 * l
		if p.Means {
			share = 0.5 * l * l / float64(len(counts))
		}
		for _, i := range counts {
			j += share * (e[i][c]*e[i][c] + r[i][c]*r[i][c])
		}
	}
	for c := range we {
		j -= dotProduct(we[c], wr[c])
	}
	return j
}

// Losses returns the sum of f(J) over all heads of all sequences. Every query must see a key.
func (p *Primal) Losses(c *Call, f func(j float64) float64) (sum float64) {
	for _, s := range c.sequences() {
		for h := range c.Q.H {
			x := c.head(s, h)
			sum += f(p.Loss(x, x.values(c, s, h)))
		}
	}
	return sum
}

// values returns the values [m,Dv] of a head, zeros at masked keys.
func (h *Head) values(c *Call, s sequence, head int) (v [][]float64) {
	for j, exists := range h.Exist {
		row := make([]float64, c.V.D)
		if exists {
			copy(row, c.V.Head(s.b, head/(c.Q.H/c.K.H)).Row(s.k0+j))
		}
		v = append(v, row)
	}
	return v
}
