package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
)

var taylorshift = Row{
	Name:   "taylorshift",
	Doc:    "T_2(τ q̂·k̂) of rows of length 1, τ learned per head: TaylorShift",
	Source: "Nauen et al. 2024, TaylorShift, arXiv 2403.02920, section 3",
	Traits: "positive weights; direct and linear forms; state of fixed size",
	Linear: true,
	Order:  2,
	Settings: []Setting{
		{"tau", "1", "what τ starts from: a number or sqrt(D)"},
		outputNormSetting, windowSetting, joinSetting, gammaSetting,
	},
	Params: []Param{
		{"tau", "(H)", "temperature τ of each query head"},
		logGamma,
	},
	// As published τ starts from 1, and models learn worse.
	Training: func(int, bool) map[string]string { return map[string]string{"tau": "sqrt(D)"} },
	build:    specBuilder(taylorshiftSpec),
}

func taylorshiftSpec(r *reader) (s attention.Spec, err error) {
	p := r.order()
	if p%2 != 0 {
		return s, fmt.Errorf("taylorshift: order %d: needs an even order, whose weights are positive for every τ", p)
	}
	tau, err := newTemperatures(r)
	if err != nil {
		return s, err
	}
	normed, err := r.Bool("output_norm")
	if err != nil {
		return s, err
	}
	// τ is not part of it: it multiplies queries, which states do not hold.
	setting := fmt.Sprintf("taylorshift order=%d", p)
	if normed {
		setting += " output_norm=true"
	}
	s = attention.Spec{
		Name:       r.row.Name,
		Setting:    setting,
		Norm:       attention.Unit,
		Scale:      1,
		Tau:        tau,
		Coef:       taylorCoefs(p),
		OutputNorm: normed,
		Positive:   true,
	}
	err = setWindow(r, &s)
	return s, err
}

// outputNormSetting is the setting that scales outputs by the number of visible keys.
var outputNormSetting = Setting{"output_norm", "false", "true: the output of a query that sees n keys is multiplied by √(n/D)"}
