package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
)

// segmentGrads is grads in segments, and the loss.
func segmentGrads(t testing.TB, m *Model, b *Batch, size int) (float64, [][]float) {
	t.Helper()
	m.Params().ZeroGrad()
	loss, err := m.TrainSegments(t.Context(), b, size, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]float
	for _, p := range m.Params().All() {
		all = append(all, slices.Clone(p.Grad))
	}
	return loss, all
}

// In single precision, segments err from the gradient in double precision, which is in
// testdata/double, no more than twice as far as the whole does.
func TestLongSegmentsErrAsTheWhole(t *testing.T) {
	for _, n := range []int{1 << 10, 1 << 14} {
		if testing.Short() && n > 1<<10 {
			continue
		}
		c := Config{Kind: Decoder, Vocab: 17, Layers: 2, Heads: 2, Width: 16, Context: n, Positions: Rotary, Mechanism: "fastmax",
			Set: map[string]string{"scale": "1/sqrt(D)"}, Conv: 3, Tied: true}
		m := madeSingle(t, c)
		b := batch(c, 2, 1, n, false)
		whole := grads(t, m, b)
		want := double(t, fmt.Sprint("tokens", n), widen(slices.Concat(whole...)))
		if check.Precision == "float64" {
			continue // the file is right
		}
		_, parts := segmentGrads(t, m, b, n/8)
		for i, p := range m.Params().All() {
			w := want[:len(p.Data)]
			want = want[len(p.Data):]
			far := func(g []float) (far float64) {
				for j, x := range w {
					far = max(far, math.Abs(float64(g[j])-x))
				}
				return far / check.MaxAbs(w)
			}
			a, b := far(whole[i]), far(parts[i])
			t.Logf("%d tokens: %-28s the whole is off by %.2g, segments by %.2g of the largest", n, p.Name, a, b)
			// A few roundings either way where both hardly err.
			if !(b <= 2*a+8*check.UnitRoundoff[float]()) {
				t.Errorf("%d tokens, %s: segments are off by %g, the whole by %g", n, p.Name, b, a)
			}
		}
	}
}
