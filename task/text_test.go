package task

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/token"
)

func text(t *testing.T, s string) *Text {
	t.Helper()
	x, err := NewText(&Corpus{Name: "test", Text: []byte(s)}, token.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestSplitIsNanoGPTs(t *testing.T) {
	// The two sizes of Tiny Shakespeare's parts.
	const all, train = 1115394, 1003854
	x := text(t, strings.Repeat("a", all))
	if len(x.Train) != train || len(x.Valid) != all-train {
		t.Errorf("parts of %d and %d tokens, want %d and %d", len(x.Train), len(x.Valid), train, all-train)
	}
}

func TestOpenText(t *testing.T) {
	dir := write(t, map[string]string{"a": strings.Repeat("abcé", 10), "b": "\xff"})
	for _, c := range []struct {
		vocab                 string
		size, tokens, skipped int
	}{
		{"chars", 4, 40, 1},
		{"bytes", 256, 51, 0},
	} {
		x, err := OpenText(Options{Data: dir, Vocab: c.vocab})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(x.Train) + len(x.Valid); x.Vocab.Size() != c.size || n != c.tokens || x.Corpus.Skipped != c.skipped {
			t.Errorf("%s: vocabulary of %d, %d tokens, %d files skipped", c.vocab, x.Vocab.Size(), n, x.Corpus.Skipped)
		}
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Data: dir, Vocab: "words"}, `"words": unknown`},
		{Options{Data: filepath.Join(dir, "b"), Vocab: "chars"}, "0xff at offset 0"},
		{Options{Data: filepath.Join(dir, "b"), Vocab: "bytes"}, "1 tokens do not make"},
	} {
		if _, err := OpenText(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v", c.o, err)
		}
	}
}

func TestCropDependsOnKeyAndStepAlone(t *testing.T) {
	x := text(t, string(Invent(1, 3000).Text))
	const context, batch = 13, 7
	crop := func(seed uint64, step int) (tokens, targets []int32) {
		tokens, targets = make([]int32, batch*context), make([]int32, batch*context)
		if err := x.Crop(tokens, targets, context, rng.New(seed), step); err != nil {
			t.Fatal(err)
		}
		return tokens, targets
	}
	a, next := crop(5, 100)
	for b := range batch {
		row := a[b*context:][:context]
		if !slices.Equal(next[b*context:][:context-1], row[1:]) {
			t.Errorf("row %d: targets are not the tokens that follow", b)
		}
		if !strings.Contains(decode(t, x.Train), decode(t, row)) {
			t.Errorf("row %d is not a piece of the training part", b)
		}
	}
	crop(5, 101)
	if again, _ := crop(5, 100); !slices.Equal(a, again) {
		t.Error("the same step gave other pieces")
	}
	for _, c := range []struct {
		seed uint64
		step int
	}{{5, 101}, {6, 100}} {
		if other, _ := crop(c.seed, c.step); slices.Equal(a, other) {
			t.Errorf("seed %d, step %d gave the same pieces", c.seed, c.step)
		}
	}
}

func TestCropReachesEveryToken(t *testing.T) {
	x := text(t, strings.Repeat("x", 20)) // eighteen to learn from
	for i := range x.Train {
		x.Train[i] = int32(i)
	}
	seen := make([]bool, len(x.Train))
	for step := range 200 {
		var tokens, targets [4]int32
		if err := x.Crop(tokens[:], targets[:], 4, rng.New(1), step); err != nil {
			t.Fatal(err)
		}
		for i := range tokens {
			seen[tokens[i]], seen[targets[i]] = true, true
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Errorf("token %d was never in a piece", i)
	}
}

func TestCropRefuses(t *testing.T) {
	x := text(t, strings.Repeat("ab", 10))
	n := len(x.Train)
	for _, c := range []struct {
		name                     string
		tokens, targets, context int
	}{
		{"context as long as the text", n, n, n},
		{"no context", 0, 0, 0},
		{"part of a row", 5, 5, 4},
		{"too few targets", 8, 4, 4},
	} {
		if x.Crop(make([]int32, c.tokens), make([]int32, c.targets), c.context, rng.New(1), 0) == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
}

func TestTaskCatalogue(t *testing.T) {
	for _, name := range Names() {
		if row, err := Lookup(name); err != nil || row.Open == nil || row.Doc == "" {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
	}
	if _, err := Lookup("texts"); err == nil || !strings.Contains(err.Error(), "there are: text") {
		t.Errorf("error is %v", err)
	}
}

func decode(t *testing.T, tokens []int32) string {
	t.Helper()
	b, err := token.Bytes().Decode(nil, tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNgramByHand(t *testing.T) {
	// Of 0 1 0 1 2 the grams are 010, 101, 012; each order counts their ends:
	// order 0: 0, 1, 2 once each, so n = 3, t = 3;
	// order 1: after 1: 0, 2; after 0: 1;
	// order 2: after 01: 0, 2; after 10: 1.
	table := NewNgram([]int32{0, 1, 0, 1, 2}, 4)
	p0 := (1 + 3*0.25) / 6 // 0, 1 and 2 alike
	p1 := (1 + 2*p0) / 4   // 2 after 1
	p2 := (1 + 2*p1) / 4   // 2 after 01
	q0 := 3 * 0.25 / 6     // 3, which was never seen
	q1 := q0 / 2           // 3 after 0: n(0,3) = 0, n(0) = 1, t(0) = 1
	for _, c := range []struct {
		name   string
		tokens []int32
		p      [3]float64
	}{
		{"seen", []int32{0, 1, 2}, [3]float64{p0, p1, p2}},
		{"context of two not seen", []int32{2, 1, 2}, [3]float64{p0, p1, p1}},
		{"token not seen", []int32{3, 0, 3}, [3]float64{q0, q1, q1}},
		{"no context seen", []int32{3, 3, 3}, [3]float64{q0, q0, q0}},
	} {
		for order, got := range table.Loss(c.tokens) {
			if want := -math.Log(c.p[order]); math.Abs(got-want) > 1e-15 {
				t.Errorf("%s, order %d: loss %v, want %v", c.name, order, got, want)
			}
		}
	}
}

func TestNgramProbabilitiesSumToOne(t *testing.T) {
	x := text(t, string(Invent(3, 2000).Text))
	for i := range x.Train {
		x.Train[i] %= 11
	}
	table := NewNgram(x.Train, 11)
	for a := range int32(11) {
		for b := range int32(11) {
			var sum [3]float64
			for c := range int32(11) {
				for order, loss := range table.Loss([]int32{a, b, c}) {
					sum[order] += math.Exp(-loss)
				}
			}
			for order, s := range sum {
				if math.Abs(s-1) > 1e-12 {
					t.Errorf("after %d %d, order %d: probabilities sum to %v", a, b, order, s)
				}
			}
		}
	}
}

func TestNgramOfNothing(t *testing.T) {
	if l := NewNgram([]int32{1, 2}, 3).Loss([]int32{1, 2}); !math.IsNaN(l[2]) {
		t.Errorf("loss is %v", l)
	}
	if l := NewNgram(nil, 4).Loss([]int32{1, 2, 3}); l[2] != math.Log(4) {
		t.Errorf("loss without training is %v, want ln 4", l)
	}
}
