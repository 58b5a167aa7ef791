//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/sequence"
	"github.com/farfield-ml/farfield/internal/check"
)

// Ranks that divide some hundred tokens, with cuts anywhere in blocks and sinks, give the outputs and
// gradients of one process, but for rounding.
func TestMultipoleOverRanksIsOneProcess(t *testing.T) {
	for i := range 6 {
		for _, causal := range []bool{true, false} {
			name, m, c, do := longMultipole(t, i)
			c.Causal = causal
			want := both(t, m, c, do)
			for _, cuts := range [][]int{{0, 400}, {0, 131, 256, 400}, {0, 5, 40, 40, 300, 301, 400}} {
				got := &results{o: output(c)}
				got.g = attention.Grads{DQ: poisoned(2, 4, 400, 6), DK: poisoned(2, 2, 400, 6), DV: poisoned(2, 2, 400, c.V.D)}
				err := comm.RunLocal(len(cuts)-1, func(r *comm.Comm) error {
					i0, i1 := cuts[r.Rank()], cuts[r.Rank()+1]
					p := piece(c, i0, i1)
					p.Causal = causal
					o := got.o.Tokens(i0, i1)
					var keep sequence.Saved
					if err := sequence.Forward(r, m, o, p, &keep); err != nil {
						return err
					}
					g := attention.Grads{DQ: got.g.DQ.Tokens(i0, i1), DK: got.g.DK.Tokens(i0, i1), DV: got.g.DV.Tokens(i0, i1)}
					return sequence.Backward(r, m, &g, do.Tokens(i0, i1), o, p, &keep)
				})
				if err != nil {
					t.Fatalf("%s, causal %t, cuts %v: %v", name, causal, cuts, err)
				}
				for what, x := range map[string][2][]float64{"o": {got.o.Data, want.o.Data}, "dq": {got.g.DQ.Data, want.g.DQ.Data}, "dk": {got.g.DK.Data, want.g.DK.Data}, "dv": {got.g.DV.Data, want.g.DV.Data}} {
					if e := check.ErrorRatio(x[0], x[1], 1e-11*(1+check.MaxAbs(x[1]))); e > 1 {
						t.Errorf("%s, causal %t, cuts %v: %s is off by %.3g limits", name, causal, cuts, what, e)
					}
				}
			}
		}
	}
}
