package golden

import (
	"math"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// isRetention reports whether a file holds causal sums q_i·Σ_{j≤i} γ^(i-j)·k_j·v_jᵀ
// without a denominator: those of retention with γ for each head, or the causal
// product of fast-transformers, whose γ is 1, with nothing but inputs.
func isRetention(f *file) bool {
	bare := []string{"q", "k", "v", "out", "go", "d_q", "d_k", "d_v"}
	return f.has("q", "k", "v", "out") && (f.only(bare) || f.has("gamma") && f.only(append(bare, "gamma", "chunk", "state")))
}

func retentionZoo(f *file, t relative) *problem {
	r := &reader{f: f}
	p := newZoo(r, t)
	p.call.Causal = true
	gamma := make([]float64, p.call.K.H)
	for h := range gamma {
		gamma[h] = 1
	}
	if f.has("gamma") {
		gamma = r.floats("gamma")
	}
	p.mechanism, p.options = "retention", mechanism.Options{Set: map[string]string{"scale": "1", "gamma": numbers(gamma)}}
	p.book = oracle.Mechanism{Scale: 1, Coef: []float64{0, 1}, Raw: true, Forget: func(h int) float64 {
		if h >= len(gamma) {
			return 0 // the file's mistake, which the mechanism reports
		}
		return math.Log(gamma[h])
	}}
	p.forms = p.everyForm()
	if f.has("state") {
		p.moments = retentionMoments(r, t)
		p.forms = append(p.forms, "state")
	}
	return p.done(r)
}

// retentionMoments are Σ_j γ^(N-1-j)·k_j·v_jᵀ, which unit vectors read row by
// row.
func retentionMoments(r *reader, t relative) *moments {
	k := r.heads("k")
	state := r.floats("state")
	m := &moments{after: []int{k.N}}
	for d := range k.D {
		row := make([]float64, k.D)
		row[d] = 1
		m.queries = append(m.queries, row)
	}
	m.compare = func(c *Case, _ int, sums tensor.Heads[float64], _ check.Limits, double bool) {
		var got []float64
		for i := range sums.B * sums.H * sums.N {
			got = append(got, sums.Data[i*sums.D:][:sums.D-1]...)
		}
		c.add("state", check.Ratio(got, state, in(t.output, double)*check.Max(state)))
	}
	return m
}
