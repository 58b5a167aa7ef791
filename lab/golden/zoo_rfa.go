package golden

import (
	"math"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var rfaGroup = zooGroup{
	name:   "rfa",
	needs:  []string{"R"},
	arrays: []string{"sigma", "d_sigma", "tau", "phi_scale", "norm_eps", "den_min", "abs_den", "eps", "gate_logit", "d_gate_logit", "den", "phi_q", "phi_k"},
	read:   rfaZoo,
}

// rfaZoo reads a file of random feature attention, whose R is [H,M,D].
func rfaZoo(r *reader, p *problem) string {
	f := r.f
	d, h := p.call.Q.D, p.call.Q.H
	if d == 0 || h == 0 {
		return "no heads, or rows without channels"
	}
	all := r.floats("R")
	rows := len(all) / (h * d)
	if r.err == nil && (rows == 0 || len(all)%(h*d) != 0) {
		return "R does not have rows of the width of q for each head"
	}
	book := &oracle.RandomFeatures{Tau: 1, Factor: 1 / math.Sqrt(float64(rows)), Shortest: -1}
	p.book = oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Coef: []float64{0, 1}}
	set := map[string]string{}
	switch {
	case !f.hasArray("sigma"):
		book.Arccos, set["kernel"] = true, "arccos"
		p.book.Eps = r.scalar("eps")
		set["eps"] = formatNumber(p.book.Eps)
	case f.hasArray("den_min"):
		p.book.Norm, p.book.Floor, set["form"] = oracle.NoNorm, r.scalar("den_min"), "code"
		p.book.FloorSize = f.hasArray("abs_den") && r.truth("abs_den")
		book.Factor, book.Shortest = r.scalar("phi_scale"), r.scalar("norm_eps")
		if p.book.FloorSize {
			set["form"] = "code-cross"
		}
		if p.book.Floor == 1e-3 {
			set["form"] = "code-masked"
		}
		if p.book.Floor != 1 && p.book.Floor != 1e-3 || book.Factor != 0.1 || book.Shortest != 1e-3 {
			return "phi_scale, norm_eps or den_min differ from the authors' program"
		}
	}
	if f.hasArray("tau") {
		book.Tau = r.scalar("tau")
		set["tau"] = formatNumber(book.Tau)
	}
	p.numbers = map[string][]float64{"R": all, "sigma": make([]float64, h*d)}
	for i := range p.numbers["sigma"] {
		p.numbers["sigma"][i] = 1
	}
	if f.hasArray("sigma") {
		p.parameters(r, "sigma")
	}
	if f.hasArray("gate_logit") {
		rfaGate(r, p)
		p.book.Gated, set["gate"] = true, "true"
	}
	p.result(r, "den", "den")
	p.randomFeatures(book, set)
	return ""
}

// randomFeatures completes p with the features of book, whose numbers p has.
func (p *problem) randomFeatures(book *oracle.RandomFeatures, set map[string]string) {
	d, h := p.call.Q.D, p.call.Q.H
	all := p.numbers["R"]
	rows := len(all) / (h * d)
	for i := range h {
		var list [][]float64
		for at := range rows {
			list = append(list, all[(i*rows+at)*d:][:d])
		}
		book.R = append(book.R, list)
	}
	book.Sigma, p.book.Features = p.numbers["sigma"], book
	set["features"] = formatNumber(float64(rows))
	p.mechanism, p.options = "rfa", mechanism.Options{Width: d, Heads: h, Set: set}
	p.forms = p.everyForm()
}

// fourierZoo reads random Fourier features of rows as they are, with one ω [D,M] for all
// heads.
func fourierZoo(r *reader, p *problem) string {
	d, h, across := p.call.Q.D, p.call.Q.H, r.floats("omega")
	if d == 0 || h == 0 || len(across) == 0 || len(across)%d != 0 {
		return "omega does not have columns of the width of q"
	}
	rows := len(across) / d
	p.numbers = map[string][]float64{"R": make([]float64, h*rows*d), "sigma": make([]float64, h*d)}
	for i := range p.numbers["R"] {
		p.numbers["R"][i] = across[i%d*rows+i/d%rows]
	}
	for i := range p.numbers["sigma"] {
		p.numbers["sigma"][i] = 1
	}
	tau, eps := 1/math.Sqrt(r.scalar("softmax_temp")), r.scalar("eps")
	p.book = oracle.Mechanism{Scale: 1, Coef: []float64{0, 1}, Eps: eps}
	p.randomFeatures(&oracle.RandomFeatures{Tau: tau, Factor: 1 / math.Sqrt(float64(rows)), Shortest: -1},
		map[string]string{"norm": "none", "tau": formatNumber(tau), "eps": formatNumber(eps)})
	return ""
}

// rfaGate reads the logits of g, which a call has as log g: with l = log σ(x),
// dx = dl·(1 - g).
func rfaGate(r *reader, p *problem) {
	p.call.LogG = r.perToken("gate_logit")
	ref := append([]float64{}, r.floats("d_gate_logit")...)
	for i, x := range p.call.LogG.Data {
		p.call.LogG.Data[i] = -math.Log1p(math.Exp(-x))
		if i < len(ref) {
			ref[i] *= 1 + math.Exp(x)
		}
	}
	p.want = append(p.want, expect{"d_gate_logit", "dlog_g", ref})
}
