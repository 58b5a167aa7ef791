//go:build float64

package mechanism

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// Why causal calls cut chunks of each bucket: the last token alone changes here, and with it
// which of the tokens before it meet each other across buckets.
func TestReformerSortsByLaterTokens(t *testing.T) {
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 36, m: 36, d: 8, dv: 3}.call(121)
	m := reformerOf(t, 8, "bucket", "6", "rounds", "1")
	c := callIn(oc)
	before, after := tensor.NewMat(36, 36), tensor.NewMat(36, 36)
	if err := m.Weights(before, c, 0, 0, 0, 36); err != nil {
		t.Fatal(err)
	}
	for i := range c.Q.Head(0, 0).Row(35) {
		c.Q.Head(0, 0).Row(35)[i] *= -1
	}
	if err := m.Weights(after, c, 0, 0, 0, 36); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for i := range 35 {
		for j := range i {
			if (before.Row(i)[j] > 0) != (after.Row(i)[j] > 0) {
				moved++
			}
		}
	}
	if moved == 0 {
		t.Error("the last token changes nothing between others")
	}
	c.Causal = true
	if err := m.Weights(before, c, 0, 0, 0, 36); err != nil {
		t.Fatal(err)
	}
	for i := range c.Q.Head(0, 0).Row(35) {
		c.Q.Head(0, 0).Row(35)[i] *= -1
	}
	if err := m.Weights(after, c, 0, 0, 0, 36); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before.Data[:35*36], after.Data[:35*36]) {
		t.Error("the last token of a causal call changes rows before it")
	}
	err := reformerOf(t, 8, "masks", "kept").Forward(tensor.NewHeads(1, 1, 36, 3), c, nil)
	if want := "causal: reformer has no causal form: with masks=kept"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

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

// A token by itself gives its own value exactly, and so does one that sees no
// other key; a token without length is a key like any other.
func TestReformerTokensAloneSeeThemselves(t *testing.T) {
	for _, form := range []string{"paper", "fast-transformers"} {
		m := reformerOf(t, 4, "bucket", "2", "rounds", "3", "form", form)
		oc, do := shape{b: 1, h: 1, hkv: 1, n: 1, m: 1, d: 4, dv: 3}.call(123)
		c := callIn(oc)
		r := both(t, m, c, do)
		if e := check.ErrorRatio(r.o.Data, oc.V.Data, 1e-15); e > 1 {
			t.Errorf("%s: one token gives %v, its value is %v", form, r.o.Data, oc.V.Data)
		}
		if e := check.ErrorRatio(r.g.DV.Data, do.Data, 1e-15); e > 1 || check.MaxAbs(r.g.DQ.Data) != 0 {
			t.Errorf("%s: one token has the gradients %v and %v", form, r.g.DQ.Data, r.g.DV.Data)
		}
		oc, do = shape{b: 1, h: 1, hkv: 1, n: 9, m: 9, d: 4, dv: 3}.call(124)
		clear(oc.Q.Head(0, 0).Row(4))
		r = both(t, m, callIn(oc), do)
		for _, x := range [][]float64{r.o.Data, r.g.DQ.Data, r.g.DV.Data} {
			if !(check.MaxAbs(x) < 100) {
				t.Errorf("%s: a token of zeros gives %v", form, x)
			}
		}
	}
}

// What does not fit is refused, with both numbers.
func TestReformerRefusesCallsThatDoNotFit(t *testing.T) {
	m := reformerOf(t, 4)
	heads := func(n, d int) tensor.Heads { return tensor.NewHeads(1, 1, n, d) }
	for _, x := range []struct {
		c    attention.Call
		want string
	}{
		{attention.Call{Q: heads(3, 5), K: heads(3, 5), V: heads(3, 2)}, "q: has width 5, rotations of reformer are for 4"},
		{attention.Call{Q: heads(3, 4), K: heads(7, 4), V: heads(7, 2)}, "k: a sequence has 7 tokens, q has 3: the keys of reformer are its queries"},
		{attention.Call{Q: heads(7, 4), K: heads(7, 4), V: heads(7, 2), CuQ: []int64{0, 3, 7}, CuK: []int64{0, 4, 7}},
			"k: a sequence has 4 tokens, q has 3: the keys of reformer are its queries"},
	} {
		if err := m.Forward(heads(x.c.Q.N, 2), &x.c, nil); err == nil || err.Error() != x.want {
			t.Errorf("error %v, want %s", err, x.want)
		}
	}
	for key, value := range map[string]string{"buckets": "5", "bucket": "0", "rounds": "33", "form": "code", "repeats": "never", "self": "no", "masks": "zero"} {
		if _, err := New("reformer", Options{Width: 4, Set: map[string]string{key: value}}); err == nil {
			t.Errorf("%s=%s is not refused", key, value)
		}
	}
}
