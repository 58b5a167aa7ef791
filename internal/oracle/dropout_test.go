package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// factors are what dropout at a third multiplies with.
func factors(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		if r.IntN(3) > 0 {
			x[i] = 1.5
		}
	}
	return x
}

func TestGradientsUnderDropout(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9)) // no row comes near the kink of elu
	for name, m := range map[string]*Mechanism{
		"softmax":     {Exp: true},
		"fastmax2":    {Norm: Standard, Scale: 0.1, Coef: TaylorCoef(2)},
		"taylorshift": {Norm: Unit, Scale: 0.5, Tau: []float64{0.5, 1.5, -1, 1}, Coef: TaylorCoef(2)},
		"linear":      {Scale: 1, Map: EluPlusOne, Coef: []float64{0, 1}, Eps: 1e-6},
	} {
		for _, pairs := range []bool{false, true} {
			if pairs && (m.Exp || m.Map != nil) {
				continue
			}
			c := &Call{Q: random(r, 2, 4, 5, 4), K: random(r, 2, 2, 6, 4), V: random(r, 2, 2, 6, 3), Causal: true, Theta: 100}
			queries, keys := 2*4*5*4, 2*2*6*4
			if pairs {
				c.Drop = &Drop{QQ: factors(r, queries*4), KK: factors(r, keys*4)}
			} else {
				c.Drop = &Drop{Q: factors(r, queries), K: factors(r, keys)}
			}
			do := random(r, 2, 4, 5, 3)
			loss := func() float64 { return dotProduct(m.Forward(c).O.Data, do.Data) }
			g := m.Backward(c, do)
			for _, x := range []struct {
				name      string
				at, grads []float64
			}{{"dq", c.Q.Data, g.DQ.Data}, {"dk", c.K.Data, g.DK.Data}, {"dv", c.V.Data, g.DV.Data}, {"dtau", m.Tau, g.DTau}} {
				holdDerivatives(t, fmt.Sprintf("%s, pairs %t: %s", name, pairs, x.name), loss, x.at, x.grads)
			}
		}
	}
}
