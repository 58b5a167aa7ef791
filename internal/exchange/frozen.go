package exchange

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// cellMeans are the sums of the far keys of a query in each cell, in the mean over queries of texts: the
// far field that a model has without looking at its input.
type cellMeans struct {
	*cellQueries
	tilt    []float32   // [key heads,cells,d]
	queries []float64   // of each key head, counted once for the query heads that share it
	far     [][]float64 // of each key head [cells,1+d+dv]: sums of weights exp(s r·(k-C)), weighed keys and values
}

// meansCounter is a function of whole heads that adds their keys to the sums of cells. Its outputs are 0.
type meansCounter struct {
	queryCounter
	to *cellMeans
}

func (x *meansCounter) Forward(h *headwise.Head) {
	clear(h.Out.Data)
	if group := len(x.to.sums) / h.KeyHeads; h.Head != h.KeyHead*group {
		return // another query head has the same keys
	}
	n, m, d, dv := h.Q.Rows, h.K.Rows, h.Q.Cols, h.V.Cols
	cell := x.to.find(h)
	book := x.to.book[h.KeyHead*x.to.cells*d:]
	tilt, far := x.to.tilt[h.KeyHead*x.to.cells*d:], x.to.far[h.KeyHead]
	queries := make([]float64, m) // from which a key is far
	for i := 0; i < n; {
		p := i + h.Shift
		end := min((p/x.block+1)*x.block-h.Shift, n)
		lo, hi := x.bounds(p, m, false)
		for j := x.sinks; j < m; j++ {
			if j < lo || !h.Causal && j >= hi && j < m-x.ends {
				queries[j] += float64(end - i)
			}
		}
		i = end
	}
	for j, count := range queries {
		if count == 0 || !h.IsUnmasked(j) {
			continue
		}
		c, k := int(cell[j]), h.K.Row(j)
		w := count * math.Exp(max(min(float64(x.factor(d))*tilted(tilt[c*d:][:d], k, book[c*d:][:d]), 300), -300))
		to := far[c*(1+d+dv):][:1+d+dv]
		to[0] += w
		for e, y := range k {
			to[1+e] += w * float64(y)
		}
		for e, y := range h.V.Row(j) {
			to[1+d+e] += w * float64(y)
		}
	}
	x.to.queries[h.KeyHead] += float64(n)
}

// tilted returns r·(k-c).
func tilted(r, k, c []float32) (sum float64) {
	for e, y := range r {
		sum += float64(y) * float64(k[e]-c[e])
	}
	return sum
}

// frozenFar is softmax over the near field of multipole and over keys and values that do not depend on the
// input. They are first keys that every query sees.
type frozenFar struct {
	attention.Mechanism  // the near field, of rows with a further number
	params               param.Set
	keys, values, powers *param.Param // [key heads,rows,d], [key heads,rows,dv], and [key heads,rows] logarithms of weights over the scale
	live                 []bool       // rows [key heads,rows] of cells that have far keys; the others have no weight and stay
	rows                 int
	scale                float64
}

// newFrozenFar returns the near field of a choice with the means of the far field.
func newFrozenFar(c Choice, scale float64, of *cellMeans) attention.Mechanism {
	d := of.d
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	f := c.field()
	x := &frozenFar{scale: scale, rows: (of.cells + f.block - 1) / f.block * f.block} // blocks begin where they began
	f.sinks += x.rows
	x.Mechanism = newNearAlone(f, scale)
	width := len(of.far[0]) / of.cells
	dv := width - 1 - d
	heads := len(of.far)
	x.keys, x.values, x.powers = x.params.New("keys", false, heads, x.rows, d), x.params.New("values", false, heads, x.rows, dv), x.params.New("powers", false, heads, x.rows)
	x.live = make([]bool, heads*x.rows)
	for h, far := range of.far {
		for n := range x.rows {
			row := h*x.rows + n
			key, value := x.keys.Data[row*d:][:d], x.values.Data[row*dv:][:dv]
			x.powers.Data[row] = float32(-1e4 / scale) // no weight
			if n >= of.cells || far[n*width] == 0 {
				continue
			}
			x.live[row] = true
			sums, at := far[n*width:][:width], (h*of.cells+n)*d
			for e := range key {
				key[e] = float32(sums[1+e] / sums[0])
			}
			for e := range value {
				value[e] = float32(sums[1+d+e] / sums[0])
			}
			x.powers.Data[row] = float32(math.Log(sums[0]/of.queries[h])/scale - tilted(of.tilt[at:][:d], key, of.book[at:][:d]))
		}
	}
	return x
}

// fade makes the weights of the further keys a thousandth of what they are, so that updates begin near the
// near field alone. A mean far field harms the first queries of a text most, which see few far keys.
func (x *frozenFar) fade() {
	for i, live := range x.live {
		if live {
			x.powers.Data[i] -= float32(math.Log(1000) / x.scale)
		}
	}
}

func (x *frozenFar) Params() *param.Set { return &x.params }

// extended returns a call with the further keys, values and numbers, and rotated rows.
func (x *frozenFar) extended(c *attention.Call) *attention.Call {
	from, y := rotated(c), *c
	d, dv := c.Q.D, c.V.D
	y.Rope, y.Q = nil, tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, d+1)
	y.K, y.V = tensor.NewHeads(c.K.B, c.K.H, x.rows+c.K.N, d+1), tensor.NewHeads(c.K.B, c.K.H, x.rows+c.K.N, dv)
	for b := range c.Q.B {
		for h := range c.Q.H {
			for i := range c.Q.N {
				row := y.Q.Head(b, h).Row(i)
				row[copy(row, from.Q.Head(b, h).Row(i))] = 1
			}
		}
		for h := range c.K.H {
			k, v := y.K.Head(b, h), y.V.Head(b, h)
			for j := range x.rows {
				row := h*x.rows + j
				k.Row(j)[copy(k.Row(j), x.keys.Data[row*d:][:d])] = x.powers.Data[row]
				copy(v.Row(j), x.values.Data[row*dv:])
			}
			for j := range c.K.N {
				copy(k.Row(x.rows+j), from.K.Head(b, h).Row(j))
				copy(v.Row(x.rows+j), from.V.Head(b, h).Row(j))
			}
		}
	}
	if c.KeyMask != nil {
		y.KeyMask = nil
		for b := range c.K.B {
			y.KeyMask = append(append(y.KeyMask, slices.Repeat([]bool{true}, x.rows)...), c.KeyMask[b*c.K.N:][:c.K.N]...)
		}
	}
	return &y
}

func (x *frozenFar) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	return x.Mechanism.Forward(out, x.extended(c), keep)
}

func (x *frozenFar) Backward(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	y := x.extended(c)
	d, dv := c.Q.D, c.V.D
	of := attention.Grads{DQ: tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, d+1), DK: tensor.NewHeads(c.K.B, c.K.H, y.K.N, d+1), DV: tensor.NewHeads(c.K.B, c.K.H, y.K.N, dv)}
	if err := x.Mechanism.Backward(&of, dout, out, y, keep); err != nil {
		return err
	}
	for b := range c.Q.B {
		for h := range c.Q.H {
			to := g.DQ.Head(b, h)
			for i := range c.Q.N {
				copy(to.Row(i), of.DQ.Head(b, h).Row(i)[:d])
			}
			if c.Rope != nil {
				c.Rope.RotateRows(to, shiftOf(c), true)
			}
		}
		for h := range c.K.H {
			dk, to := of.DK.Head(b, h), g.DK.Head(b, h)
			for j := range x.rows {
				row := h*x.rows + j
				if !x.live[row] {
					continue
				}
				add(x.keys.Grad[row*d:], dk.Row(j)[:d])
				add(x.values.Grad[row*dv:], of.DV.Head(b, h).Row(j))
				x.powers.Grad[row] += dk.Row(j)[d]
			}
			for j := range c.K.N {
				copy(to.Row(j), dk.Row(x.rows + j)[:d])
				copy(g.DV.Head(b, h).Row(j), of.DV.Head(b, h).Row(x.rows+j))
			}
			if c.Rope != nil {
				c.Rope.RotateRows(to, 0, true)
			}
		}
	}
	return nil
}

// add adds row to the first numbers of to.
func add(to, row []float32) {
	for i, y := range row {
		to[i] += y
	}
}

// shiftOf returns the position of the first query of a call, beside that of the first key.
func shiftOf(c *attention.Call) int {
	if c.Causal {
		return c.K.N - c.Q.N
	}
	return 0
}

// rotated returns a copy of a call with rotated queries and keys.
func rotated(c *attention.Call) *attention.Call {
	y := *c
	y.Q, y.K = copyHeads(c.Q), copyHeads(c.K)
	if c.Rope == nil {
		return &y
	}
	for b := range c.Q.B {
		for h := range c.Q.H {
			c.Rope.RotateRows(y.Q.Head(b, h), shiftOf(c), false)
		}
		for h := range c.K.H {
			c.Rope.RotateRows(y.K.Head(b, h), 0, false)
		}
	}
	y.Rope = nil
	return &y
}

// copyHeads returns a copy of x.
func copyHeads(x tensor.Heads) tensor.Heads {
	y := tensor.NewHeads(x.B, x.H, x.N, x.D)
	for b := range x.B {
		for h := range x.H {
			scratch.CopyMat(y.Head(b, h), x.Head(b, h))
		}
	}
	return y
}

// nearFitted returns the near field of a choice in layers with far fields of the texts of the fit.
func (r *run) nearFitted(c Choice, layers []int) (map[int]attention.Mechanism, error) {
	means := map[int]*cellMeans{}
	err := r.eachFitCall(c, "far fields of the mean", func(i int, call *attention.Call, to *cellQueries) attention.Mechanism {
		if !slices.Contains(layers, i) {
			return nil
		}
		x := means[i]
		if x == nil {
			x = &cellMeans{cellQueries: to, tilt: r.tilts[c.place()][i]}
			for range call.K.H {
				x.far, x.queries = append(x.far, make([]float64, c.Cells*(1+call.K.D+call.V.D))), append(x.queries, 0)
			}
			means[i] = x
		}
		return headwise.New(&meansCounter{queryCounter{field: c.field(), scale: r.scaleNumber(i), to: to}, x})
	})
	list := map[int]attention.Mechanism{}
	for i, x := range means {
		list[i] = newFrozenFar(c, r.scaleNumber(i), x)
	}
	return list, err
}

// eachFitCall passes the windows of the fit through the trained model. of returns what looks at a call of a
// layer, nil: nothing does.
func (r *run) eachFitCall(c Choice, what string, of func(layer int, call *attention.Call, to *cellQueries) attention.Mechanism) error {
	counts := map[int]*cellQueries{}
	restore := model.Watch(r.s.Model, func(name string, _ attention.Mechanism, call *attention.Call) error {
		i := numberOf(name)
		book := r.books[c.Cells][i]
		if book == nil {
			return nil
		}
		to := counts[i]
		if to == nil {
			to = &cellQueries{book: book, cells: c.Cells, d: call.K.D}
			for range call.Q.H {
				to.sums, to.mass = append(to.sums, make([]float64, c.Cells*call.K.D)), append(to.mass, make([]float64, c.Cells))
			}
			counts[i] = to
		}
		m := of(i, call, to)
		if m == nil {
			return nil
		}
		return m.Forward(tensor.NewHeads(call.Q.B, call.Q.H, call.Q.N, call.V.D), call, nil)
	})
	defer restore()
	steps := float64(fitPasses)
	if len(r.refs) > 0 {
		steps /= float64(len(r.refs[0].windows))
	}
	for n, ids := range r.fitTo {
		r.say(steps, "%s, window %d of %d", what, n+1, len(r.fitTo))
		if _, err := r.s.answer(r.ctx, ids); err != nil {
			return err
		}
	}
	return nil
}
