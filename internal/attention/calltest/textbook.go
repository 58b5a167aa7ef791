package calltest

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/param"
)

// Textbook holds mechanisms of the reference for tests.
var Textbook = map[string]*oracle.Mechanism{
	"softmax":     {Exp: true},
	"fastmax1":    {Norm: oracle.Bounded, Scale: 0.7, Coef: oracle.TaylorCoef(1)},
	"fastmax2":    {Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)},
	"fastmax4":    {Norm: oracle.Standard, Coef: oracle.TaylorCoef(4)},
	"taylorshift": {Norm: oracle.Unit, Scale: 1, Tau: []float64{0.5, 1.5, 2, 1}, Coef: oracle.TaylorCoef(2)},
	"linear":      {Scale: 1, Map: oracle.EluPlusOne, Coef: []float64{0, 1}, Eps: 1e-6},
	"outputs":     {Norm: oracle.Unit, Coef: oracle.TaylorCoef(2), OutputNorm: true},
	"power":       {Coef: []float64{0, 0, 1}, Eps: 1, OutputNorm: true},
}

// elementwise is a feature map of the reference.
type elementwise struct{ of *oracle.Map }

func (e elementwise) Dim(d int) int { return d }

func (e elementwise) Map(dst, x []float) {
	for c, v := range x {
		dst[c] = float(e.of.F(float64(v)))
	}
}

func (e elementwise) Grad(dx, dy, x []float) {
	for c, v := range x {
		dx[c] = dy[c] * float(e.of.DF(float64(v)))
	}
}

// SpecOf returns the Spec of a mechanism of the reference.
func SpecOf(name string, m *oracle.Mechanism) attention.Spec {
	s := attention.Spec{
		Name: name, Setting: "test", Norm: attention.Norm(m.Norm), Scale: m.Scale,
		Exp: m.Exp, Coef: m.Coef, Eps: m.Eps, OutputNorm: m.OutputNorm, Positive: name != "fastmax1",
	}
	if m.Map != nil {
		s.Map = elementwise{m.Map}
	}
	if m.Tau != nil {
		s.Tau = &param.Param{Name: "tau", Shape: []int{len(m.Tau)}, Grad: make([]float, len(m.Tau))}
		for _, x := range m.Tau {
			s.Tau.Data = append(s.Tau.Data, float(x))
		}
	}
	return s
}

// IsTried reports whether to test a call with the named mechanism. Without -long, calls with
// many pairs are tested with only one mechanism of each kind.
func IsTried(name string, c *oracle.Call) bool {
	const long = 4096 // pairs
	return suite.IsLong() || c.Q.N*c.K.N < long || name == "softmax" || name == "fastmax2" || name == "linear"
}

// EachProblem runs f for every mechanism and every call that is tried with it.
func EachProblem(t *testing.T, f func(t *testing.T, name string, m *oracle.Mechanism, c *oracle.Call)) {
	for what, c := range Problems() {
		for name, m := range Textbook {
			if m.OutputNorm && c.LogG.D > 0 {
				continue // refused: see TestOutputNormRefusesDecay
			}
			if IsTried(name, c) {
				t.Run(name+"/"+what, func(t *testing.T) { f(t, name, m, c) })
			}
		}
	}
}
