package golden

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// kernelCase are the cases of the mechanism polynomial: what they are called,
// the degree where it is part of the name, and the mask.
var kernelCase = regexp.MustCompile(`^(based|power|taylor|reproducing_score_function_norm0_p|reproducing_einops_raw_p)([1-9])?_(full|causal)$`)

// kernelProblem is the case of output o_key, whose name kernelCase has matched.
func kernelProblem(f *file, key string, match []string) *problem {
	r := &reader{f: f}
	p := newProblem(r, key)
	degree := 2
	if match[2] != "" {
		degree, _ = strconv.Atoi(match[2]) // a digit
	}
	p.call.Causal = match[3] == "causal"
	coef := oracle.Taylor(degree)
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
	p.mechanism, p.options = "polynomial", mechanism.Options{Set: map[string]string{"coef": numbers(coef), "scale": number(scale)}}
	p.book = oracle.Mechanism{Scale: scale, Coef: coef}
	p.result(r, "o", "o_"+key)
	p.gradients(r, "do", map[string]string{"dq": "dq_" + key, "dk": "dk_" + key, "dv": "dv_" + key})
	return p.done(r)
}

// numbers writes a list as settings have it.
func numbers(list []float64) string {
	var texts []string
	for _, x := range list {
		texts = append(texts, number(x))
	}
	return strings.Join(texts, ",")
}
