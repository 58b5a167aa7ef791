package mechanism

import (
	"fmt"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
)

var power = Row{
	Name:   "power",
	Doc:    "(q·k/√D)^p for even p: symmetric power attention",
	Source: "Buckman et al. 2024, Symmetric Power Transformers, Manifest AI; arXiv 2507.04239",
	Traits: "weights never negative; direct and linear forms; state of fixed size",
	Linear: true,
	Order:  2,
	Settings: []Setting{
		{"scale", "1/sqrt(D)", "factor of the scores, which cancels but for eps and the range of numbers: a number or 1/sqrt(D)"},
		{"eps", "0", "added to the sum of the weights; the authors' programs have 1e-6"},
		windowSetting, joinSetting, gammaSetting,
	},
	Params: []Param{logGamma},
	build:  specBuilder(powerSpec),
}

func powerSpec(r *reader) (s attention.Spec, err error) {
	p := r.order()
	if p%2 != 0 {
		return s, fmt.Errorf("power: order %d: needs an even order, whose weights are never negative", p)
	}
	scale, err := r.Positive("scale", "1/sqrt(D)")
	if err != nil {
		return s, err
	}
	eps, err := r.Positive("eps", "0")
	if err != nil {
		return s, err
	}
	coef := make([]float64, p+1)
	coef[p] = 1
	s = attention.Spec{
		Name:     r.row.Name,
		Setting:  fmt.Sprintf("power order=%d scale=%s eps=%s", p, entry.FormatScale(scale), strconv.FormatFloat(eps, 'g', -1, 64)),
		Scale:    scale,
		Coef:     coef,
		Eps:      eps,
		Positive: true,
	}
	err = setWindow(r, &s)
	return s, err
}
