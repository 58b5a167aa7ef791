package mechanism

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/param"
)

// newTemperatures returns the parameter tau [H], with the initial value of the setting
// tau.
func newTemperatures(r *reader) (*param.Param, error) {
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
	tau := &param.Param{Name: "tau", Shape: []int{heads}, Data: make([]float, heads), Grad: make([]float, heads)}
	for h := range tau.Data {
		tau.Data[h] = float(start)
	}
	return tau, nil
}

// The setting and the parameter of rows whose learned temperature is optional.
var (
	temperatureSetting  = Setting{"tau", "none", "what a learned factor τ of each head's scores starts from: a number, sqrt(D), or none for no such factor"}
	optionalTemperature = Param{"tau", "(H)", "factor τ of each query head, unless the setting tau is none"}
)

// newOptionalTemperatures returns the parameter tau [H], nil where the setting tau is
// none.
func newOptionalTemperatures(r *reader) (*param.Param, error) {
	if r.Text("tau") == "none" {
		return nil, nil
	}
	return newTemperatures(r)
}
