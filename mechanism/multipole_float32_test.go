//go:build !float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// Keys near the largest numbers, whose products with values are beyond the range, give finite outputs and
// those of smaller keys with larger queries.
func TestMultipoleOfInputTakesHugeKeys(t *testing.T) {
	const n, d = 256, 4
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: n, m: n, d: d, dv: 3}.call(192)
	m, err := New("multipole", Options{Set: map[string]string{"centres": "input", "least": "0", "tol": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	var want []float64
	for _, exponent := range []int{0, 118} {
		c := callIn(oc)
		for i := range c.K.Data {
			c.Q.Data[i] = float32(math.Ldexp(float64(c.Q.Data[i]), -exponent))
			c.K.Data[i] = float32(math.Ldexp(float64(c.K.Data[i]), exponent))
		}
		for i := range c.V.Data {
			c.V.Data[i] *= 100
		}
		got := forward(t, m, c)
		if want == nil {
			for _, y := range got.o.Data {
				want = append(want, float64(y))
			}
		} else if e := check.ErrorRatio(got.o.Data, want, 1e-4); e > 1 {
			t.Errorf("outputs of huge keys differ by %.3g limits", e)
		}
	}
}
