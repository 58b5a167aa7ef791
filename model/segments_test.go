package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
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

func TestSegmentsAreTheSameOnThreads(t *testing.T) {
	defer par.SetThreads(0)
	c := with(tiny(Decoder, "fastmax"), func(c *Config) {
		c.Positions, c.Conv, c.Width, c.Heads, c.Context = Rotary, 3, 64, 4, 600
	})
	b := batch(c, 3, 1, 600, false)
	var first [][]float
	for _, threads := range []int{1, 3} {
		par.SetThreads(threads)
		_, all := segmentGrads(t, made(t, c), b, 100)
		if first == nil {
			first = all
			continue
		}
		for i, g := range all {
			if !slices.Equal(g, first[i]) {
				t.Errorf("gradient %d depends on the threads", i)
			}
		}
	}
}

func TestSegmentsAreRefused(t *testing.T) {
	for want, c := range map[string]Config{
		"kind is encoder, needs decoder":                   tiny(Encoder, "fastmax"),
		"softmax has no state of fixed size":               tiny(Decoder, "softmax"),
		"gradients of the state of mamba-2":                cases()["mamba-2"],
		"with dropout, states would be":                    with(tiny(Decoder, "fastmax"), func(c *Config) { c.AttentionDropout = 0.1 }),
		"3 tokens, needs 1 or more, and those of the conv": with(tiny(Decoder, "fastmax"), func(c *Config) { c.Conv = 4 }),
		"head_hidden is 12, segments have no units":        with(tiny(Decoder, "fastmax"), func(c *Config) { c.HeadHidden = 12 }),
		"pool is mean": with(tiny(Decoder, "fastmax"), func(c *Config) { c.Pool, c.Outputs, c.Tied = PoolMean, 3, false }),
	} {
		m, err := New(c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.CanSegment(3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
