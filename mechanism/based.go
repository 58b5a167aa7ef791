package mechanism

import (
	"strconv"

	"github.com/farfield-ml/farfield/attention"
)

var based = Row{
	Name:   "based",
	Doc:    "T_2(q·k/√D) of rows as they are: the linear attention of Based",
	Source: "Arora et al. 2024, Based, arXiv 2402.18668, section 4.1",
	Traits: "positive weights; direct and linear forms; state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"eps", "0", "added to the sum of the weights; the authors' programs have 1e-12, flash-linear-attention 1e-6"},
		windowSetting, joinSetting, gammaSetting,
	},
	Params: []Param{logGamma},
	build:  specBuilder(basedSpec),
}

func basedSpec(r *reader) (s attention.Spec, err error) {
	eps, err := r.Positive("eps", "0")
	if err != nil {
		return s, err
	}
	s = attention.Spec{
		Name:     r.row.Name,
		Setting:  "based eps=" + strconv.FormatFloat(eps, 'g', -1, 64),
		Coef:     taylorCoefs(2),
		Eps:      eps,
		Positive: true,
	}
	err = setWindow(r, &s)
	return s, err
}
