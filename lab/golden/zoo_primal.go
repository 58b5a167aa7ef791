package golden

import (
	"fmt"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Files of primal have no values: x [B,N,H·D], the source of the projections, stands in
// their place. Their loss is the square of the mean of J over rows and heads.
var primalGroup = zooGroup{name: "primal", needs: []string{"We", "Wr", "Lambda", "Wc_w", "Wc_b"},
	read: func(*reader, *problem) string { return "no primal with values" },
	cases: func(f *file, t relative) (*problem, string) {
		r := &reader{f: f}
		p := &problem{name: f.stem(), mechanism: "primal", tolerance: t, do: r.heads("go"), forms: []string{"direct"}}
		x := &primalModule{loss: r.scalar("go_ksvd_loss")}
		p.call.Q, p.call.K = r.heads("q"), r.heads("k")
		we := r.shape("We")
		if r.err == nil && len(we) != 3 {
			r.err = fmt.Errorf("array We: has %d dimensions, needs 3", len(we))
		}
		if r.err != nil {
			p.err = r.err
			return p, ""
		}
		set := map[string]string{"rank": strconv.Itoa(we[2]), "eta": "1", "square": "false", "loss": "code"}
		if r.truth("trace_no_x") {
			set["trace"] = "learned"
		}
		q := &p.call.Q
		p.call.V = oracle.NewHeads(q.B, q.H, q.N, q.D)
		if f.hasArray("x") {
			set["data"], set["tokens"] = "dependent", strconv.Itoa(we[1])
			data := r.floats("x")
			if len(data) != len(p.call.V.Data) {
				r.err = fmt.Errorf("x: has %d elements, q has %d", len(data), len(p.call.V.Data))
			}
			for i := range min(len(data), len(p.call.V.Data)) {
				p.call.V.Head(i/(q.N*q.H*q.D), i/q.D%q.H).Row(i / (q.H * q.D) % q.N)[i%q.D] = data[i]
			}
			for i, at := range r.ints("indices") {
				if ours := i * (q.N - 1) / max(we[1]-1, 1); int(at) != ours && r.err == nil {
					r.err = fmt.Errorf("indices: number %d is %d, not evenly spaced, %d", i, at, ours)
				}
			}
		}
		p.call.Causal = f.hasArray("causal_mean") && r.truth("causal_mean")
		if f.hasArray("mask") {
			x.mask = r.floats("mask")
			for i := range p.do.Data {
				p.do.Data[i] *= x.outputFactor(&p.call.Q, i)
			}
		}
		p.options = mechanism.Options{Width: q.D, Heads: q.H, Set: set}
		p.constants(r, "We", "Wr", "Lambda", "Wc_w", "Wc_b")
		p.numbers["Wc"], p.numbers["Wc_bias"] = p.numbers["Wc_w"], p.numbers["Wc_b"]
		for _, name := range []string{"out", "J", "ksvd_loss", "d_q", "d_k", "d_x", "d_We", "d_Wr", "d_Lambda", "d_Wc_w", "d_Wc_b"} {
			what := "d"
			if name[0] != 'd' {
				what = "o"
			}
			p.result(r, what, name)
		}
		p.compute = func() (map[string][]float64, error) {
			return primalResults(p, x)
		}
		return p.finish(r), ""
	}}

// primalModule holds the arrays of a file beside the call.
type primalModule struct {
	loss float64   // gradient of the loss
	mask []float64 // [B,N], by which outputs are multiplied; nil: none
}

// outputFactor returns the factor of element i of outputs shaped as q.
func (x *primalModule) outputFactor(q *oracle.Heads, i int) float64 {
	if x.mask == nil {
		return 1
	}
	return x.mask[i/(q.H*q.N*q.D)*q.N+i/q.D%q.N]
}

func primalResults(p *problem, x *primalModule) (map[string][]float64, error) {
	m, c, err := prepareCall(p)
	if err != nil {
		return nil, err
	}
	q := &p.call.Q
	out := tensor.NewHeads(q.B, q.H, q.N, q.D)
	var keep attention.Saved
	if err := m.Forward(out, c, &keep); err != nil {
		return nil, err
	}
	j := keep.Aux / float64(q.B*q.H)
	g := attention.Grads{
		DQ: tensor.NewHeads(q.B, q.H, q.N, q.D), DK: tensor.NewHeads(q.B, q.H, q.N, q.D), DV: tensor.NewHeads(q.B, q.H, q.N, q.D),
		DAux: float(x.loss * 2 * j / float64(q.B*q.H)),
	}
	if err := m.Backward(&g, convertHeads(p.do), out, c, &keep); err != nil {
		return nil, err
	}
	got := map[string][]float64{"J": {j}, "ksvd_loss": {j * j}, "out": widenRows(out.Data), "d_q": widenRows(g.DQ.Data), "d_k": widenRows(g.DK.Data)}
	for i := range got["out"] {
		got["out"][i] *= x.outputFactor(q, i)
	}
	dx := make([]float64, len(g.DV.Data))
	for i := range dx {
		dx[i] = float64(g.DV.Head(i/(q.N*q.H*q.D), i/q.D%q.H).Row(i / (q.H * q.D) % q.N)[i%q.D])
	}
	got["d_x"] = dx
	names := map[string]string{"Wc": "Wc_w", "Wc_bias": "Wc_b"}
	for _, param := range m.Params().All() {
		name := param.Name
		if other := names[name]; other != "" {
			name = other
		}
		got["d_"+name] = widenRows(param.Grad)
	}
	return got, nil
}
