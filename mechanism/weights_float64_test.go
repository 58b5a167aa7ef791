//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// A row counts as ill-conditioned from the documented limit, 2^-10 of the largest possible
// weight of the keys, and not from half of it: 1 + s of a score s just above -1.
func TestIllConditionedRowsBeginAtTheDocumentedLimit(t *testing.T) {
	for _, window := range []bool{false, true} {
		set := map[string]string{"coef": "1,1", "scale": "1"}
		if window {
			set["window"], set["join"] = "1", "denominator"
		}
		m, err := New("polynomial", Options{Set: set})
		if err != nil {
			t.Fatal(err)
		}
		if window { // e^-700 is all that it weighs
			gamma, err := m.Params().Get("log_gamma")
			if err != nil {
				t.Fatal(err)
			}
			gamma.Data[0] = -700
		}
		for _, x := range []struct {
			den  float64
			weak int64
		}{{0.52 * limitOfOneKey, 1}, {0.98 * limitOfOneKey, 1}, {1.02 * limitOfOneKey, 0}} {
			c := &attention.Call{Q: tensor.NewHeads(1, 1, 1, 1), K: tensor.NewHeads(1, 1, 1, 1), V: tensor.NewHeads(1, 1, 1, 1), Causal: true}
			if window { // the key of the query's own token is the window's
				c.K, c.V = tensor.NewHeads(1, 1, 2, 1), tensor.NewHeads(1, 1, 2, 1)
			}
			c.Q.Data[0], c.K.Data[0] = 1, x.den-1
			var keep attention.Saved
			if err := m.Forward(output(c), c, &keep); err != nil {
				t.Fatal(err)
			}
			if keep.WeakCount != x.weak {
				t.Errorf("window %v: a denominator of %.2f limits: %d rows are ill-conditioned, want %d", window, x.den/limitOfOneKey, keep.WeakCount, x.weak)
			}
		}
	}
}

// limitOfOneKey is the solution g of g = (2 - g)/1024: one key with 1 + s = g above 0 has
// f̄(|s|) = 2 - g.
const limitOfOneKey = 2.0 / 1025
