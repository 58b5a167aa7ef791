package mechanism

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// reformerSubjects are those that sort by angles.
func reformerSubjects() (list []subject) {
	for _, x := range []struct {
		oracle.Reformer
		set map[string]string
	}{
		{oracle.Reformer{Bucket: 4, Rounds: 4, Buckets: 8}, nil},
		{oracle.Reformer{Bucket: 3, Rounds: 1, Buckets: 64}, nil},
		{oracle.Reformer{Bucket: 5, Rounds: 2, Buckets: 4, Counted: true, Self: true}, map[string]string{"repeats": "counted", "self": "seen"}},
		{oracle.Reformer{Bucket: 2, Rounds: 3, Buckets: 6, MaskedKeysSort: true}, map[string]string{"masks": "kept"}},
		{oracle.Reformer{Bucket: 2, Rounds: 3, Buckets: 2}, nil}, // long buckets of causal calls
		{oracle.Reformer{Bucket: 4, Rounds: 3, Buckets: 6, SeparateRounds: true}, map[string]string{"form": "fast-transformers"}},
		{oracle.Reformer{Bucket: 3, Rounds: 1, Buckets: 4, SeparateRounds: true, Self: true, MaskedKeysSort: true, Scale: 2},
			map[string]string{"form": "fast-transformers", "self": "seen", "masks": "kept", "scale": "2"}},
	} {
		set := map[string]string{"bucket": strconv.Itoa(x.Bucket), "rounds": strconv.Itoa(x.Rounds), "buckets": strconv.Itoa(x.Buckets)}
		label := "reformer bucket=" + set["bucket"] + " rounds=" + set["rounds"] + " buckets=" + set["buckets"]
		for _, key := range []string{"form", "repeats", "self", "masks", "scale"} {
			if v := x.set[key]; v != "" {
				set[key] = v
				label += " " + key + "=" + v
			}
		}
		list = append(list, subject{
			label: label, name: "reformer", o: Options{Width: 3, Set: set}, average: true, shared: true,
			places: "its keys are its queries: that of a masked key still asks", recalls: true,
			whole: func(p numbers) oracle.HeadMatrix {
				book := x.Reformer
				book.Rotations = p["rotations"]
				return book.Weights
			},
		})
	}
	return list
}

func reformerOf(t *testing.T, width int, pairs ...string) attention.Mechanism {
	t.Helper()
	set := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	m, err := New("reformer", Options{Width: width, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Hashing and sorting take no memory of their own.
func TestReformerDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "reformer", map[string]string{"bucket": "8"})
	doNotAllocate(t, "reformer", map[string]string{"bucket": "8", "form": "fast-transformers"})
}

// Softmax of scores below 2⁻⁸⁰⁰ is uniform, and gradients do not depend on the scale of rows.
// Subnormal rows are known to 2⁻⁴⁴ of their length, whose inverse leaves the range.
func TestReformerNormalisesSubnormalRows(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 2, n: 12, m: 12, d: 4, dv: 3}.call(124)
	scaled := func(factor float64) *attention.Call {
		c := callIn(oc)
		c.Q, c.K = tensor.NewHeads(1, 2, 12, 4), tensor.NewHeads(1, 2, 12, 4)
		for i, x := range oc.Q.Data {
			c.Q.Data[i], c.K.Data[i] = float(factor*x), float(factor*x)
		}
		return c
	}
	if precision == "float64" {
		m := reformerOf(t, 4, "bucket", "12", "rounds", "1")
		want, got := both(t, m, scaled(0x1p-900), in(do)), both(t, m, scaled(0x1p-1030), in(do))
		for name, x := range map[string][2][]float{"o": {got.o.Data, want.o.Data}, "dq": {got.g.DQ.Data, want.g.DQ.Data}, "dv": {got.g.DV.Data, want.g.DV.Data}} {
			if e := check.ErrorRatio(x[0], widened(x[1]), 32*0x1p-44*check.MaxAbs(x[1])); !(e <= 1) {
				t.Errorf("%s is off by %.3g limits", name, e)
			}
		}
		return
	}
	m, err := New("reformer", Options{Width: 4})
	if err != nil {
		t.Fatal(err)
	}
	r := both(t, m, scaled(0x1p-140), in(do))
	if rows, first := attention.NonFinite(r.g.DQ); rows > 0 {
		t.Errorf("float32: %d rows of dq are not finite, the first %v", rows, first)
	}
}

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

// A token by itself gives its own value exactly, and so does one that sees no
// other key; a token without length is a key like any other.
func TestReformerTokensAloneSeeThemselves(t *testing.T) {
	limit := 4 * check.UnitRoundoff[float]() // exponential, sum, division, product
	for _, form := range []string{"paper", "fast-transformers"} {
		m := reformerOf(t, 4, "bucket", "2", "rounds", "3", "form", form)
		oc, do := shape{b: 1, h: 1, hkv: 1, n: 1, m: 1, d: 4, dv: 3}.call(123)
		c := callIn(oc)
		r := both(t, m, c, in(do))
		if e := check.ErrorRatio(r.o.Data, oc.V.Data, limit*check.MaxAbs(oc.V.Data)); e > 1 {
			t.Errorf("%s: one token gives %v, its value is %v", form, r.o.Data, oc.V.Data)
		}
		if e := check.ErrorRatio(r.g.DV.Data, do.Data, limit*check.MaxAbs(do.Data)); e > 1 || check.MaxAbs(r.g.DQ.Data) != 0 {
			t.Errorf("%s: one token has the gradients %v and %v", form, r.g.DQ.Data, r.g.DV.Data)
		}
		oc, do = shape{b: 1, h: 1, hkv: 1, n: 9, m: 9, d: 4, dv: 3}.call(124)
		clear(oc.Q.Head(0, 0).Row(4))
		r = both(t, m, callIn(oc), in(do))
		for _, x := range [][]float{r.o.Data, r.g.DQ.Data, r.g.DV.Data} {
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
