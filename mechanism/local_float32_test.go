//go:build !float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// A query whose window is masked as a whole gives 0, is counted and has no gradient.
// Programs that mask with large negative numbers average the masked values.
func TestAnEmptyWindowIsZero(t *testing.T) {
	for _, name := range []string{"local", "longformer", "sparse-fixed", "longnet", "adaptive-span"} {
		t.Run(name, func(t *testing.T) {
			settings := map[string][]string{
				"local":         {"window", "3"},
				"longformer":    {"window", "3", "global", "none"},
				"sparse-fixed":  {"stride", "4", "c", "0"},
				"longnet":       {"segments", "4", "ratios", "1"},
				"adaptive-span": {"span", "0", "ramp", "2", "limit", "1"},
			}[name]
			m := mechanismOf(t, name, 1, settings...)
			sh := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 4, dv: 3}
			oc, do := sh.call(90)
			c := callIn(oc)
			c.KeyMask = make([]bool, 12)
			c.KeyMask[0], c.KeyMask[11] = true, true
			r := both(t, m, c, in(do))
			// The window of token 5 has tokens 4 to 7 and fewer.
			for _, x := range [][]float32{r.o.Head(0, 0).Row(5), r.g.DQ.Head(0, 0).Row(5)} {
				if check.MaxAbs(x) != 0 {
					t.Errorf("a query without keys has %v", x)
				}
			}
			if r.keep.UnseenCount < 4 || r.keep.UnseenCount > 10 {
				t.Errorf("%d queries see nothing", r.keep.UnseenCount)
			}
		})
	}
}
