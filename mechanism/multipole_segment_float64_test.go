//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
)

// Calls between states have the gradients of the whole call.
func TestMultipoleSegmentsHaveTheGradientsOfTheWhole(t *testing.T) {
	for i := range 6 {
		name, m, c, do := longMultipole(t, i)
		whole := both(t, m, c, do)
		cuts := []int{0, 20, 25, 190, 400}
		got := attention.Grads{DQ: poisoned(2, 4, 400, 6), DK: poisoned(2, 2, 400, 6), DV: poisoned(2, 2, 400, c.V.D)}
		out := output(c)
		calls, keeps := make([]*attention.Call, 4), make([]attention.Saved, 4)
		for j := range calls {
			calls[j] = maskedPart(c, cuts[j], cuts[j+1])
			if j > 0 {
				calls[j].Init = calls[j-1].Final
			}
			var err error
			if j < 3 {
				calls[j].Final, err = m.NewState(c.Shape())
			}
			if err == nil {
				err = m.Forward(out.Tokens(cuts[j], cuts[j+1]), calls[j], &keeps[j])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var after *attention.StateGrad
		for j := 3; j >= 0; j-- {
			i0, i1 := cuts[j], cuts[j+1]
			g := attention.Grads{DQ: got.DQ.Tokens(i0, i1), DK: got.DK.Tokens(i0, i1), DV: got.DV.Tokens(i0, i1), DFinal: after}
			if after = nil; j > 0 {
				after = new(attention.StateGrad)
				g.DInit = after
			}
			if err := m.Backward(&g, do.Tokens(i0, i1), out.Tokens(i0, i1), calls[j], &keeps[j]); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range []struct {
			name      string
			got, want []float64
		}{{"o", out.Data, whole.o.Data}, {"dq", got.DQ.Data, whole.g.DQ.Data}, {"dk", got.DK.Data, whole.g.DK.Data}, {"dv", got.DV.Data, whole.g.DV.Data}} {
			if e := check.ErrorRatio(x.got, x.want, 1e-11*(1+check.MaxAbs(x.want))); e > 1 {
				t.Errorf("%s: %s is off by %.3g limits", name, x.name, e)
			}
		}
	}
}
