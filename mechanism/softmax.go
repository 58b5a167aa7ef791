package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

var softmax = Row{
	Name:   "softmax",
	Family: Dense,
	Doc:    "exp(q·k/√D), the baseline: quadratic in the tokens",
	Source: "Vaswani et al. 2017, arXiv 1706.03762, eq. 1",
	Traits: "positive weights; direct form only; the state is a cache that grows",
	Settings: []Setting{
		{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"},
	},
	f32: specBuilder(softmaxSpec[float32]),
	f64: specBuilder(softmaxSpec[float64]),
}

func softmaxSpec[T tensor.Float](r *reader) (s attention.Spec[T], err error) {
	scale, err := r.Positive("scale", "1/sqrt(D)")
	return attention.Spec[T]{
		Name:     r.row.Name,
		Setting:  fmt.Sprintf("softmax scale=%v", formatScale(scale)),
		Scale:    scale,
		Exp:      true,
		Positive: true,
	}, err
}
