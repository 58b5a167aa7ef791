package mechanism

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
)

var retention = Row{
	Name:   "retention",
	Family: Recurrent,
	Doc:    "γ_h^(i-j)·q·k/√D without a denominator: the retention of RetNet",
	Source: "Sun et al. 2023, Retentive Network, arXiv 2307.08621, eq. 5-8",
	Traits: "weights of either sign, which are not divided by their sum; causal calls only; direct and linear forms; state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"gamma", "1-2^(-5-h)", "γ of each key head h = 0, 1, …: numbers above 0 and at most 1, or 1-2^(-5-h)"},
		{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"},
	},
	build: specBuilder(retentionSpec),
}

func retentionSpec(r *reader) (s attention.Spec, err error) {
	scale, err := r.Positive("scale", "1/sqrt(D)")
	if err != nil {
		return s, err
	}
	forget := &attention.BuiltinDecay{Name: "gamma", Log: func(h int) float64 { return math.Log1p(-math.Exp2(float64(-5 - h))) }}
	if text := r.Text("gamma"); text != "1-2^(-5-h)" {
		var logs []float64
		for _, t := range strings.Split(text, ",") {
			x, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
			if err != nil || !(x > 0 && x <= 1) {
				return s, r.Refuse("gamma", "numbers above 0 and at most 1, or 1-2^(-5-h)")
			}
			logs = append(logs, math.Log(x))
		}
		forget.Log, forget.Heads = func(h int) float64 { return logs[h] }, len(logs)
	}
	return attention.Spec{
		Name:         r.row.Name,
		Setting:      fmt.Sprintf("retention gamma=%s scale=%s", r.Text("gamma"), formatScale(scale)),
		Scale:        scale,
		Coef:         []float64{0, 1},
		Unnormalized: true,
		BuiltinDecay: forget,
	}, nil
}
