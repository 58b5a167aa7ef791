package golden

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// kernelCase are the cases of kernel polynomials: what they are called, the
// degree where it is part of the name, and the mask, with decay or without.
var kernelCase = regexp.MustCompile(`^(based|power|taylor|reproducing_\w+_p|fastmax_example_\w+_p|Fastmax_cuda_intended_p)([1-9])?_(full|causal|decay_causal)$`)

// authors are the normalisations of FAST's authors' programs, by case; see the
// constants of attention.
var authors = map[string]struct {
	norm  string
	book  oracle.Norm
	scale float64
	coef  []float64 // nil: Taylor
}{
	"reproducing_score_function_norm1_p":   {"token-centred", oracle.TokenCentred, 1, nil},
	"reproducing_score_function_2_norm1_p": {"channel-centred", oracle.ChannelCentred, 1, nil},
	"reproducing_JAX_norm1_p":              {"global-centred", oracle.GlobalCentred, 1, nil},
	"fastmax_example_norm1_lim1_p":         {"max", oracle.Max, 1, nil},
	"fastmax_example_norm1_lim2_abc_p":     {"max", oracle.Max, 4, []float64{1, 1.166666, 0.145833}},
	"Fastmax_cuda_intended_p":              {"max-squared", oracle.MaxSquared, 1, nil},
}

// kernelProblem is the case of output o_key, whose name kernelCase has matched.
func kernelProblem(f *file, key string, match []string) *problem {
	r := &reader{f: f}
	p := newProblem(r, key)
	degree := 2
	if match[2] != "" {
		degree, _ = strconv.Atoi(match[2]) // a digit
	}
	p.call.Causal = match[3] != "full"
	if match[3] == "decay_causal" {
		p.call.LogG = r.perToken("log_g")
	}
	coef, norm := oracle.TaylorCoef(degree), "none"
	scale := 1 / math.Sqrt(float64(max(p.call.Q.D, 1)))
	switch match[1] {
	case "power":
		clear(coef[:degree])
		coef[degree] = 1
	case "reproducing_score_function_norm0_p":
		scale /= 8
	case "reproducing_einops_raw_p":
		scale = 1
	}
	if a, wide := authors[match[1]]; wide {
		norm, p.book.Norm, scale = a.norm, a.book, a.scale
		if a.coef != nil {
			coef = a.coef
		}
		if p.call.Causal {
			// Their statistics see the future, which a causal call does not: what
			// they compute is a mask of pairs.
			p.call.Causal, p.call.AttnKeep = false, lowerTriangle(p.call.Q.N, p.call.K.N)
		}
		if p.forms = p.everyForm(); p.call.AttnKeep == nil {
			p.forms = []string{"direct", "linear"} // no state
		}
	}
	switch match[1] {
	case "based":
		p.mechanism = "based"
	case "power":
		p.mechanism, p.options = "power", mechanism.Options{Order: degree}
	case "taylor":
		p.mechanism, p.options = "sata", mechanism.Options{Order: degree}
	default:
		p.mechanism, p.options = "polynomial", mechanism.Options{Set: map[string]string{"norm": norm, "coef": numbersOf(coef), "scale": formatNumber(scale)}}
	}
	p.book.Scale, p.book.Coef = scale, coef
	p.result(r, "o", "o_"+key)
	p.gradients(r, "do", map[string]string{"dq": "dq_" + key, "dk": "dk_" + key, "dv": "dv_" + key, "dlog_g": "dlog_g_" + key})
	return p.finish(r)
}

// lowerTriangle lets query i see keys j ≤ i + (m-n).
func lowerTriangle(n, m int) []bool {
	keep := make([]bool, n*m)
	for i := range n {
		for j := range min(max(i+m-n+1, 0), m) {
			keep[i*m+j] = true
		}
	}
	return keep
}

// numbersOf writes a list as settings have it.
func numbersOf(list []float64) string {
	var texts []string
	for _, x := range list {
		texts = append(texts, formatNumber(x))
	}
	return strings.Join(texts, ",")
}
