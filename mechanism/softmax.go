package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
)

var softmax = Row{
	Name:   "softmax",
	Doc:    "exp(q·k/√D), the baseline: quadratic in the tokens",
	Source: "Vaswani et al. 2017, arXiv 1706.03762, eq. 1",
	Traits: "positive weights; direct form only; the state is a cache that grows",
	Settings: []Setting{
		{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"},
		scoreCapSetting,
	},
	build: specBuilder(softmaxSpec),
}

func softmaxSpec(r *reader) (s attention.Spec, err error) {
	scale, err := r.Positive("scale", "1/sqrt(D)")
	if err != nil {
		return s, err
	}
	s = attention.Spec{
		Name:     r.row.Name,
		Setting:  fmt.Sprintf("softmax scale=%v", entry.FormatScale(scale)),
		Scale:    scale,
		Positive: true,
	}
	limit, err := r.ScoreCap()
	if s.Exp = limit == 0; limit > 0 {
		s.Setting += fmt.Sprintf(" cap=%v", limit)
		s.Similarity = cappedExponential(limit)
	}
	return s, err
}

// scoreCapSetting is the setting of rows whose scores may be capped. Up to maxScoreCap the exponentials
// of float32 leave room for sums of 2^32 of them.
var scoreCapSetting = Setting{"cap", "none", "c: scores s are c·tanh(s/c) (Gemma Team 2024, arXiv 2408.00118, section 2), up to 64; none: as they are"}

// cappedExponential is the exponential of scores between -c and c.
func cappedExponential(c float64) *attention.Similarity {
	return &attention.Similarity{
		F: func(dst, s []float) {
			kernel.Cap(dst, s, c)
			kernel.Active[float]().Exp(dst, dst, 0)
		},
		Slope: func(dst, s []float) {
			t := kernel.Active[float]()
			var room [64]float
			for len(s) > 0 {
				n := min(len(s), len(room))
				y := dst[:n]
				kernel.Cap(y, s[:n], c)
				kernel.CapSlope(room[:n], y, c)
				t.Exp(y, y, 0)
				t.Mul(y, y, room[:n])
				dst, s = dst[n:], s[n:]
			}
		},
	}
}
