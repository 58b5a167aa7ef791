package mechanism

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

func TestEvaRefusesSettingsThatDoNotFit(t *testing.T) {
	for _, x := range []struct {
		set  map[string]string
		want string
	}{
		{map[string]string{"chunk": "0"}, "setting chunk=0: needs a whole number from 1 to 4096"},
		{map[string]string{"chunk": "5"}, "setting chunk=5: needs a divisor of window=32"},
		{map[string]string{"chunk": "8", "noise": "normal"}, "setting noise=normal: needs none with chunk=8"},
	} {
		if _, err := New("eva", Options{Set: x.set}); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: error %v, want one that says %q", x.set, err, x.want)
		}
	}
}

// The bound on the elements of a table is one for tables that exist.
func TestEvaTakesLargeWindowsWithoutABias(t *testing.T) {
	o := Options{Heads: 64, Width: 64, Set: map[string]string{"window": "4096", "overlap": "4096", "landmarks": "4096"}}
	for name, refused := range map[string]bool{"false": false, "true": true} {
		o.Set["rpe"] = name
		if _, err := New("eva", o); (err != nil) != refused {
			t.Errorf("rpe=%s: error %v", name, err)
		}
	}
}

// With equal values the outputs depend on nothing else. The gradients of keys and of chunk
// maps, summed over many queries, are then smaller than a rounding error of the gradients
// of values.
func TestEvaGradientsOfEqualValuesVanish(t *testing.T) {
	for _, chunk := range []string{"none", "2"} {
		m, err := New("eva", Options{Width: 3, Heads: 4, Set: map[string]string{"window": "6", "chunk": chunk, "rpe": "true"}})
		if err != nil {
			t.Fatal(err)
		}
		oc, do := shape{b: 1, h: 4, hkv: 2, n: 25, m: 1, d: 3, dv: 9}.call(108)
		r := both(t, m, callIn(oc), in(do))
		if most := max(check.MaxAbs(r.g.DQ.Data), check.MaxAbs(r.g.DK.Data), check.MaxAbs(r.tau)); most > 0x1p-24 {
			t.Errorf("chunk=%s: a gradient is %v, want 0", chunk, most)
		}
	}
}

// Chunks of large queries keep their direction: squares that float32 does not hold have a norm.
func TestEvaNormalisesLargeQueries(t *testing.T) {
	m, textbook := build(t, subject{
		name: "eva", o: Options{Width: 8, Set: map[string]string{"window": "4", "landmarks": "8"}},
		whole: func(p numbers) oracle.HeadMatrix {
			book := oracle.EVA{
				Window: 4, Landmarks: 8,
				MapQ: oracle.EVAMap{W: p["mq"], B: p["mq_bias"], Gain: p["lnq"], Bias: p["lnq_bias"]},
				MapK: oracle.EVAMap{W: p["mk"], B: p["mk_bias"], Gain: p["lnk"], Bias: p["lnk_bias"]},
			}
			return book.Weights
		},
	}, 1)
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 64, m: 64, d: 8, dv: 2}.call(110)
	for i := range oc.Q.Data {
		oc.Q.Data[i] = float64(float32(oc.Q.Data[i] * 1e20))
	}
	want := textbook.result(oc).O.Data
	for i, got := range forward(t, m, callIn(oc)).o.Data {
		if d := math.Abs(float64(got) - want[i]); !(d <= 1e-3) {
			t.Fatalf("output %d is %v, want %v", i, got, want[i])
		}
	}
}

// Means of chunks are of tokens that exist. With keys that are all the same, and
// queries too, so are the means, whichever tokens are masked: the authors'
// program counts zeros for these (form=code).
func TestEvaMeansLeaveMaskedTokensOut(t *testing.T) {
	limit := 2 * check.HeadMatrixLimits[float](12+12+4).Output(1, 2)
	for form, want := range map[string]bool{"paper": true, "code": false} {
		m, err := New("eva", Options{Width: 4, Set: map[string]string{"window": "2", "landmarks": "3", "form": form}})
		if err != nil {
			t.Fatal(err)
		}
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 4, dv: 3}.call(102)
		for i := range oc.Q.Data {
			oc.Q.Data[i], oc.K.Data[i] = oc.Q.Data[i%4], oc.K.Data[i%4]
		}
		for i := range oc.V.Data { // of the chunk that is masked in part
			if i >= 4*3 {
				oc.V.Data[i] = 0
			} else {
				oc.V.Data[i] = 1
			}
		}
		// All keys and all means are equal, so a query far from the first chunk gives
		// each chunk the weight of its summary, a third beside its own window.
		weight := func(mask []bool) float64 {
			oc.KeyMask = mask
			return float64(forward(t, m, callIn(oc)).o.Head(0, 0).Row(11)[0])
		}
		all := weight(nil)
		masked := weight([]bool{true, false, false, true, true, true, true, true, true, true, true, true})
		if same := math.Abs(masked-all) <= limit; same != want {
			t.Errorf("form=%s: the first chunk weighs %v, with masked tokens %v", form, all, masked)
		}
	}
}

// Noise that is written is added to the means: it changes what chunks are made of,
// and zeros do not.
func TestEvaNoiseIsInjected(t *testing.T) {
	o := Options{Width: 4, Set: map[string]string{"window": "2", "landmarks": "3"}}
	without, err := New("eva", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Set["noise"] = "normal"
	with, err := New("eva", o)
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 2, hkv: 1, n: 12, m: 12, d: 4, dv: 3}.call(103)
	c := callIn(oc)
	want := forward(t, without, c)
	if same(forward(t, with, c).o.Data, want.o.Data) {
		t.Error("noise changes nothing")
	}
	clear(with.Constants().All()[0].Data)
	if !same(forward(t, with, c).o.Data, want.o.Data) {
		t.Error("noise of zeros changes something")
	}
	c.Causal = true
	err = with.Forward(tensor.NewHeads(1, 2, 12, 3), c, nil)
	if want := "causal: eva has no causal form: every query sees the summaries of all chunks, later ones too; with a chunk of fixed size it is another function, which is causal"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// causalEva is eva with chunks of 3 tokens in windows of 6 that reach back by
// overlap, with a bias, for the heads of streamed.
func causalEva(t *testing.T, overlap, form string) attention.Mechanism {
	t.Helper()
	m, err := New("eva", Options{Width: streamed.d, Heads: streamed.h, Set: map[string]string{
		"window": "6", "overlap": overlap, "chunk": "3", "form": form, "rpe": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	rpe, err := m.Params().Get("rpe")
	if err != nil {
		t.Fatal(err)
	}
	for i := range rpe.Data {
		rpe.Data[i] = float(i%7) / 4
	}
	return m
}

// A state answers what the whole sequence does, over the borders of windows and
// chunks, masked and rotated, in whatever pieces it comes, and so do states of two
// halves, one behind the other. The authors' program slides a window over the
// tokens that it generates, which it does not where it is trained.
func TestEvaStepsAreTheWholeSequence(t *testing.T) {
	for _, overlap := range []string{"0", "2", "6"} {
		for _, form := range []string{"paper", "code"} {
			for _, masked := range []bool{false, true} {
				sh := streamed
				sh.mask = masked
				oc, _ := sh.call(105)
				m, c := causalEva(t, overlap, form), callIn(oc)
				one, other := output(c), output(c)
				step(t, newState(t, m), one, c, 0, sh.n, 1)
				whole := forward(t, m, c).o
				limit := wholeLimits(m, c).Output(1, 2*check.MaxAbs(oc.V.Data))
				if e := check.ErrorRatio(one.Data, widened(whole.Data), 2*limit); e > 1 {
					t.Errorf("overlap=%s form=%s, masked %t: steps are off by %.3g limits", overlap, form, masked, e)
				}
				for _, sizes := range [][]int{{sh.n}, {2, 3}, {5, 1, 7}} {
					if step(t, newState(t, m), other, c, 0, sh.n, sizes...); !sameHeads(one, other) {
						t.Errorf("overlap=%s form=%s, masked %t: steps of %v have other bits than steps of 1", overlap, form, masked, sizes)
					}
				}
				for _, cut := range []int{0, 4, 9, 20} {
					st, next := newState(t, m), newState(t, m)
					step(t, st, output(c), c, 0, cut, 3)
					step(t, next, output(c), c, cut, sh.n-1, 2)
					merge(t, st, next)
					step(t, st, other, c, sh.n-1, sh.n, 1)
					if !sameHeads(one.Tokens(sh.n-1, sh.n), other.Tokens(sh.n-1, sh.n)) {
						t.Errorf("overlap=%s form=%s, masked %t: states cut at %d have other bits than one stream", overlap, form, masked, cut)
					}
				}
			}
		}
	}
}

// Tokens that are absorbed come without queries, as those before the first query
// of a call do, which count as queries of zeros in the means. Reading changes
// nothing.
func TestEvaAbsorbsTokensWithoutQueries(t *testing.T) {
	const lead = 10
	oc, _ := streamed.call(106)
	m, c := causalEva(t, "2", "paper"), callIn(oc)
	late := *c
	late.Q = c.Q.Tokens(lead, streamed.n)
	want := forward(t, m, &late).o
	st, got := newState(t, m), output(c)
	if err := st.Absorb(piece(c, 0, lead)); err != nil {
		t.Fatal(err)
	}
	step(t, st, got, c, lead, streamed.n, 4)
	rest := got.Tokens(lead, streamed.n)
	for b := range want.B {
		for h := range want.H {
			for i := range want.N {
				limit := wholeLimits(m, c).Output(1, 2*check.MaxAbs(oc.V.Data))
				if e := check.ErrorRatio(rest.Head(b, h).Row(i), widened(want.Head(b, h).Row(i)), 2*limit); e > 1 {
					t.Fatalf("query %d behind absorbed tokens is off by %.3g limits", i, e)
				}
			}
		}
	}
	before := bytesOf(t, st)
	last, o := c.Q.Tokens(streamed.n-1, streamed.n), poisoned(streamed.b, streamed.h, 1, streamed.dv)
	ask := &attention.Call{Q: last, K: c.K.Tokens(0, 0), V: c.V.Tokens(0, 0), Rope: c.Rope.Slice(streamed.n - 1)}
	if err := st.Read(o, ask); err != nil {
		t.Fatal(err)
	}
	if !sameHeads(o, got.Tokens(streamed.n-1, streamed.n)) {
		t.Error("reading the last query again gives something else")
	}
	if !bytes.Equal(before, bytesOf(t, st)) {
		t.Error("Read changes the state")
	}
}

// A query meets the tokens of its own chunk in its window alone: the summary of a
// chunk that is not over would have later tokens in it.
func TestEvaSeesChunksThatAreOver(t *testing.T) {
	m, err := New("eva", Options{Width: 4, Set: map[string]string{"window": "4", "chunk": "4"}})
	if err != nil {
		t.Fatal(err)
	}
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 4, dv: 1, causal: true}.call(107)
	for j := range 12 { // values tell chunks apart
		oc.V.Data[j] = []float64{0, 1, 0}[j/4]
	}
	c := callIn(oc)
	for i, x := range forward(t, m, c).o.Data {
		if seen := x > 1e-9; seen != (i >= 4) {
			t.Errorf("query %d has %v of the second chunk", i, x)
		}
	}
	// Where all scores are equal, a summary weighs as much as one key.
	for i := range oc.K.Data {
		oc.K.Data[i] = 0
	}
	for _, p := range m.Params().All() {
		clear(p.Data)
	}
	o := forward(t, m, callIn(oc)).o.Data
	for i, want := range []float64{0, 0, 0, 0, 1. / 2, 2. / 3, 3. / 4, 4. / 5, 1. / 3, 1. / 4, 1. / 5, 1. / 6} {
		if math.Abs(float64(o[i])-want) > wholeLimits(nil, c).Output(1, 2) {
			t.Errorf("of equal keys query %d has %v of the second chunk, want %v", i, o[i], want)
		}
	}
}
