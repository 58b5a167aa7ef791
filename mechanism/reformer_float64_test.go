//go:build float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// With one bucket for all and a chunk for all tokens, causal reformer is softmax over the keys before
// each query, and of the first query its own value. A token whose bucket holds no other gives its own value.
func TestCausalReformerIsSoftmaxInOneChunk(t *testing.T) {
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 20, m: 20, d: 4, dv: 3}.call(126)
	for i := range 20 { // all near one axis
		copy(oc.Q.Head(0, 0).Row(i), []float64{5, 0, 0, float64(i) / 20})
	}
	c := callIn(oc)
	c.Causal = true
	m := reformerOf(t, 4, "bucket", "20", "rounds", "1", "buckets", "2")
	copy(m.Constants().All()[0].Data, []float64{1, 0, 0, 0})
	got := tensor.NewMat(20, 20)
	if err := m.Weights(got, c, 0, 0, 0, 20); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		want, sum := make([]float64, 20), 0.0
		q := oc.Q.Head(0, 0).Row(i)
		for j := range i {
			k := oc.Q.Head(0, 0).Row(j)
			want[j] = math.Exp((q[0]*k[0] + q[3]*k[3]) / math.Hypot(k[0], k[3]) / 2)
			sum += want[j]
		}
		if i == 0 {
			want[0], sum = 1, 1
		}
		for j := range want {
			if e := math.Abs(got.Row(i)[j] - want[j]/sum); e > 1e-14 {
				t.Errorf("weight %d of query %d is %v, want %v", j, i, got.Row(i)[j], want[j]/sum)
			}
		}
	}
	for c := range oc.Q.Head(0, 0).Row(13) {
		oc.Q.Head(0, 0).Row(13)[c] *= -1
	}
	c = callIn(oc)
	c.Causal = true
	if err := m.Weights(got, c, 0, 0, 0, 20); err != nil {
		t.Fatal(err)
	}
	if got.Row(13)[13] != 1 || got.Row(14)[13] != 0 {
		t.Errorf("a token alone in its bucket has the weights %v, the next %v", got.Row(13), got.Row(14))
	}
}

// In two chunks each token meets all others in every round. Once removed, those
// repeats leave what one round gives, exactly but for rounding; and where all
// keys are found as often, counting them changes nothing either.
func TestReformerCountsRepeatedKeysOnce(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 20, m: 20, d: 8, dv: 3}.call(122)
	c := callIn(oc)
	want := both(t, reformerOf(t, 8, "bucket", "20", "rounds", "1"), c, do)
	for _, pairs := range [][]string{
		{"bucket", "10", "rounds", "1"}, {"bucket", "10", "rounds", "5"}, {"bucket", "13", "rounds", "3"},
		{"bucket", "7", "rounds", "32"}, // all meet in some round
		{"bucket", "64", "rounds", "4", "repeats", "counted"},
	} {
		got := both(t, reformerOf(t, 8, pairs...), c, do)
		if e := check.ErrorRatio(got.o.Data, want.o.Data, 1e-13); e > 1 {
			t.Errorf("%v: o is not that of one chunk, by %.3g", pairs, 1e-13*e)
		}
		if e := check.ErrorRatio(got.g.DQ.Data, want.g.DQ.Data, 1e-13); e > 1 {
			t.Errorf("%v: dq is not that of one chunk, by %.3g", pairs, 1e-13*e)
		}
	}
}
