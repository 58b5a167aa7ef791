package golden

import (
	"math"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// retentionGroup are causal sums q_i·Σ_{j≤i} γ^(i-j)·k_j·v_jᵀ without a
// denominator, with γ for each head.
var retentionGroup = zooGroup{name: "retnet", needs: []string{"gamma"}, arrays: []string{"chunk", "state"}, read: func(r *reader, p *problem) string {
	return retentionZoo(r, p, r.floats("gamma"))
}}

// productZoo is the causal product of fast-transformers, whose γ is 1.
func productZoo(r *reader, p *problem) string {
	gamma := make([]float64, p.call.K.H)
	for h := range gamma {
		gamma[h] = 1
	}
	return retentionZoo(r, p, gamma)
}

func retentionZoo(r *reader, p *problem, gamma []float64) string {
	p.call.Causal = true
	p.mechanism, p.options = "retention", mechanism.Options{Set: map[string]string{"scale": "1", "gamma": numbersOf(gamma)}}
	p.book = oracle.Mechanism{Scale: 1, Coef: []float64{0, 1}, Unnormalized: true, Forget: func(h int) float64 {
		if h >= len(gamma) {
			return 0 // the file's mistake, which the mechanism reports
		}
		return math.Log(gamma[h])
	}}
	p.forms = p.everyForm()
	if r.f.hasArray("state") {
		p.moments = retentionMoments(r, p.tolerance.(relative))
		p.forms = append(p.forms, "state")
	}
	return ""
}

// retentionMoments are Σ_j γ^(N-1-j)·k_j·v_jᵀ, which unit vectors read row by
// row.
func retentionMoments(r *reader, t relative) *moments {
	k := r.heads("k")
	state := r.floats("state")
	m := &moments{tokensBefore: []int{k.N}}
	for d := range k.D {
		row := make([]float64, k.D)
		row[d] = 1
		m.queries = append(m.queries, row)
	}
	m.compare = func(c *Case, _ int, sums oracle.Heads, _ check.Limits) {
		var got []float64
		for i := range sums.B * sums.H * sums.N {
			got = append(got, sums.Data[i*sums.D:][:sums.D-1]...)
		}
		c.add("state", check.ErrorRatio(got, state, toleranceIn(t.output)*check.MaxAbs(state)))
	}
	return m
}
