package zoo

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Scores is Primal-Attention (Chen et al. 2023, arXiv 2305.19798, eq. 6): outputs from
// projections of single tokens, without pairs. With x̂ = x/|x| the query and the key at
// a position have
//
//	e = Wₑᵀ·q̂, r = Wᵣᵀ·k̂       o = Wc·[e; r] + b
//
// Wₑ and Wᵣ [D,R] are learned, or computed from the values of L evenly spaced tokens by
// learned matrices [L,R]. If no unmasked key stands at a query's position, r is 0.
//
// In a causal call a query is replaced by the mean of the queries from the first that
// sees a key up to itself, and the key by the mean of the visible keys. Computed
// projections have no causal form.
//
// Heads have an auxiliary loss J, the sum over the positions with an unmasked key. It draws
// Wₑ and Wᵣ towards singular vectors of the kernel between q̂ and k̂:
//
//	J = ½Σ eᵀΛe + ½Σ rᵀΛr - tr(WₑᵀWᵣ)
type Scores struct {
	ScoresSpec
	// [H,D,R], or [H,L,R] with Tokens; [1,...] for all heads. Narrower rows use the
	// first channels.
	We, Wr *param.Param
	Lambda *param.Param // [H,R]
	// [W,2R] and [W], for all heads: outputs have at most W channels.
	Wc, Bias *param.Param
	params   param.Set
}

// ScoresSpec configures a Scores.
type ScoresSpec struct {
	Name, Setting string
	Rank          int
	Tokens        int // L, the tokens whose values make the projections; 0: the projections are learned

	// Weight multiplies the loss, which Forward leaves in Head.Aux; 0: there is no loss.
	Weight float64
	// Squared makes the loss J² of each head and sequence instead of J.
	Squared bool
	// Means replaces the sums over positions in J by means, and Λ by Λ².
	Means bool
	// LearnedTrace takes the trace in J over the learned matrices instead of the
	// projections that are computed from them. It matters only where Tokens is not 0.
	LearnedTrace bool
}

// NewScores returns a Scores for heads whose queries, keys and values have at most width
// channels. All parameters are 0; the caller sets them.
func NewScores(s ScoresSpec, heads, width int) *Scores {
	x := &Scores{ScoresSpec: s}
	rows := width
	if s.Tokens > 0 {
		rows = s.Tokens
	}
	x.We = x.params.New("We", true, heads, rows, s.Rank)
	x.Wr = x.params.New("Wr", true, heads, rows, s.Rank)
	x.Lambda = x.params.New("Lambda", false, heads, s.Rank)
	x.Wc = x.params.New("Wc", true, width, 2*s.Rank)
	x.Bias = x.params.New("Wc_bias", false, width)
	return x
}

// Traits returns the traits of the mechanism.
func (x *Scores) Traits() attention.Traits {
	t := attention.Traits{Name: x.Name, Causal: x.Tokens == 0, Streaming: x.Tokens == 0, PlacedQueries: true}
	if !t.Causal {
		t.NoCausal = "its projections are made of tokens of the whole sequence"
	}
	return t
}

// Setting returns the setting of the mechanism.
func (x *Scores) Setting() string { return x.ScoresSpec.Setting }

// Params returns the learned parameters.
func (x *Scores) Params() *param.Set { return &x.params }

// Constants returns nil: a Scores has no random numbers.
func (x *Scores) Constants() *param.Set { return nil }

// NoMatrixReason says why there is no attention matrix.
func (x *Scores) NoMatrixReason() string { return "its outputs are not made of pairs of tokens" }

// Check returns an error if the heads or a width of c do not fit the parameters.
func (x *Scores) Check(c *attention.Call) error {
	width := x.Wc.Shape[0]
	switch s := x.We.Shape; {
	case s[0] != 1 && s[0] != c.Q.H:
		return fmt.Errorf("q: has %d heads, We of %s is of %d", c.Q.H, x.Name, s[0])
	case c.Q.D > width:
		return fmt.Errorf("q: D is %d, %s is of %d", c.Q.D, x.Name, width)
	case c.V.D > width:
		return fmt.Errorf("v: Dv is %d, Wc of %s has %d rows", c.V.D, x.Name, width)
	}
	return nil
}

// Cost returns the cost of one head of a sequence.
func (x *Scores) Cost(s attention.Shape) headwise.Cost {
	n, rank := float64(s.N), float64(x.Rank)
	c := headwise.Cost{FLOPs: 4 * n * rank * float64(s.D+s.Dv), Bytes: float64(scratch.ElementSize[float]()) * 2 * n * (float64(s.D) + rank)}
	if x.Tokens > 0 {
		c.FLOPs += 4 * rank * float64(s.Dv) * min(n, float64(x.Tokens))
	}
	return c
}

// ofHead returns the matrix of a head as a view of data, the elements or the gradient of
// parameter p. A parameter of shape [H,R] gives one row.
func (x *Scores) ofHead(p *param.Param, data []float, head int) tensor.Mat {
	rows, cols := p.Shape[len(p.Shape)-2], p.Shape[len(p.Shape)-1]
	if len(p.Shape) == 2 { // a row of each head
		rows = 1
	}
	at := min(head, p.Shape[0]-1) * rows * cols
	return tensor.Mat{Data: data[at:][:rows*cols], Rows: rows, Cols: cols, Stride: cols}
}

// matrix returns the first dv rows [dv,2R] of Wc or of its gradient as a view of data.
func (x *Scores) matrix(data []float, dv int) tensor.Mat {
	return tensor.Mat{Data: data, Rows: dv, Cols: 2 * x.Rank, Stride: 2 * x.Rank}
}

// scored holds the intermediate values of one head.
type scored struct {
	q, k        tensor.Mat // [n,D] queries and keys, in causal calls their means, divided by their lengths
	lq, lk      []float64  // the lengths
	we, wr      tensor.Mat // [D,R]
	projections tensor.Mat // [n,2R] e and r
	sub         tensor.Mat // [L,min(D,Dv)] values from which projections are computed
	keys        int        // queries with an unmasked key at their position
}

func (s *scored) e(rank int) tensor.Mat {
	return tensor.Mat{Data: s.projections.Data, Rows: s.projections.Rows, Cols: rank, Stride: s.projections.Stride}
}

func (s *scored) r(rank int) tensor.Mat {
	m := s.e(rank)
	if len(m.Data) > 0 {
		m.Data = m.Data[rank:]
	}
	return m
}

// open computes the projections e and r of the queries of a head.
func (x *Scores) open(h *headwise.Head) (s scored) {
	n, d := h.Q.Rows, h.Q.Cols
	s = scored{q: h.TakeScratch(n, d), k: h.TakeScratch(n, d), projections: h.TakeScratch(n, 2*x.Rank)}
	s.lq, s.lk = arena.Take[float64](h.Scratch, n), arena.Take[float64](h.Scratch, n)
	sum, count := arena.TakeZeros[float64](h.Scratch, d), 0
	for i := range n {
		row := s.q.Row(i)
		if copy(row, h.Q.Row(i)); h.Causal {
			meanOf(row, h.Q.Row(i), sum, i+1)
		}
		s.lq[i] = toLength1(row)
	}
	clear(sum)
	next := 0
	for i := range n {
		row := s.k.Row(i)
		clear(row)
		if hasKeyAt(h, i) {
			s.keys++
		}
		if !h.Causal {
			if hasKeyAt(h, i) {
				copy(row, h.K.Row(i))
			}
		} else {
			for ; next < h.VisibleKeys(i); next++ {
				if h.IsUnmasked(next) {
					count++
					addTo(sum, h.K.Row(next))
				}
			}
			setMean(row, sum, count)
		}
		s.lk[i] = toLength1(row)
	}
	s.we, s.wr = x.ofHead(x.We, x.We.Data, h.Head), x.ofHead(x.Wr, x.Wr.Data, h.Head)
	if x.Tokens > 0 {
		x.sample(h, &s)
		l := s.sub.Rows
		made := func(w tensor.Mat) tensor.Mat {
			y := tensor.Mat{Data: arena.TakeZeros[float](h.Scratch, d*x.Rank), Rows: d, Cols: x.Rank, Stride: x.Rank}
			h.Multiply(y.Slice(0, s.sub.Cols), s.sub, w.Slice(0, l), true, false, false)
			return y
		}
		s.we, s.wr = made(s.we), made(s.wr)
	} else {
		s.we, s.wr = s.we.Slice(0, d), s.wr.Slice(0, d)
	}
	h.Multiply(s.e(x.Rank), s.q, s.we, false, false, false)
	h.Multiply(s.r(x.Rank), s.k, s.wr, false, false, false)
	return s
}

// hasKeyAt reports whether there is an unmasked key at the position of query i.
func hasKeyAt(h *headwise.Head, i int) bool {
	return i+h.Offset < h.K.Rows && h.IsUnmasked(i+h.Offset)
}

// sample sets the values from which projections are computed.
func (x *Scores) sample(h *headwise.Head, s *scored) {
	s.sub = h.TakeScratch(min(h.CountUnmasked(), x.Tokens), min(h.Q.Cols, h.V.Cols))
	samples(h, s.sub.Rows, func(i, j int) { copy(s.sub.Row(i), h.V.Row(j)) })
}

// samples calls f for l of the m unmasked keys, evenly spaced, with the number i of the
// sample and the index j of the key. Sample i is unmasked key ⌊i·(m-1)/(l-1)⌋.
func samples(h *headwise.Head, l int, f func(i, j int)) {
	m, i, seen := h.CountUnmasked(), 0, 0
	for j := range h.K.Rows {
		if !h.IsUnmasked(j) {
			continue
		}
		if i < l && seen == i*(m-1)/max(l-1, 1) {
			f(i, j)
			i++
		}
		seen++
	}
}

// addTo adds x to sum, element by element.
func addTo[T kernel.Float](sum []float64, x []T) {
	for c, v := range x {
		sum[c] += float64(v)
	}
}

// setMean sets row to sum/n.
func setMean(row []float, sum []float64, n int) {
	for c, v := range sum {
		row[c] = float(v / float64(n))
	}
}

// meanOf adds x to sum, which then holds n tokens, and sets row to their mean.
func meanOf(row, x []float, sum []float64, n int) {
	addTo(sum, x)
	setMean(row, sum, n)
}

// toLength1 divides x by its length and returns the length. A row of zeros stays.
func toLength1(x []float) float64 {
	l := scratch.Norm2(x)
	for c := range x {
		if l > 0 {
			x[c] = float(float64(x[c]) / l)
		}
	}
	return l
}

// fromLength1 replaces dy, the gradient of the result y of toLength1, by the gradient
// of its argument.
func fromLength1(dy, y []float, l float64) {
	var along float64
	for c, v := range y {
		along += float64(v) * float64(dy[c])
	}
	for c, v := range y {
		switch {
		case l > 0:
			dy[c] = float((float64(dy[c]) - along*float64(v)) / l)
		default:
			dy[c] = 0
		}
	}
}

// Forward sets h.Out, and h.Aux to the auxiliary loss.
func (x *Scores) Forward(h *headwise.Head) {
	s := x.open(h)
	h.Multiply(h.Out, s.projections, x.matrix(x.Wc.Data, h.V.Cols), false, true, false)
	bias := x.Bias.Data[:h.V.Cols]
	for i := range h.Out.Rows {
		h.Table.Add(h.Out.Row(i), h.Out.Row(i), bias)
	}
	if x.Weight == 0 {
		return
	}
	h.Aux = x.Weight * x.loss(h, &s)
	if x.Squared {
		h.Aux *= h.Aux / x.Weight
	}
}

// share returns the factor of the squares of e and r in J: ½, with Means over the number of
// positions.
func (x *Scores) share(s *scored) float64 {
	if x.Means {
		return 0.5 / float64(max(s.keys, 1))
	}
	return 0.5
}

// weigh returns the factor of squares in J that an element of Λ gives, and the derivative of
// that factor by lambda.
func (x *Scores) weigh(lambda float) (f, slope float64) {
	if x.Means {
		return float64(lambda) * float64(lambda), 2 * float64(lambda)
	}
	return float64(lambda), 1
}

// traces returns the two matrices of the trace in J.
func (x *Scores) traces(h *headwise.Head, s *scored) (we, wr tensor.Mat) {
	if x.Tokens > 0 && x.LearnedTrace {
		return x.ofHead(x.We, x.We.Data, h.Head), x.ofHead(x.Wr, x.Wr.Data, h.Head)
	}
	return s.we, s.wr
}

// loss returns J.
func (x *Scores) loss(h *headwise.Head, s *scored) float64 {
	var j float64
	lambda := x.ofHead(x.Lambda, x.Lambda.Data, h.Head).Row(0)
	share := x.share(s)
	for i := range s.projections.Rows {
		if !hasKeyAt(h, i) {
			continue
		}
		row := s.projections.Row(i)
		for c, l := range lambda {
			f, _ := x.weigh(l)
			e, r := float64(row[c]), float64(row[x.Rank+c])
			j += f * share * (e*e + r*r)
		}
	}
	we, wr := x.traces(h, s)
	for i := range we.Rows {
		a, b := we.Row(i), wr.Row(i)
		for c := range a {
			j -= float64(a[c]) * float64(b[c])
		}
	}
	return j
}

// Backward sets the gradients of queries, keys and values, and adds to those of parameters.
// It recomputes the projections: Forward saves nothing.
func (x *Scores) Backward(h *headwise.Head, g *headwise.Grads) {
	s := x.open(h)
	n, d, rank := h.Q.Rows, h.Q.Cols, x.Rank
	g.Clear()
	dboth := h.TakeScratch(n, 2*rank)
	h.Multiply(dboth, g.DOut, x.matrix(x.Wc.Data, h.V.Cols), false, false, false)
	h.Multiply(x.matrix(g.Params[3], h.V.Cols), g.DOut, s.projections, true, false, true)
	for i := range n {
		h.Table.Add(g.Params[4][:h.V.Cols], g.Params[4][:h.V.Cols], g.DOut.Row(i))
	}
	dwe := tensor.Mat{Data: arena.TakeZeros[float](h.Scratch, d*rank), Rows: d, Cols: rank, Stride: rank}
	dwr := tensor.Mat{Data: arena.TakeZeros[float](h.Scratch, d*rank), Rows: d, Cols: rank, Stride: rank}
	if x.Weight != 0 && g.DAux != 0 {
		x.lossGrad(h, g, &s, dboth, dwe, dwr)
	}
	part := func(at int) tensor.Mat {
		return tensor.Mat{Data: dboth.Data[at:], Rows: n, Cols: rank, Stride: 2 * rank}
	}
	h.Multiply(dwe, s.q, part(0), true, false, true)
	h.Multiply(dwr, s.k, part(rank), true, false, true)
	dk := h.TakeScratch(n, d)
	h.Multiply(g.DQ, part(0), s.we, false, true, false)
	h.Multiply(dk, part(rank), s.wr, false, true, false)
	for i := range n {
		fromLength1(g.DQ.Row(i), s.q.Row(i), s.lq[i])
		fromLength1(dk.Row(i), s.k.Row(i), s.lk[i])
	}
	x.tokensGrad(h, g, dk)
	we, wr := x.ofHead(x.We, g.Params[0], h.Head), x.ofHead(x.Wr, g.Params[1], h.Head)
	if x.Tokens == 0 {
		addRows(we, dwe)
		addRows(wr, dwr)
		return
	}
	l, w := s.sub.Rows, s.sub.Cols
	h.Multiply(we.Slice(0, l), s.sub, dwe.Slice(0, w), false, false, true)
	h.Multiply(wr.Slice(0, l), s.sub, dwr.Slice(0, w), false, false, true)
	dsub := h.TakeScratch(l, w)
	h.Multiply(dsub, x.ofHead(x.We, x.We.Data, h.Head).Slice(0, l), dwe.Slice(0, w), false, true, false)
	h.Multiply(dsub, x.ofHead(x.Wr, x.Wr.Data, h.Head).Slice(0, l), dwr.Slice(0, w), false, true, true)
	samples(h, l, func(i, j int) { copy(g.DV.Row(j)[:w], dsub.Row(i)) })
}

// lossGrad adds the gradients of the loss to those of e and r in dboth [n,2R], of Λ and of
// the matrices in the trace.
func (x *Scores) lossGrad(h *headwise.Head, g *headwise.Grads, s *scored, dboth, dwe, dwr tensor.Mat) {
	dj := float64(g.DAux) * x.Weight
	if x.Squared {
		dj *= 2 * x.loss(h, s)
	}
	lambda, dlambda := x.ofHead(x.Lambda, x.Lambda.Data, h.Head).Row(0), x.ofHead(x.Lambda, g.Params[2], h.Head).Row(0)
	share := x.share(s)
	for c, l := range lambda {
		f, slope := x.weigh(l)
		var squares float64
		for i := range s.projections.Rows {
			if !hasKeyAt(h, i) {
				continue
			}
			row, to := s.projections.Row(i), dboth.Row(i)
			e, r := float64(row[c]), float64(row[x.Rank+c])
			squares += share * (e*e + r*r)
			to[c] += float(2 * dj * f * share * e)
			to[x.Rank+c] += float(2 * dj * f * share * r)
		}
		dlambda[c] += float(dj * slope * squares)
	}
	we, wr := x.traces(h, s)
	if x.Tokens > 0 && x.LearnedTrace {
		dwe, dwr = x.ofHead(x.We, g.Params[0], h.Head), x.ofHead(x.Wr, g.Params[1], h.Head)
	}
	for i := range we.Rows {
		h.Table.Axpy(dwe.Row(i), float(-dj), wr.Row(i))
		h.Table.Axpy(dwr.Row(i), float(-dj), we.Row(i))
	}
}

// tokensGrad turns the gradients of rows that were projected, in g.DQ and dk, into gradients of
// queries in g.DQ and of keys in g.DK. In causal calls these rows are means.
func (x *Scores) tokensGrad(h *headwise.Head, g *headwise.Grads, dk tensor.Mat) {
	n, d := h.Q.Rows, h.Q.Cols
	if !h.Causal {
		for i := range n {
			if at := i + h.Offset; at < h.K.Rows {
				copy(g.DK.Row(at), dk.Row(i))
			}
		}
		return
	}
	sum, keys := arena.TakeZeros[float64](h.Scratch, d), h.CountUnmasked()
	for j := h.VisibleKeys(n - 1); j < h.K.Rows; j++ {
		if h.IsUnmasked(j) {
			keys-- // no query sees it
		}
	}
	sumK := arena.TakeZeros[float64](h.Scratch, d)
	for i := n - 1; i >= 0; i-- {
		for c, v := range g.DQ.Row(i) {
			sum[c] += float64(v) / float64(i+1)
			g.DQ.Row(i)[c] = float(sum[c])
		}
		for c, v := range dk.Row(i) {
			sumK[c] += float64(v) / float64(keys)
		}
		first := 0 // first key that query i sees and query i-1 does not
		if i > 0 {
			first = h.VisibleKeys(i - 1)
		}
		for j := h.VisibleKeys(i) - 1; j >= first; j-- {
			if h.IsUnmasked(j) {
				setMean(g.DK.Row(j), sumK, 1)
				keys--
			}
		}
	}
}

// addRows adds x to the first rows of y.
func addRows(y, x tensor.Mat) {
	for i := range x.Rows {
		for c, v := range x.Row(i) {
			y.Row(i)[c] += v
		}
	}
}
