package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
)

var fastmax = Row{
	Name:     "fastmax",
	Doc:      "T_p(q̂·k̂) of rows with mean 0 and deviation 1: FAST",
	Source:   "Gerami et al. 2024, FAST, arXiv 2402.07901, eq. 5-12",
	Traits:   "positive weights for even p, for odd p only where bounded; direct and linear forms; state of fixed size",
	Linear:   true,
	Order:    2,
	FarField: FarField{Order: 4, Period: 3, WidestHead: 16}, // 4,845 features at width 16, 58,905 at 32
	Settings: []Setting{
		{"scale", "1", "factor of the scores: a number or 1/sqrt(D); the paper has none"},
		{"bounded", "false", "true: rows have mean 0 and length 1, so that scores stay within ±scale"},
		temperatureSetting, windowSetting, joinSetting, gammaSetting,
	},
	Params:   []Param{optionalTemperature, logGamma},
	Training: fastmaxTraining,
	build:    specBuilder(fastmaxSpec),
}

// trainingWindow is the width of the near field in training, measured in
// docs/multipole.md.
const trainingWindow = "64"

// fastmaxTraining returns settings that learn better than the published form, which has
// no scale and no window. Weights of an odd order can be negative, and denominators
// vanish unless scores are bounded. Orders 2 and 4 beside a window have a learned
// temperature; others are not measured.
func fastmaxTraining(order int, window bool) map[string]string {
	set := map[string]string{}
	if order%2 == 1 {
		set["bounded"] = "true"
	} else {
		set["scale"] = "1/sqrt(D)"
	}
	if window {
		set["window"] = trainingWindow
		if order == 2 || order == 4 {
			set["tau"] = "1"
		}
	}
	return set
}

func fastmaxSpec(r *reader) (s attention.Spec, err error) {
	p := r.order()
	scale, err := r.Positive("scale", "1/sqrt(D)")
	if err != nil {
		return s, err
	}
	bounded, err := r.Bool("bounded")
	if err != nil {
		return s, err
	}
	s = attention.Spec{
		Name:    r.row.Name,
		Setting: fmt.Sprintf("fastmax order=%d scale=%s bounded=%t", p, entry.FormatScale(scale), bounded),
		Norm:    attention.Standard,
		Scale:   scale,
		Coef:    taylorCoefs(p),
		// T_p of even p has its minimum where T_{p-1} = 0, with the value
		// s^p/p! > 0.
		Positive: p%2 == 0,
	}
	if s.Tau, err = newOptionalTemperatures(r); err != nil {
		return s, err
	}
	if s.Tau != nil && p%2 == 1 {
		return s, fmt.Errorf("%s: order %d with setting tau=%s: needs an even order, whose weights are positive for every τ", r.row.Name, p, r.Text("tau"))
	}
	if bounded {
		s.Norm = attention.Bounded
		limit := scale
		if scale == 0 {
			limit = 1 // 1/√D is at most 1
		}
		// T_p of odd p is increasing, so its value at the lower end decides.
		s.Positive = p%2 == 0 || evalPolynomial(s.Coef, -limit) >= 0
	}
	err = setWindow(r, &s)
	return s, err
}
