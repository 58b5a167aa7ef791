package golden

import (
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Files of luna are of its module: x [B,N,C] and packed queries p [B,L,C], which
// go through affine maps. Keys of ours have two parts side by side, for what the
// queries and what the packed queries meet; the other part of these is zeros.
var lunaGroup = zooGroup{name: "luna", needs: []string{"x", "p", "pq_proj_w", "out_proj_w", "heads"},
	read: func(*reader, *problem) string { return "no luna without x and p" },
	cases: func(f *file, t relative) (*problem, string) {
		r := &reader{f: f}
		m := &lunaModule{numbers: map[string][]float64{}, heads: r.integer("heads")}
		m.causal = f.hasArray("omega")
		if m.causal {
			m.omega = []string{"softplus", "elu+1", "elu"}[min(max(r.integer("omega"), 0), 2)]
		} else if heads := r.integer("pheads"); heads != 1 && r.err == nil {
			// They are mixed before they are read, which is no function of single heads.
			return computeLayers(f, t, "softmax", []string{"out", "pcontext"}, func(m *layerFile) (map[string][]float64, error) {
				return lunaLayers(m, heads)
			}), ""
		}
		m.tied = f.hasArray("c_proj_w")
		p := &problem{name: f.stem(), mechanism: "luna", tolerance: t, do: r.heads("go"), forms: []string{"direct"}}
		x, packed := r.shape("x"), r.shape("p")
		if r.err != nil || len(x) != 3 || len(packed) != 3 {
			p.err = r.err
			return p, ""
		}
		m.batch, m.tokens, m.width, m.length = x[0], x[1], x[2], packed[1]
		if f.hasArray("lengths") {
			m.lengths = r.ints("lengths")
		}
		for _, name := range f.sortedNames() {
			if a := r.shape(name); len(a) > 0 && name != "lengths" {
				m.numbers[name] = r.floats(name)
			}
			if len(name) > 2 && name[:2] == "d_" {
				p.result(r, "d", name)
			}
		}
		p.result(r, "o", "out")
		p.result(r, "o", "pcontext")
		p.compute = func() (map[string][]float64, error) {
			return lunaResults(m)
		}
		return p.finish(r), ""
	}}

// lunaModule is a file's module.
type lunaModule struct {
	heads, batch, tokens, width, length int
	causal, tied                        bool
	omega                               string
	lengths                             []int64
	numbers                             map[string][]float64
}

// rows views row b of an array [B,n,width].
func (m *lunaModule) rows(name string, b, n int) [][]float64 {
	return rowsOf(m.numbers[name][b*n*m.width:][:n*m.width], m.width)
}

func rowsOf(x []float64, width int) (rows [][]float64) {
	for ; len(x) > 0; x = x[width:] {
		rows = append(rows, x[:width])
	}
	return rows
}

// affine is y = Wx + b of the map of that name.
func (m *lunaModule) affine(name string, x [][]float64) (y [][]float64) {
	w := rowsOf(m.numbers[name+"_w"], m.width)
	for i := range x {
		row := append([]float64{}, m.numbers[name+"_b"]...)
		for o := range row {
			for c, v := range x[i] {
				row[o] += w[o][c] * v
			}
		}
		y = append(y, row)
	}
	return y
}

// affineGrad adds to grads, and returns the gradient of x.
func (m *lunaModule) affineGrad(grads map[string][]float64, name string, x, dy [][]float64) (dx [][]float64) {
	w, dw := rowsOf(m.numbers[name+"_w"], m.width), rowsOf(grads["d_"+name+"_w"], m.width)
	for i := range x {
		row := make([]float64, m.width)
		for o, g := range dy[i] {
			grads["d_"+name+"_b"][o] += g
			for c := range row {
				row[c] += w[o][c] * g
				dw[o][c] += x[i][c] * g
			}
		}
		dx = append(dx, row)
	}
	return dx
}

// channels copies width channels of rows x into the rows of each head, from column on:
// the head's own channels, or with shared the first ones for all heads.
type channels struct {
	x             [][]float64
	dx            [][]float64 // added to
	shared        bool
	column, width int
	scale         float64
}

func (c *channels) first(head int) int {
	if c.shared {
		return 0
	}
	return head * c.width
}

// joinHeads makes heads of width d of channels.
func joinHeads(heads, d int, list ...*channels) tensor.Heads {
	y := tensor.NewHeads(1, heads, len(list[0].x), d)
	for _, c := range list {
		for h := range heads {
			for n, row := range c.x {
				for e, v := range row[c.first(h):][:c.width] {
					y.Head(0, h).Row(n)[c.column+e] = float(c.scale * v)
				}
			}
		}
	}
	return y
}

// splitHeads adds the gradients of joined channels.
func splitHeads(dy tensor.Heads, list ...*channels) {
	for _, c := range list {
		if c.dx == nil {
			c.dx = rowsOf(make([]float64, len(c.x)*len(c.x[0])), len(c.x[0]))
		}
		for h := range dy.H {
			for n := range c.dx {
				for e := range c.width {
					c.dx[n][c.first(h)+e] += c.scale * float64(dy.Head(0, h).Row(n)[c.column+e])
				}
			}
		}
	}
}

// runRow computes a call of one batch row, and its gradients from dout, which returns
// the gradient of an output.
func runRow(m attention.Mechanism, c *attention.Call, dout func(out tensor.Heads) tensor.Heads) (*attention.Grads, error) {
	out := tensor.NewHeads(1, c.Q.H, c.Q.N, c.V.D)
	var keep attention.Saved
	if err := m.Forward(out, c, &keep); err != nil {
		return nil, err
	}
	g := &attention.Grads{
		DQ: tensor.NewHeads(1, c.Q.H, c.Q.N, c.Q.D),
		DK: tensor.NewHeads(1, c.K.H, c.K.N, c.K.D), DV: tensor.NewHeads(1, c.V.H, c.V.N, c.V.D),
	}
	m.Params().ZeroGrad()
	return g, m.Backward(g, dout(out), out, c, &keep)
}

func lunaResults(m *lunaModule) (map[string][]float64, error) {
	got := map[string][]float64{}
	for name := range m.numbers {
		if size := len(m.numbers["d_"+name]); size > 0 && name != "x" && name != "p" {
			got["d_"+name] = make([]float64, size)
		}
	}
	for b := range m.batch {
		if err := lunaRow(m, b, got); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// lunaRow adds to got what batch row b gives.
func lunaRow(m *lunaModule, b int, got map[string][]float64) error {
	x, p, do := m.rows("x", b, m.tokens), m.rows("p", b, m.length), m.rows("go", b, m.tokens)
	d := m.width / m.heads
	keyMap, valueMap, packKey, packValue := "k_proj", "v_proj", "pk_proj", "pv_proj"
	if m.tied {
		keyMap, valueMap = "c_proj", "c_proj"
	}
	if m.causal || m.tied {
		packKey, packValue = "pc_proj", "pc_proj"
	}
	// Keys and values that queries read are maps of x, or of its packed tokens: a map
	// of averages is the average of the maps.
	from, beside := x, d
	if !m.causal {
		from, beside = m.affine(packValue, x), m.width
	}
	scale := 1 / math.Sqrt(float64(beside)) // of a packed head
	q := &channels{x: m.affine("q_proj", x), width: d, scale: 1 / math.Sqrt(float64(d))}
	k, v := &channels{x: m.affine(keyMap, from), width: d, scale: 1}, &channels{x: m.affine(valueMap, from), width: d, scale: 1}
	pk := &channels{x: m.affine(packKey, x), width: beside, column: d, scale: 1, shared: !m.causal}
	pq := &channels{x: m.affine("pq_proj", p), width: beside, column: d, scale: scale, shared: !m.causal}

	set := map[string]string{"length": strconv.Itoa(m.length), "scale": "1", "form": "encoder"}
	if m.causal {
		set["form"], set["omega"] = "causal", m.omega
	}
	mech, err := mechanism.New("luna", mechanism.Options{Heads: m.heads, Width: d + beside, Set: set})
	if err != nil {
		return err
	}
	learned := mech.Params().All()[0]
	copy(learned.Data, joinHeads(m.heads, d+beside, pq).Data)
	c := &attention.Call{
		Q: joinHeads(m.heads, d+beside, q), K: joinHeads(m.heads, d+beside, k, pk), V: joinHeads(m.heads, d, v), Causal: m.causal,
	}
	if m.lengths != nil {
		c.KeyLens = m.lengths[b : b+1]
	}
	g, err := runRow(mech, c, func(out tensor.Heads) tensor.Heads {
		o := &channels{x: rowsOf(make([]float64, m.tokens*m.width), m.width), width: d, scale: 1}
		splitHeads(out, o) // each channel goes to its place
		got["out"] = append(got["out"], flattenRows(m.affine("out_proj", o.dx))...)
		return joinHeads(m.heads, d, &channels{x: m.affineGrad(got, "out_proj", o.dx, do), width: d, scale: 1})
	})
	if err != nil {
		return err
	}
	splitHeads(g.DQ, q)
	splitHeads(g.DK, k, pk)
	splitHeads(g.DV, v)
	splitHeads(tensor.HeadsOf(learned.Grad, 1, m.heads, m.length, d+beside), pq)

	dx := rowsOf(make([]float64, m.tokens*m.width), m.width)
	addRows(dx, m.affineGrad(got, "q_proj", x, q.dx))
	dfrom := m.affineGrad(got, keyMap, from, k.dx)
	addRows(dfrom, m.affineGrad(got, valueMap, from, v.dx))
	if !m.causal {
		if err := lunaContext(m, b, got, pq, pk, &channels{x: from, dx: dfrom, width: m.width, scale: 1}, c.KeyLens); err != nil {
			return err
		}
		dfrom = m.affineGrad(got, packValue, x, dfrom)
	}
	addRows(dx, dfrom)
	addRows(dx, m.affineGrad(got, packKey, x, pk.dx))
	got["d_x"] = append(got["d_x"], flattenRows(dx)...)
	got["d_p"] = append(got["d_p"], flattenRows(m.affineGrad(got, "pq_proj", p, pq.dx))...)
	return nil
}

// lunaContext adds the packed tokens, which an encoder gives beside its output,
// and what comes back from them: softmax of a single head of all channels.
func lunaContext(m *lunaModule, b int, got map[string][]float64, pq, pk, from *channels, lens []int64) error {
	mech, err := mechanism.New("softmax", mechanism.Options{Set: map[string]string{"scale": "1"}})
	if err != nil {
		return err
	}
	q, k := *pq, *pk
	q.column, k.column, q.shared, k.shared = 0, 0, true, true
	c := &attention.Call{Q: joinHeads(1, m.width, &q), K: joinHeads(1, m.width, &k), V: joinHeads(1, m.width, from), KeyLens: lens}
	g, err := runRow(mech, c, func(out tensor.Heads) tensor.Heads {
		got["pcontext"] = append(got["pcontext"], widenRows(out.Data)...)
		return joinHeads(1, m.width, &channels{x: m.rows("go_pcontext", b, m.length), width: m.width, scale: 1})
	})
	if err != nil {
		return err
	}
	splitHeads(g.DQ, &q)
	splitHeads(g.DK, &k)
	splitHeads(g.DV, from)
	return nil
}

func addRows(x, y [][]float64) {
	for i := range x {
		for c := range x[i] {
			x[i][c] += y[i][c]
		}
	}
}

func flattenRows(x [][]float64) (y []float64) {
	for _, row := range x {
		y = append(y, row...)
	}
	return y
}
