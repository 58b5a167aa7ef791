package golden

import (
	"math"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var performerGroup = zooGroup{
	name: "performer",
	arrays: []string{"W", "omega", "kernel", "stabilise", "feature_eps", "save_feat", "softmax_temp", "eps", "den_eps",
		"value_lengths", "phi_q", "phi_k"},
	read: performerZoo,
	cases: func(*file, relative) (*problem, string) {
		return nil, "a projection alone, which mechanism.TestOrthogonalFeaturesMatchGoldenFile compares"
	},
}

// performerZoo reads a file of random features.
func performerZoo(r *reader, p *problem) string {
	f := r.f
	switch {
	case f.hasArray("value_lengths"):
		return "a defect of the authors' program: keys beyond the length stay in the denominator"
	case !f.hasArray("W") && !f.hasArray("omega"):
		return "no W or omega"
	case f.stem() == "rff_gaussian":
		return fourierZoo(r, p)
	}
	d := p.call.Q.D
	book := &oracle.Favor{Kernel: "softmax", Root: math.Pow(float64(max(d, 1)), -0.25), KeepFactor: true}
	set := map[string]string{"eps": "0"}
	var w []float64      // [m, D]
	var code, whole bool // programs' form, and that it is one of whole heads
	if f.hasArray("W") {
		w = r.floats("W")
		if r.truth("kernel") {
			book.Kernel = "relu"
		}
		if f.hasArray("feature_eps") {
			book.FeatureEps = r.scalar("feature_eps")
		}
		if f.hasArray("den_eps") && r.scalar("den_eps") != 0 {
			p.book.Eps, book.OverSum = r.scalar("den_eps"), book.Kernel == "relu"
		}
		whole = book.Kernel == "softmax" && (book.FeatureEps != 0 || f.hasArray("stabilise") && r.truth("stabilise"))
		if whole && p.call.Causal {
			return "a defect of the authors' program: the largest exponent of keys is over later ones, too"
		}
		code = whole || book.OverSum
	} else {
		across := r.floats("omega")
		book.Kernel, book.Root = "relu", 1
		if f.hasArray("softmax_temp") {
			book.Kernel, book.Root = "hyperbolic", math.Sqrt(r.scalar("softmax_temp"))
		}
		n := len(across) / max(d, 1)
		for i := range n {
			for c := range d {
				w = append(w, across[c*n+i])
			}
		}
		p.book.Eps = r.scalar("eps")
		set["eps"] = formatNumber(p.book.Eps)
		whole = f.stem() == "favor_hyperbolic_stab1"
		code = whole
	}
	if r.err == nil && (len(w) == 0 || len(w)%d != 0) {
		return "W does not have rows of the width of q"
	}
	for i := 0; i+d <= len(w) && d > 0; i += d {
		book.W = append(book.W, w[i:][:d])
	}
	book.KeepFactor = p.book.Eps > 0
	set["kernel"], set["features"] = book.Kernel, formatNumber(float64(len(book.W)))
	set["scale"], set["feature_eps"] = formatNumber(book.Root*book.Root), formatNumber(book.FeatureEps)
	p.mechanism, p.options = "performer", mechanism.Options{Width: d, Set: set}
	p.numbers = map[string][]float64{"projection": w}
	if code {
		delete(set, "eps")
		delete(set, "feature_eps")
		set["form"] = "code"
	}
	if whole {
		p.headMatrix, p.forms = (&oracle.HeadFavor{Favor: *book, Eps: p.book.Eps}).Weights, p.wholeForms()
		return ""
	}
	p.book.Scale, p.book.Coef, p.book.Features = 1, []float64{0, 1}, book
	return ""
}
