package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// controlVariates is EVA. Chunk c has a key k̄_c, learned from the mean of its keys,
// and a value β_c, the mean of its values under weights of keys around μ_c (Zheng et
// al. 2023, section 4).
type controlVariates struct {
	window, overlap, landmarks int
	chunk                      int  // tokens of a chunk; 0: the sequence is cut into landmarks chunks
	absentAsZero               bool // absent tokens are zeros in means
	setting                    string
	params, constants          *param.Set
	q, k                       evaMap
	rpe, noise                 *param.Param
}

// causalVariates is the causal variant of EVA, whose chunks do not depend on later
// tokens.
type causalVariates struct{ *controlVariates }

// NeedsPastQueries marks that outputs depend on the means of earlier queries.
func (causalVariates) NeedsPastQueries() {}

// evaMap is a linear map followed by a layer norm.
type evaMap struct {
	w, b, gain, bias *param.Param
	firstParam       int
}

func NewEVA(r *entry.Reader) (headwise.Function, error) {
	x := new(controlVariates)
	var err error
	for _, s := range []struct {
		name string
		to   *int
		lo   int
	}{{"window", &x.window, 1}, {"overlap", &x.overlap, 0}, {"landmarks", &x.landmarks, 1}} {
		if *s.to, err = r.Integer(s.name, s.lo, 4096); err != nil {
			return nil, err
		}
	}
	if r.Text("chunk") != "none" {
		if x.chunk, err = r.Integer("chunk", 1, 4096); err != nil {
			return nil, err
		}
		if x.window%x.chunk != 0 {
			return nil, r.Refuse("chunk", fmt.Sprintf("a divisor of window=%d", x.window))
		}
	}
	rpe, err := r.Bool("rpe")
	if err != nil {
		return nil, err
	}
	noise, err := r.Choice("noise", "none", "normal")
	if err != nil {
		return nil, err
	}
	if noise != "none" && x.chunk > 0 {
		return nil, r.Refuse("noise", fmt.Sprintf("none with chunk=%d: it is of each landmark", x.chunk))
	}
	form, err := r.Choice("form", "paper", "code")
	if err != nil {
		return nil, err
	}
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	d, heads := r.ParamWidth(), max(r.Heads, 1)
	for _, a := range []struct {
		name   string
		exists bool
		shape  []int
	}{{"m", true, []int{d, d}}, {"rpe", rpe, []int{heads, x.window, x.window + 2*x.overlap}}, {"noise", noise != "none", []int{heads, x.landmarks, d}}} {
		if !a.exists {
			continue
		}
		if err := r.Room(a.name, a.shape...); err != nil {
			return nil, err
		}
	}
	x.absentAsZero = form == "code"
	x.setting = fmt.Sprintf("eva window=%d overlap=%d landmarks=%d chunk=%s rpe=%t noise=%s form=%s", x.window, x.overlap, x.landmarks, r.Text("chunk"), rpe, noise, form)
	x.params = new(param.Set)
	one := func(side string, stream uint64) evaMap {
		m := evaMap{firstParam: len(x.params.All())}
		m.w, m.b = x.params.New("m"+side, true, d, d), x.params.New("m"+side+"_bias", false, d)
		m.gain, m.bias = x.params.New("ln"+side, false, d), x.params.New("ln"+side+"_bias", false, d)
		for i := range m.w.Data {
			m.w.Data[i] = float((2*key.Fold(stream).Float64(uint64(i)) - 1) * math.Sqrt(3/float64(2*d)))
		}
		for i := range m.gain.Data {
			m.gain.Data[i] = 1
		}
		return m
	}
	x.q, x.k = one("q", 1), one("k", 2)
	if rpe {
		x.rpe = x.params.New("rpe", false, heads, x.window, x.window+2*x.overlap)
	}
	if noise == "normal" {
		x.constants = new(param.Set)
		x.noise = x.constants.New("noise", false, heads, x.landmarks, d)
		for i := range x.noise.Data {
			x.noise.Data[i] = float(key.Fold(3).Normal(uint64(i)))
		}
	}
	if x.chunk > 0 {
		return causalVariates{x}, nil
	}
	return x, nil
}

func (x *controlVariates) Traits() attention.Traits {
	t := attention.Traits{Name: "eva", Positive: true, Causal: x.chunk > 0, PlacedQueries: true, MixedQueries: true}
	if !t.Causal {
		t.NoCausal = "every query sees the summaries of all chunks, later ones too; with a chunk of fixed size it is another function, which is causal"
	}
	return t
}

func (x *controlVariates) Setting() string       { return x.setting }
func (x *controlVariates) Params() *param.Set    { return x.params }
func (x *controlVariates) Constants() *param.Set { return x.constants }

func (x *controlVariates) Check(c *attention.Call) error {
	if d := x.q.b.Shape[0]; c.Q.D != d {
		return fmt.Errorf("q: D is %d, the parameters of eva are of %d", c.Q.D, d)
	}
	if x.rpe != nil {
		if err := entry.CheckHeads("rpe of eva", x.rpe.Shape[0], c.Q.H); err != nil {
			return err
		}
	}
	if x.noise != nil {
		return entry.CheckHeads("noise of eva", x.noise.Shape[0], c.Q.H)
	}
	return nil
}

// evaPass holds the intermediate values of one head. Token j has key j, and the query
// at the same position if there is one.
type evaPass struct {
	*controlVariates
	h                   *headwise.Head
	tokens, chunks      int
	scale               float
	keyCounts, divisors []float       // number of keys of each chunk; divisor of its means
	mean, y             [2]tensor.Mat // of queries and keys of each chunk; input of LayerNorm
	bar                 [2]tensor.Mat // output of LayerNorm: q̄ and k̄
	stats               [2][]float    // statistics of LayerNorm
	mu                  tensor.Mat    // μ
	p                   tensor.Mat    // weights of the keys of each chunk
	beta                tensor.Mat
	windowScores        tensor.Mat // scores of a window
}

// chunkKeys returns the range of keys of chunk c.
func (x *evaPass) chunkKeys(c int) (j0, j1 int) {
	if x.chunk > 0 {
		return c * x.chunk, min((c+1)*x.chunk, x.h.K.Rows)
	}
	j0, j1 = segmentBounds(c, x.chunks, x.tokens)
	return min(max(j0-x.overlap, 0), x.h.K.Rows), min(j1+x.overlap, x.h.K.Rows)
}

// chunkPlaces returns the number of positions of chunk c, empty ones included.
func (x *evaPass) chunkPlaces(c int) int {
	if x.chunk > 0 {
		return x.chunk
	}
	i0, i1 := segmentBounds(c, x.chunks, x.tokens)
	return i1 - i0 + 2*x.overlap
}

// tokenQuery returns the query of token j, nil if there is none.
func (x *evaPass) tokenQuery(j int) []float {
	h := x.h
	switch i := j - h.Offset; {
	case i >= 0 && i < h.Q.Rows:
		return h.Q.Row(i)
	case i < 0 && h.PastQueries.Rows > 0:
		return h.PastQueries.Row(j)
	}
	return nil
}

// sideMaps returns the maps of mean queries and of mean keys.
func (x *controlVariates) sideMaps() [2]evaMap { return [2]evaMap{x.q, x.k} }

// newPass computes the means, maps and summaries of all chunks of a head.
func (v *controlVariates) newPass(h *headwise.Head) evaPass {
	const normEps = 1e-5
	d := h.Q.Cols
	x := evaPass{controlVariates: v, h: h, tokens: max(h.Q.Rows, h.K.Rows), scale: float(1 / math.Sqrt(float64(d)))}
	x.chunks = min(v.landmarks, x.tokens)
	longest := (x.tokens+x.chunks-1)/x.chunks + 2*v.overlap
	if v.chunk > 0 {
		x.chunks, longest = (h.K.Rows+v.chunk-1)/v.chunk, v.chunk
	}
	x.keyCounts, x.divisors = arena.TakeZeros[float](h.Scratch, x.chunks), arena.Take[float](h.Scratch, x.chunks)
	x.p = h.TakeScratch(x.chunks, longest)
	for side := range x.mean {
		x.mean[side], x.y[side], x.bar[side] = h.TakeScratch(x.chunks, d), h.TakeScratch(x.chunks, d), h.TakeScratch(x.chunks, d)
		clear(x.mean[side].Data)
		x.stats[side] = arena.Take[float](h.Scratch, 2*x.chunks)
	}
	for c := range x.chunks {
		x.averageChunk(c)
	}
	for side, m := range v.sideMaps() {
		y := x.y[side]
		for c := range x.chunks {
			copy(y.Row(c), m.b.Data)
		}
		h.Multiply(y, x.mean[side], tensor.Mat{Data: m.w.Data, Rows: d, Cols: d, Stride: d}, false, true, true)
		h.Table.LayerNorm(x.bar[side].Data, x.bar[side].Stride, y.Data, y.Stride, x.chunks, d, m.gain.Data, m.bias.Data, x.stats[side], normEps)
		for c := range x.chunks {
			if stats := x.stats[side][2*c:][:2]; !(stats[1] > 0) {
				stats[0], stats[1] = scratch.NormaliseLargeRow(x.bar[side].Row(c), y.Row(c), m.gain.Data, m.bias.Data, normEps)
			}
		}
	}
	x.mu, x.beta = h.TakeScratch(x.chunks, d), h.TakeScratch(x.chunks, h.V.Cols)
	for c := range x.chunks {
		x.summariseChunk(c)
	}
	x.windowScores = h.TakeScratch(min(v.window, h.Q.Rows), v.window+2*v.overlap+x.chunks)
	return x
}

// averageChunk sets the mean query and the mean key of chunk c.
func (x *evaPass) averageChunk(c int) {
	h := x.h
	j0, j1 := x.chunkKeys(c)
	for j := j0; j < j1; j++ {
		if !h.IsUnmasked(j) {
			continue
		}
		x.keyCounts[c]++
		h.Table.Add(x.mean[1].Row(c), x.mean[1].Row(c), h.K.Row(j))
		if q := x.tokenQuery(j); q != nil {
			h.Table.Add(x.mean[0].Row(c), x.mean[0].Row(c), q)
		}
	}
	x.divisors[c] = max(x.keyCounts[c], 1)
	if x.absentAsZero {
		x.divisors[c] = float(x.chunkPlaces(c))
	}
	for side := range x.mean {
		h.Table.Scale(x.mean[side].Row(c), 1/x.divisors[c], x.mean[side].Row(c))
	}
}

// summariseChunk sets μ, the weights and β of chunk c.
func (x *evaPass) summariseChunk(c int) {
	h := x.h
	mu := x.mu.Row(c)
	h.Table.Add(mu, x.bar[0].Row(c), x.bar[1].Row(c))
	if x.chunk == 0 {
		h.Table.Scale(mu, 0.5, mu)
	}
	if x.noise != nil {
		l, d := x.noise.Shape[1], x.noise.Shape[2]
		h.Table.Add(mu, mu, x.noise.Data[(min(h.Head, x.noise.Shape[0]-1)*l+c)*d:][:d])
	}
	clear(x.beta.Row(c))
	if x.keyCounts[c] == 0 {
		return
	}
	j0, j1 := x.chunkKeys(c)
	p := x.p.Row(c)[:j1-j0]
	for j := range p {
		if p[j] = absentScore(); h.IsUnmasked(j0 + j) {
			k := h.K.Row(j0 + j)
			p[j] = x.scale * (h.Table.Dot(k, mu) - h.Table.Dot(k, k)/2)
		}
	}
	h.SoftmaxRows(tensor.Mat{Data: p, Rows: 1, Cols: len(p), Stride: len(p)})
	for j, w := range p {
		if w != 0 {
			h.Table.Axpy(x.beta.Row(c), w, h.V.Row(j0+j))
		}
	}
}

// absentScore returns the score of an absent token. Its exponential is 0, however low
// the other scores are.
func absentScore() float { return float(math.Inf(-1)) }

// evaWindow holds the queries i0 ≤ i < i1 of a window, its keys j0 ≤ j < j1 and how many
// of the first chunks its queries see.
type evaWindow struct {
	first                    int // token of the window
	i0, i1, j0, j1, chunks   int
	keyWeights, chunkWeights tensor.Mat // scores of keys, and of chunks, side by side
	weights                  tensor.Mat
}

// windowWeights returns the window that begins at query i0, with its weights. The keys
// and chunks of a window depend on its position, not on the number of queries.
func (x *evaPass) windowWeights(i0 int) evaWindow {
	h := x.h
	first := (h.Offset + i0) / x.window * x.window
	end := first + x.window
	w := evaWindow{first: first, i0: i0, i1: min(end-h.Offset, h.Q.Rows), j0: min(max(first-x.overlap, 0), h.K.Rows), j1: min(end+x.overlap, h.K.Rows), chunks: x.chunks}
	if h.Causal {
		w.j1 = min(end, h.K.Rows)
		w.chunks = min(end/x.chunk-1, x.chunks)
	}
	n, keys := w.i1-w.i0, w.j1-w.j0
	w.weights = tensor.Mat{Data: x.windowScores.Data, Rows: n, Cols: keys + w.chunks, Stride: keys + w.chunks}
	w.keyWeights, w.chunkWeights = entry.SliceColumns(w.weights, 0, keys), entry.SliceColumns(w.weights, keys, w.weights.Cols)
	q := h.Q.Slice(w.i0, w.i1)
	if keys > 0 {
		h.Multiply(w.keyWeights, q, h.K.Slice(w.j0, w.j1), false, true, false)
	}
	h.Multiply(w.chunkWeights, q, x.bar[1].Slice(0, w.chunks), false, true, false)
	for i := range n {
		row := w.weights.Row(i)
		see, chunks := w.j1, w.chunks // end of the keys, and of the chunks, of this query
		if place := h.Offset + i0 + i; h.Causal {
			see, chunks = min(place+1, see), min(place/x.chunk, chunks)
		}
		h.Table.Scale(row, x.scale, row)
		if x.rpe != nil && keys > 0 {
			bias := x.biasRow(x.rpe.Data, i, w)
			h.Table.Add(row[:keys], row, bias)
		}
		for j := range keys {
			if w.j0+j >= see || !h.IsUnmasked(w.j0+j) {
				row[j] = absentScore()
			}
		}
		for c := range w.chunks {
			if c >= chunks || x.keyCounts[c] == 0 {
				row[keys+c] = absentScore()
			}
		}
	}
	h.SoftmaxRows(w.weights)
	return w
}

// biasRow returns the biases of the keys of a window for query i of the window. params
// has the layout of the parameter rpe.
func (x *evaPass) biasRow(params []float, i int, w evaWindow) []float {
	cols, row := x.rpe.Shape[2], x.h.Offset+w.i0+i-w.first
	at := (min(x.h.Head, x.rpe.Shape[0]-1)*x.window+row)*cols + w.j0 - (w.first - x.overlap)
	return params[at:][:w.j1-w.j0]
}

func (v *controlVariates) Forward(h *headwise.Head) {
	h.SaveBuffer(0)
	x := v.newPass(h)
	for i0 := 0; i0 < h.Q.Rows; {
		w := x.windowWeights(i0)
		i0 = w.i1
		out := h.Out.Slice(w.i0, w.i1)
		h.Multiply(out, w.chunkWeights, x.beta.Slice(0, w.chunks), false, false, false)
		if w.j1 > w.j0 {
			h.Multiply(out, w.keyWeights, h.V.Slice(w.j0, w.j1), false, false, true)
		}
	}
}

func (v *controlVariates) Backward(h *headwise.Head, g *headwise.Grads) {
	x := v.newPass(h)
	d := h.Q.Cols
	clear(g.DK.Data[:h.K.Rows*d])
	clear(g.DV.Data[:h.V.Rows*h.V.Cols])
	dbeta, dmu := h.TakeScratch(x.chunks, h.V.Cols), h.TakeScratch(x.chunks, d)
	dbar := [2]tensor.Mat{h.TakeScratch(x.chunks, d), h.TakeScratch(x.chunks, d)}
	clear(dbeta.Data)
	clear(dbar[1].Data)
	room := h.TakeScratch(x.windowScores.Rows, x.windowScores.Cols)
	for i0 := 0; i0 < h.Q.Rows; {
		w := x.windowWeights(i0)
		i0 = w.i1
		keys := w.j1 - w.j0
		ds := tensor.Mat{Data: room.Data, Rows: w.weights.Rows, Cols: w.weights.Cols, Stride: w.weights.Stride}
		near, far := entry.SliceColumns(ds, 0, keys), entry.SliceColumns(ds, keys, ds.Cols)
		do, q, dq := g.DOut.Slice(w.i0, w.i1), h.Q.Slice(w.i0, w.i1), g.DQ.Slice(w.i0, w.i1)
		h.Multiply(far, do, x.beta.Slice(0, w.chunks), false, true, false)
		h.Multiply(dbeta.Slice(0, w.chunks), w.chunkWeights, do, true, false, true)
		if keys > 0 {
			h.Multiply(near, do, h.V.Slice(w.j0, w.j1), false, true, false)
			h.Multiply(g.DV.Slice(w.j0, w.j1), w.keyWeights, do, true, false, true)
		}
		// The mean of ds over the weights has no effect on the result. Subtracting it
		// first avoids its rounding errors, which would add up over many queries.
		for i := range ds.Rows {
			row := ds.Row(i)
			common := h.Table.Dot(row, w.weights.Row(i))
			for j := range row {
				row[j] -= common
			}
		}
		h.SoftmaxRowsGrad(ds, w.weights)
		if x.rpe != nil && keys > 0 {
			for i := range near.Rows {
				bias := x.biasRow(g.Params[len(g.Params)-1], i, w)
				h.Table.Add(bias, bias, near.Row(i))
			}
		}
		for i := range ds.Rows {
			h.Table.Scale(ds.Row(i), x.scale, ds.Row(i))
		}
		h.Multiply(dq, far, x.bar[1].Slice(0, w.chunks), false, false, false)
		h.Multiply(dbar[1].Slice(0, w.chunks), far, q, true, false, true)
		if keys > 0 {
			h.Multiply(dq, near, h.K.Slice(w.j0, w.j1), false, false, true)
			h.Multiply(g.DK.Slice(w.j0, w.j1), near, q, true, false, true)
		}
	}
	for c := range x.chunks {
		x.summariseChunkGrad(c, dmu.Row(c), dbeta.Row(c), g)
	}
	if v.chunk == 0 {
		h.Table.Scale(dmu.Data, 0.5, dmu.Data)
	}
	copy(dbar[0].Data, dmu.Data)
	h.Table.Add(dbar[1].Data, dbar[1].Data, dmu.Data)

	dy, dmean := h.TakeScratch(x.chunks, d), h.TakeScratch(x.chunks, d)
	for side, m := range v.sideMaps() {
		p := g.Params[m.firstParam:][:4]
		clear(dy.Data)
		h.Table.LayerNormGrad(dy.Data, dy.Stride, p[2], p[3], dbar[side].Data, dbar[side].Stride, x.y[side].Data, x.y[side].Stride, x.chunks, d, m.gain.Data, x.stats[side])
		h.Table.SumRows(p[1], dy.Data, dy.Stride, x.chunks)
		square := func(data []float) tensor.Mat { return tensor.Mat{Data: data, Rows: d, Cols: d, Stride: d} }
		h.Multiply(square(p[0]), dy, x.mean[side], true, false, true)
		h.Multiply(dmean, dy, square(m.w.Data), false, false, false)
		to, first := []tensor.Mat{g.DQ, g.DK}[side], []int{h.Offset, 0}[side] // token of the first row
		for c := range x.chunks {
			j0, j1 := x.chunkKeys(c)
			for j := max(j0, first); j < min(j1, first+to.Rows); j++ {
				if h.IsUnmasked(j) {
					h.Table.Axpy(to.Row(j-first), 1/x.divisors[c], dmean.Row(c))
				}
			}
		}
	}
}

// summariseChunkGrad sets dmu [D], and adds to the gradients of the keys and values of
// chunk c. dbeta is [Dv].
func (x *evaPass) summariseChunkGrad(c int, dmu, dbeta []float, g *headwise.Grads) {
	clear(dmu)
	if x.keyCounts[c] == 0 {
		return
	}
	h := x.h
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	j0, j1 := x.chunkKeys(c)
	p := tensor.Mat{Data: x.p.Row(c)[:j1-j0], Rows: 1, Cols: j1 - j0, Stride: j1 - j0}
	dp := h.TakeScratch(1, j1-j0)
	for j := range dp.Data {
		dp.Data[j] = h.Table.Dot(dbeta, h.V.Row(j0+j))
		h.Table.Axpy(g.DV.Row(j0+j), p.Data[j], dbeta)
	}
	h.SoftmaxRowsGrad(dp, p)
	for j, y := range dp.Data { // gradient of s(k·μ - k·k/2)
		if h.IsUnmasked(j0 + j) {
			k, dk := h.K.Row(j0+j), g.DK.Row(j0+j)
			h.Table.Axpy(dmu, x.scale*y, k)
			h.Table.Axpy(dk, x.scale*y, x.mu.Row(c))
			h.Table.Axpy(dk, -x.scale*y, k)
		}
	}
}

func (x *controlVariates) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	c, near := float64(min(x.landmarks, max(s.N, s.M))), float64(min(x.window+2*x.overlap, s.M))
	reached := m + 2*c*float64(x.overlap)
	if x.chunk > 0 {
		c, reached = float64((s.M+x.chunk-1)/x.chunk), m
	}
	far := c
	if s.Causal {
		near = float64(min(x.window+x.overlap, s.M))
		far = max(m-n/2, 0) / float64(max(x.chunk, 1)) // of a query, in the mean
	}
	return headwise.Cost{
		FLOPs: 2 * (n*(near+far)*(d+dv) + reached*(2*d+dv) + 2*c*d*d),
		Bytes: entry.ElementBytes() * (c*(7*d+dv) + reached + float64(x.window)*(near+c)),
	}
}
