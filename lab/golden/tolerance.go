package golden

import (
	"math"

	"github.com/farfield-ml/farfield/internal/check"
)

// tolerance returns limits for the equal parts of e. l holds the limits of the form.
type tolerance interface {
	limits(p *problem, e *expect, l check.Limits) []float64
}

// byCondition gives the limits of the polynomial fixtures: see docs/numerics.md. With
// maxOnly, for weights whose sum cannot cancel, max|v| alone measures outputs.
type byCondition struct{ maxOnly bool }

func (t byCondition) limits(p *problem, e *expect, l check.Limits) []float64 {
	r := p.solveReference()
	v := check.MaxAbs(p.call.V.Data)
	switch e.what {
	case "den":
		list := make([]float64, len(r.Cond))
		for i, cond := range r.Cond {
			list[i] = l.Sum(p.call.K.N, cond*math.Abs(e.ref[i]))
		}
		return list
	case "o":
		list := make([]float64, len(r.Cond))
		n := p.call.V.D
		for i, cond := range r.Cond {
			if t.maxOnly {
				list[i] = l.Output(1, r.Factor[i]*v)
			} else {
				list[i] = l.Output(cond, r.Factor[i]*v+check.MaxAbs(e.ref[i*n:][:n]))
			}
		}
		return list
	}
	if p.book.Exp {
		return []float64{l.Gradient(1, check.MaxAbs(e.ref))}
	}
	size := max(check.MaxAbs(e.ref), check.MaxAbs(p.do.Data)*v)
	if e.what == "dtau" || e.what == "dlog_g" { // a sum over queries
		size *= float64(p.call.Q.N)
	}
	return []float64{l.Gradient(check.MaxAbs(r.Cond), size)}
}

// relative are tolerances as factors of the largest value of an array.
type relative struct{ output, gradient float64 }

func (t relative) limits(p *problem, e *expect, _ check.Limits) []float64 {
	f := t.gradient
	if e.what == "o" || e.what == "den" {
		f = t.output
	}
	size, do := check.MaxAbs(e.ref), check.MaxAbs(p.do.Data)
	if size < 1e-12*do { // nothing but rounding of a zero
		return []float64{1e-6 * do}
	}
	return []float64{toleranceIn(f) * size}
}

// toleranceIn returns the relative tolerance of a precision: files give float32's.
func toleranceIn(tolerance float64) float64 {
	if check.Precision == "float64" {
		return 1e-9
	}
	return tolerance
}
