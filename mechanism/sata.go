package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
)

var sata = Row{
	Name:   "sata",
	Doc:    "T_p(q·k/√D) of rows as they are, any p: SATA",
	Source: "Heinsen and Kozachkov 2026, SATA, arXiv 2602.00294",
	Traits: "positive weights for even p only, which the authors' default p = 3 is not; direct and linear forms; state of fixed size",
	Linear: true,
	Order:  3,
	Settings: []Setting{
		windowSetting, joinSetting, gammaSetting,
	},
	Params: []Param{logGamma},
	build:  specBuilder(sataSpec),
}

func sataSpec(r *reader) (s attention.Spec, err error) {
	p := r.order()
	s = attention.Spec{
		Name:     r.row.Name,
		Setting:  fmt.Sprintf("sata order=%d", p),
		Coef:     taylorCoefs(p),
		Positive: p%2 == 0,
	}
	err = setWindow(r, &s)
	return s, err
}
