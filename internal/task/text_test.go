package task

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/rng"
)

func text(t *testing.T, s string) *Text {
	t.Helper()
	x, err := NewText(&Corpus{Name: "test", Text: []byte(s)}, token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestSplitIsNanoGPTs(t *testing.T) {
	// The two sizes of Tiny Shakespeare's parts.
	const all, train = 1115394, 1003854
	x := text(t, strings.Repeat("a", all))
	if x.Tokens(Train).Len() != train || x.Tokens(Valid).Len() != all-train {
		t.Errorf("parts of %d and %d tokens, want %d and %d", x.Tokens(Train).Len(), x.Tokens(Valid).Len(), train, all-train)
	}
}

func TestOpenTextReadsFolders(t *testing.T) {
	dir := write(t, map[string]string{"a": strings.Repeat("abcé", 10), "b": "\xff"})
	for _, c := range []struct {
		name                  string
		size, tokens, skipped int
	}{
		{"charlm", 4, 40, 1},
		{"bytelm", 256, 51, 0},
	} {
		x := openSource(t, c.name, Options{}, "data", dir).(*Text)
		if n := x.Tokens(Train).Len() + x.Tokens(Valid).Len(); x.Vocab.Size() != c.size || n != c.tokens || x.Corpus.Skipped != c.skipped {
			t.Errorf("%s: vocabulary of %d, %d tokens, %d files skipped", c.name, x.Vocab.Size(), n, x.Corpus.Skipped)
		}
	}
	for _, c := range []struct{ name, data, want string }{
		{"charlm", filepath.Join(dir, "b"), "0xff at offset 0"},
		{"bytelm", filepath.Join(dir, "b"), "1 tokens do not make"},
		{"bytelm", "enwik8", "holds no enwik8, no enwik8-first"},
	} {
		_, err := Open(c.name, Options{Folder: dir, Settings: map[string]string{"data": c.data}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v", c, err)
		}
	}
}

// A text that is too short to learn from can be scored as a whole.
func TestShortTexts(t *testing.T) {
	for n, want := range map[int]bool{16: false, 21: true} {
		if err := text(t, strings.Repeat("a", n)).CheckNgram(); err == nil != want {
			t.Errorf("%d tokens: error is %v", n, err)
		}
	}
	x, err := NewWholeText(&Corpus{Text: []byte("0123456789")}, token.NewByteVocabulary())
	if err != nil || x.Tokens(Train).Len() != 0 || x.Tokens(Valid).Len() != 10 || x.Spec().Count[Valid] != 1 {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestEnwik8IsDivided(t *testing.T) {
	dir := write(t, map[string]string{"enwik8/enwik8": strings.Repeat("0123456789", 100)})
	x := openSource(t, "bytelm", Options{Folder: dir}, "data", "enwik8", "length", "19").(*Text)
	if a, b, c := x.Tokens(Train).Len(), x.Tokens(Valid).Len(), x.Tokens(Test).Len(); a != 900 || b != 50 || c != 50 {
		t.Errorf("parts of %d, %d and %d bytes", a, b, c)
	}
	if got := x.Spec().Count; got != [3]int{Endless, 3, 3} {
		t.Errorf("samples by split: %v", got)
	}
	holds(t, x)
}

// Validation windows have every token but the first as a target, once.
func TestWindowsFollowEachOther(t *testing.T) {
	x := text(t, string(InventText(1, 3000).Text)).WithWindow(7)
	var targets []int32
	for i := range x.Spec().Count[Valid] {
		s := take(t, x, Valid, i)
		if len(s.Tokens) != len(s.Labels) || s.Tokens[0] != x.(*Text).Tokens(Valid).Append(nil, i*7, i*7+1)[0] {
			t.Fatalf("window %d begins with %v", i, s.Tokens)
		}
		targets = append(targets, s.Labels...)
	}
	if want := slices.Collect(x.(*Text).Tokens(Valid).All())[1:]; !slices.Equal(targets, want) {
		t.Errorf("%d targets, want %d", len(targets), len(want))
	}
	if w := x.(*Text).ValidationOnly(); w.Tokens(Valid).Len() != len(InventText(1, 3000).Text) || w.Spec().Length != 7 {
		t.Errorf("the whole has %d tokens", w.Tokens(Valid).Len())
	}
}

// With a stride windows overlap, and still every token but the first is a target once, after at
// least the rest of a window. A stride of the window's length gives the windows side by side.
func TestWindowsOverlapByStride(t *testing.T) {
	whole := text(t, string(InventText(1, 3000).Text)).ForModel(300, []int32{299, 298})
	for _, length := range []int{1, 7, 299, 5000} {
		sideBySide := whole.WithWindow(length).(*Text)
		for _, stride := range []int{1, 3, 7, 299, 5000} {
			x, err := sideBySide.WithStride(stride)
			if stride > length {
				if err == nil {
					t.Errorf("windows of %d have the stride %d", length, stride)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			var targets []int32
			for i := range x.Spec().Count[Valid] {
				s := take(t, x, Valid, i)
				counted := 0
				for p, y := range s.Labels {
					if y < 0 {
						continue
					}
					if p+1 < len(s.Tokens) && y != s.Tokens[p+1] || i > 0 && p < length-stride {
						t.Fatalf("length %d, stride %d: window %d has the target %d at %d", length, stride, i, y, p)
					}
					targets = append(targets, y)
					counted++
				}
				if counted == 0 || i > 0 && counted > stride {
					t.Fatalf("length %d, stride %d: window %d has %d targets", length, stride, i, counted)
				}
				if stride == length && !reflect.DeepEqual(s, take(t, sideBySide, Valid, i)) {
					t.Fatalf("length %d: window %d differs from the one side by side", length, i)
				}
			}
			if want := slices.Collect(x.Tokens(Valid).All()); !slices.Equal(targets, want) { // the first follows begin
				t.Errorf("length %d, stride %d: %d targets, want %d", length, stride, len(targets), len(want))
			}
			if n := sideBySide.Spec().Count; stride == length && x.Spec().Count != n {
				t.Errorf("length %d: %v windows, side by side %v", length, x.Spec().Count, n)
			}
		}
	}
}

func TestDrawDependsOnKeyAndNumberAlone(t *testing.T) {
	x := text(t, string(InventText(1, 3000).Text))
	const length = 13
	draw := func(seed, i uint64) (s Sample) {
		if err := x.DrawWindow(&s, length, rng.New(seed), i); err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := draw(5, 100)
	if !slices.Equal(a.Labels[:length-1], a.Tokens[1:]) {
		t.Error("targets are not the tokens that follow")
	}
	if !strings.Contains(decode(t, slices.Collect(x.Tokens(Train).All())), decode(t, a.Tokens)) {
		t.Error("the window is not a piece of the training part")
	}
	other := draw(5, 101)
	if again := draw(5, 100); !equal(&a, &again) {
		t.Error("the same number gave another window")
	}
	if b := draw(6, 100); equal(&a, &other) || equal(&a, &b) {
		t.Error("another number or seed gave the same window")
	}
}

func TestDrawReachesEveryToken(t *testing.T) {
	letters := make([]byte, 20) // eighteen to learn from
	for i := range letters {
		letters[i] = byte(i)
	}
	x := text(t, string(letters))
	seen := make([]bool, x.Tokens(Train).Len())
	var s Sample
	for i := range uint64(200) {
		if err := x.DrawWindow(&s, 4, rng.New(1), i); err != nil {
			t.Fatal(err)
		}
		for i := range s.Tokens {
			seen[s.Tokens[i]], seen[s.Labels[i]] = true, true
		}
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Errorf("token %d was never in a window", i)
	}
	for _, length := range []int{0, len(seen)} {
		if x.DrawWindow(&s, length, rng.New(1), 0) == nil {
			t.Errorf("a window of %d tokens of %d", length, len(seen))
		}
	}
}

func TestDigestDiffersBetweenSources(t *testing.T) {
	digest := func(src Source) string {
		d, err := Digest(src, nil)
		if err != nil || len(strings.TrimPrefix(d, wholePrefix)) != 64 {
			t.Fatal(d, err)
		}
		return d
	}
	seen := map[string]string{}
	for _, src := range []struct {
		name string
		Source
	}{
		{"copy", openSource(t, "copy", Options{Seed: 1})},
		{"another seed", openSource(t, "copy", Options{Seed: 2})},
		{"another length", openSource(t, "copy", Options{Seed: 1}, "length", "62")},
		{"numbers", openSource(t, "shapes", Options{Seed: 1})},
		{"a text", text(t, "a text of some length")},
		{"another text", text(t, "another text of some length")},
	} {
		d := digest(src.Source)
		if before, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", before, src.name)
		}
		seen[d] = src.name
		if (src.name == "copy" || src.name == "a text") && digest(src.Source) != d {
			t.Errorf("the digest of %s changes", src.name)
		}
	}
}

// Every change of every sample changes the digest, also in a file of its own.
func TestDigestCoversAllSamples(t *testing.T) {
	rows := func(change int) []byte {
		var b strings.Builder
		b.WriteString("text,label\n")
		for i := range 500 {
			text := fmt.Sprintf("text %d", i)
			if i == change {
				text = "other"
			}
			fmt.Fprintf(&b, "%s,%d\n", text, i%2)
		}
		return []byte(b.String())
	}
	digest := func(change int) string {
		path := filepath.Join(folderOf(t, map[string][]byte{"a.csv": rows(change)}), "a.csv")
		d, err := Digest(openSource(t, "file", Options{Seed: 1}, "data", path), nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	whole := digest(-1)
	for change := 0; change < 500; change += 49 {
		if digest(change) == whole {
			t.Errorf("another text in row %d has the same digest", change)
		}
	}

	files := map[string][]byte{}
	for i := range 40 {
		files[fmt.Sprintf("%s/%d.txt", []string{"a", "b"}[i%2], i)] = fmt.Appendf(nil, "text %d", i)
	}
	folder := folderOf(t, files)
	src := openSource(t, "file", Options{Seed: 1}, "data", folder)
	then := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name := range files {
		if err := os.Chtimes(filepath.Join(folder, name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	sums := &FileSums{}
	first, err := Digest(src, sums)
	if err != nil || len(sums.Files) != 40 || !sums.HasChanged() {
		t.Fatalf("%d sums, %v", len(sums.Files), err)
	}
	again := &FileSums{Files: sums.Files}
	if d, err := Digest(src, again); err != nil || d != first || again.HasChanged() {
		t.Errorf("%s with sums, %s without, %v; changed %t", d, first, err, again.HasChanged())
	}
	for id := range again.Files { // what is kept is not read again
		again.Files[id] = "kept"
	}
	if d, err := Digest(src, again); err != nil || d == first {
		t.Errorf("%s, %v: files are read again", d, err)
	}
	path := filepath.Join(folder, "b", "7.txt")
	if err := os.WriteFile(path, []byte("text 8"), 0o666); err != nil {
		t.Fatal(err)
	}
	if d, err := Digest(src, sums); err != nil || d == first {
		t.Errorf("%s, %v: a changed file has the same digest", d, err)
	}
	old, err := sampleDigest(src)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := DigestLike(old, src, first); err != nil || d != old {
		t.Errorf("as an earlier version %s, %v, want %s", d, err, old)
	}
}

func TestBetterFollowsTheMetric(t *testing.T) {
	if !Accuracy.IsBetter(0.9, 0.8) || Accuracy.IsBetter(0.8, 0.8) || !MSE.IsBetter(1, 2) || Nats.IsBetter(2, 1) {
		t.Error("a worse score is better")
	}
}

func decode(t *testing.T, tokens []int32) string {
	t.Helper()
	b, err := token.NewByteVocabulary().Decode(nil, tokens...)
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
	table := NewNgram(slices.Values([]int32{0, 1, 0, 1, 2}), 4)
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
		for order, got := range table.Loss(slices.Values(c.tokens)) {
			if want := -math.Log(c.p[order]); math.Abs(got-want) > 1e-15 {
				t.Errorf("%s, order %d: loss %v, want %v", c.name, order, got, want)
			}
		}
	}
}

func TestNgramLossesOfWindows(t *testing.T) {
	x := text(t, string(InventText(3, 2000).Text)).WithWindow(30).(*Text)
	spec := x.Spec()
	all, learned, err := x.NgramLosses(Valid, 0)
	if err != nil {
		t.Fatal(err)
	}
	table, part := NewNgram(x.Tokens(Train).All(), x.Vocab.Size()), x.Tokens(Valid)
	at := spec.Count[Valid] / 2 * 30
	first, second := table.Loss(part.Slice(0, 31).All()), table.Loss(part.Slice(at-1, at+31).All())
	for n, want := range map[int]float64{1: first[2], 2: (29*first[2] + 30*second[2]) / 59, spec.Count[Valid]: all[2], 1 << 20: all[2]} {
		windows, whole, from, err := x.WindowNgramLosses(Valid, n)
		if err != nil || whole != all || from != learned || math.Abs(windows[2]-want) > 1e-12 {
			t.Errorf("%d windows: losses %v, of all %v, of %d tokens, %v, want %v, %v, %d", n, windows, whole, from, err, want, all, learned)
		}
	}
}

func TestNgramProbabilitiesSumToOne(t *testing.T) {
	x := text(t, string(InventText(3, 2000).Text))
	tokens := slices.Collect(x.Tokens(Train).All())
	for i := range tokens {
		tokens[i] %= 11
	}
	table := NewNgram(slices.Values(tokens), 11)
	for a := range int32(11) {
		for b := range int32(11) {
			var sum [3]float64
			for c := range int32(11) {
				for order, loss := range table.Loss(slices.Values([]int32{a, b, c})) {
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

func TestNgramWithoutTokensIsUniformOrNaN(t *testing.T) {
	if l := NewNgram(slices.Values([]int32{1, 2}), 3).Loss(slices.Values([]int32{1, 2})); !math.IsNaN(l[2]) {
		t.Errorf("loss is %v", l)
	}
	if l := NewNgram(slices.Values([]int32{}), 4).Loss(slices.Values([]int32{1, 2, 3})); l[2] != math.Log(4) {
		t.Errorf("loss without training is %v, want ln 4", l)
	}
}

func TestVocabularyOfTextIsLearnedFromTrainingSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text.txt")
	text := strings.Repeat("the cat sat on the mat. ", 90) + strings.Repeat("zqzq", 60)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	open := func(name, vocabulary string) (Source, error) {
		return Open(name, Options{Settings: map[string]string{"data": path, "length": "8", "vocabulary": vocabulary}})
	}
	src, err := open(ByteLM, "bpe=270")
	if err != nil {
		t.Fatal(err)
	}
	w := src.(*Text)
	var s Sample
	if err := w.Sample(&s, Valid, 0); err != nil {
		t.Fatal(err)
	}
	if spec := w.Spec(); spec.Vocab <= 256 || spec.Vocab > 270 || spec.Name != ByteLM {
		t.Errorf("task %s has %d tokens", spec.Name, spec.Vocab)
	}
	if _, ok := w.Vocab.Tokenizer().ID("zq"); ok {
		t.Error("a token was learned from the validation set")
	}
	for _, c := range [][3]string{{ByteLM, "words", "not bpe=N"}, {ByteLM, "bpe=10", "256"}, {CharLM, "bpe=300", CharLM}} {
		if _, err := open(c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s, %s: error is %v", c[0], c[1], err)
		}
	}
}
