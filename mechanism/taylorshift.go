package mechanism

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

var taylorshift = Row{
	Name:   "taylorshift",
	Family: Kernelised,
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
	f32:      specBuilder(taylorshiftSpec[float32]),
	f64:      specBuilder(taylorshiftSpec[float64]),
}

func taylorshiftSpec[T tensor.Float](r *reader) (s attention.Spec[T], err error) {
	p := r.order()
	if p%2 != 0 {
		return s, fmt.Errorf("taylorshift: order %d: needs an even order, whose weights are positive for every τ", p)
	}
	tau, err := newTemperatures[T](r)
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
	s = attention.Spec[T]{
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

// newTemperatures returns the parameter tau [H], with the initial value of the setting
// tau.
func newTemperatures[T tensor.Float](r *reader) (*param.Param[T], error) {
	start, err := r.Positive("tau", "sqrt(D)")
	if err != nil {
		return nil, err
	}
	if start == 0 {
		if r.o.Width == 0 {
			return nil, fmt.Errorf("%s: setting tau=sqrt(D): the width D is not known", r.row.Name)
		}
		start = math.Sqrt(float64(r.o.Width))
	}
	heads := max(r.o.Heads, 1)
	tau := &param.Param[T]{Name: "tau", Shape: []int{heads}, Data: make([]T, heads), Grad: make([]T, heads)}
	for h := range tau.Data {
		tau.Data[h] = T(start)
	}
	return tau, nil
}

// The learned temperature of rows where it is a choice.
var (
	temperatureSetting  = Setting{"tau", "none", "what a learned factor τ of each head's scores starts from: a number, sqrt(D), or none for no such factor"}
	optionalTemperature = Param{"tau", "(H)", "factor τ of each query head, unless the setting tau is none"}
)

// newOptionalTemperatures returns the parameter tau [H], nil where the setting tau is
// none.
func newOptionalTemperatures[T tensor.Float](r *reader) (*param.Param[T], error) {
	if r.Text("tau") == "none" {
		return nil, nil
	}
	return newTemperatures[T](r)
}
