package golden

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// retnetGroup are modules of retention, with projections and without biases. Their
// program gives each row of scores a scale before the norm of the heads, which
// cancels in it but for eps. The scale depends on all products q·k of the row, and no
// gradient goes through it. In units of the outputs of ours the file's eps is thus
// another for each row and head, and the mixer runs once for each of them.
var retnetGroup = zooGroup{name: "retnet", needs: []string{"x", "Wq", "Wk", "Wv", "Wg", "Wo", "heads", "ln_eps"},
	read: func(*reader, *problem) string { return "no function of q, k and v" },
	cases: func(f *file, t relative) (*problem, string) {
		r := &reader{f: f}
		m := &retnetModule{heads: r.integer("heads"), eps: r.scalar("ln_eps"), shape: r.shape("x"), numbers: map[string][]float64{}}
		p := &problem{name: f.stem(), mechanism: "retnet", tolerance: t, do: r.heads("go"), forms: []string{"direct"}}
		wide := r.shape("Wv")
		if r.err == nil && (len(m.shape) != 3 || len(wide) != 2 || m.heads < 1 || m.shape[2]%(2*m.heads) != 0 || wide[0]%m.shape[2] != 0) {
			r.err = fmt.Errorf("x: has shape %v, which %d heads with values of shape %v do not fit", m.shape, m.heads, wide)
		}
		if r.err != nil {
			return p.finish(r), ""
		}
		m.expand = wide[0] / m.shape[2]
		for _, name := range []string{"x", "go", "Wq", "Wk", "Wv", "Wg", "Wo"} {
			m.numbers[name] = r.floats(name)
			p.result(r, "d", "d_"+name)
		}
		if got, want := len(m.numbers["go"]), len(m.numbers["x"]); r.err == nil && got != want {
			r.err = fmt.Errorf("go: has %d elements, needs %d", got, want)
		}
		p.result(r, "o", "out")
		if f.hasArray("out") {
			p.want = append(p.want, expect{stepped, "o", r.floats("out")})
		}
		p.compute = func() (map[string][]float64, error) {
			return retnetResults(m)
		}
		return p.finish(r), ""
	}}

// retnetModule is a file's module.
type retnetModule struct {
	heads, expand int
	eps           float64
	shape         []int // of x
	numbers       map[string][]float64
}

// retnetNames are the files' names of the weights.
var retnetNames = map[string]string{"q_proj.weight": "Wq", "k_proj.weight": "Wk", "v_proj.weight": "Wv", "g_proj.weight": "Wg", "out_proj.weight": "Wo"}

// place is where row i of a projection of ours lies in the file's, whose pairs of
// channels stand beside one another; ours are the halves of a head.
func (m *retnetModule) place(name string, i int) int {
	if name != "Wq" && name != "Wk" {
		return i
	}
	d := m.shape[2] / m.heads
	head, c := i/d, i%d
	return head*d + c%(d/2)*2 + c/(d/2)
}

// scales returns the squares of the divisors of batch row b [H][N] in the published
// program.
func (m *retnetModule) scales(b int) [][]float64 {
	n, width := m.shape[1], m.shape[2]
	d := width / m.heads
	x := rowsOf(m.numbers["x"][b*n*width:][:n*width], width)
	turned := func(name string, row, head int) []float64 {
		y := make([]float64, d)
		for c := range y {
			for j, w := range m.numbers[name][(head*d+c)*width:][:width] {
				y[c] += w * x[row][j]
			}
		}
		for j := range d / 2 {
			s, c := math.Sincos(float64(row) * math.Pow(10000, -float64(j)/max(1, float64(d/2-1))))
			y[2*j], y[2*j+1] = y[2*j]*c-y[2*j+1]*s, y[2*j]*s+y[2*j+1]*c
		}
		return y
	}
	all := make([][]float64, n)
	for i := range all {
		all[i] = make([]float64, m.heads)
		for h := range m.heads {
			gamma, q := 1-math.Exp2(float64(-5-h)), turned("Wq", i, h)
			var sum, size float64
			for j := range i + 1 {
				decay, product := math.Pow(gamma, float64(i-j)), 0.0
				for c, k := range turned("Wk", j, h) {
					product += q[c] * k
				}
				sum += decay
				size += decay * math.Abs(product) / math.Sqrt(float64(d))
			}
			all[i][h] = sum * math.Pow(min(max(size/math.Sqrt(sum), 1), 5e4), 2)
		}
	}
	return all
}

// retnetResults runs the mixer for each row and head, whose parts of the outputs
// and gradients are added up.
func retnetResults(m *retnetModule) (map[string][]float64, error) {
	row, _ := nn.LookupMixer("retnet")
	var set param.Set
	w := &nn.WeightMaker{New: func(name string, decay bool, _ nn.Initializer, shape ...int) *param.Param {
		return set.New(name, decay, shape...)
	}}
	n, width := m.shape[1], m.shape[2]
	mixer, err := nn.NewMixer(row, width, mechanism.Options{Heads: m.heads, Length: n, Set: map[string]string{"expand": fmt.Sprint(m.expand)}}, w)
	if err != nil {
		return nil, err
	}
	layer := mixer.(*nn.MSR)
	got := map[string][]float64{"out": make([]float64, len(m.numbers["x"])), stepped: make([]float64, len(m.numbers["x"])), "d_x": make([]float64, len(m.numbers["x"]))}
	for _, p := range set.All() {
		name := retnetNames[p.Name]
		from, cols := m.numbers[name], p.Shape[1]
		if len(from) != len(p.Data) {
			return nil, fmt.Errorf("%s: has %d elements, needs %d", name, len(from), len(p.Data))
		}
		for i := range p.Shape[0] {
			for j := range cols {
				p.Data[i*cols+j] = float(from[m.place(name, i)*cols+j])
			}
		}
	}
	trace, scratch, out := layer.NewTrace(), new(nn.Scratch), layer.Out.W
	per, cols := out.Shape[1]/m.heads, out.Shape[1]
	matrix := func(x []float64) tensor.Mat {
		y := tensor.NewMat(n, width)
		for i, v := range x {
			y.Data[i] = float(v)
		}
		return y
	}
	for b := range m.shape[0] {
		x, scales := matrix(m.numbers["x"][b*n*width:][:n*width]), m.scales(b)
		for i := range n {
			at := (b*n + i) * width
			dy := tensor.NewMat(n, width)
			for c := range width {
				dy.Row(i)[c] = float(m.numbers["go"][at+c])
			}
			for h := range m.heads {
				layer.Eps = float(m.eps * scales[i][h])
				for j := range out.Data { // of this head alone
					out.Data[j] = 0
					if j%cols/per == h {
						out.Data[j] = float(m.numbers["Wo"][j])
					}
				}
				y, dx := tensor.NewMat(n, width), tensor.NewMat(n, width)
				scope := nn.Scope{B: 1, Causal: true}
				if err := layer.Forward(y, y, x, scope, trace, true); err != nil {
					return nil, err
				}
				for c, v := range y.Row(i) {
					got["out"][at+c] += float64(v)
				}
				kept := append([]float{}, out.Grad...)
				if err := layer.Backward(dx, dy, x, trace, scratch); err != nil {
					return nil, err
				}
				for j := range out.Grad {
					if j%cols/per != h {
						out.Grad[j] = kept[j]
					}
				}
				for j, v := range dx.Data {
					got["d_x"][b*n*width+j] += float64(v)
				}
				state, err := layer.NewState(1)
				if err != nil {
					return nil, err
				}
				y = tensor.NewMat(n, width)
				for j := range i + 1 {
					if err := layer.Step(y.Slice(j, j+1), x.Slice(j, j+1), state, scope, trace); err != nil {
						return nil, err
					}
				}
				for c, v := range y.Row(i) {
					got[stepped][at+c] += float64(v)
				}
			}
		}
	}
	for _, p := range set.All() {
		name := retnetNames[p.Name]
		cols, grad := p.Shape[1], make([]float64, len(p.Grad))
		for i := range p.Shape[0] {
			copy(grad[m.place(name, i)*cols:], widenRows(p.Grad[i*cols:][:cols]))
		}
		got["d_"+name] = grad
	}
	return got, nil
}
