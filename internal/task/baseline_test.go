package task

import (
	"fmt"
	"math"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/token"
)

// Example 13.1 of Manning, Raghavan and Schütze (2008): the vocabulary has six words. For three
// times Chinese, Tokyo and Japan the first class is proportional to 3/4·(3/7)³·1/14·1/14.
func TestNaiveBayesMatchesTextbookExample(t *testing.T) {
	features := func(text string) func(func([]byte)) {
		return func(f func([]byte)) {
			for _, w := range strings.Fields(text) {
				f([]byte(w))
			}
		}
	}
	b := newNaiveBayes(2)
	for _, text := range []string{"Chinese Beijing Chinese", "Chinese Chinese Shanghai", "Chinese Macao"} {
		b.addSample(0, features(text))
	}
	b.addSample(1, features("Tokyo Japan Chinese"))
	b.takeLogs()
	// A word that was never learned from changes nothing.
	for _, text := range []string{"Chinese Chinese Chinese Tokyo Japan", "Chinese Chinese Chinese Tokyo Japan Osaka"} {
		got := b.classScores(features(text))
		for c, want := range []float64{3. / 4 * 27 / 343 / 14 / 14, 1. / 4 * 8 / 729 * 2 / 9 * 2 / 9} {
			if math.Abs(math.Exp(got[c])-want) > 1e-15 {
				t.Errorf("%s: class %d has %g, want %g", text, c, math.Exp(got[c]), want)
			}
		}
	}
}

// The baselines of a file of noisy tickets equal a textbook computation over all lines.
func TestTextBaselinesAreComputedFromAllLines(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 6000 {
		class := i % 5
		for range 8 {
			word := r.Intn(3000) // of any class
			if r.Intn(6) == 0 {
				word = 3000 + class*400 + r.Intn(400)
			}
			var b []byte
			for x := word; ; x /= 20 {
				if b = append(b, "bcdfghjklmnpqrstvwxz"[x%20]); x < 20 {
					break
				}
			}
			fmt.Fprintf(&rows, "%s ", b)
		}
		fmt.Fprintf(&rows, "7\tc%d\n", class)
	}
	dir := folderOf(t, map[string][]byte{"t.tsv": []byte(rows.String())})
	src := openSource(t, "file", Options{Seed: 1}, "data", dir+"/t.tsv")
	list, err := Baselines(src, 0)
	if err != nil {
		t.Fatal(err)
	}
	read := func(split Split) (texts [][]string, classes []int32) {
		for i := range src.Spec().Count[split] {
			s := take(t, src, split, i)
			var b []byte
			for _, x := range s.Tokens {
				b = append(b, byte(x-1))
			}
			texts, classes = append(texts, regexp.MustCompile("[a-z0-9]{2,}").FindAllString(string(b), -1)), append(classes, s.Class)
		}
		return
	}
	texts, classes := read(Train)
	vocabulary, prior, total := map[string]bool{}, [5]float64{}, [5]float64{}
	count := map[string]float64{}
	for i, text := range texts {
		prior[classes[i]] += 1 / float64(len(texts))
		for _, w := range text {
			vocabulary[w] = true
			total[classes[i]]++
			count[fmt.Sprint(classes[i], w)]++
		}
	}
	judge, truth := read(Test)
	right := 0.
	for i, text := range judge {
		best, most := int32(-1), math.Inf(-1)
		for c := range int32(5) {
			p := math.Log(prior[c])
			for _, w := range text {
				if vocabulary[w] {
					p += math.Log((count[fmt.Sprint(c, w)] + 1) / (total[c] + float64(len(vocabulary))))
				}
			}
			if p > most {
				best, most = c, p
			}
		}
		if best == truth[i] {
			right++
		}
	}
	want := right / float64(len(judge))
	if b := list[1]; b.Score != want || b.Learned != len(texts) || b.Judged != len(judge) {
		t.Errorf("baseline is %+v, the textbook has %g of %d lines, judged by %d", b, want, len(texts), len(judge))
	}
	if few, err := Baselines(src, 200); err != nil || few[1].Learned != 200 || few[1].Judged != 200 {
		t.Errorf("of 200 lines: %+v, %v", few, err)
	}
	if b := list[0]; b.Score < 0.15 || b.Score > 0.25 || b.Learned != len(texts) {
		t.Errorf("commonest class is %+v", b)
	}
}

// ordered has samples of class 0, followed by an equal number of class 1.
type ordered struct{ given }

func (o *ordered) isClassOrdered() bool { return true }

// A folder lists its files class by class, so a part of the samples must be spread evenly.
func TestFewSamplesOfAFolderAreOfEveryClass(t *testing.T) {
	var seen []int
	o := &ordered{given{spec: Spec{Count: [3]int{100, 0, 100}}}}
	for i := range 100 {
		o.samples = append(o.samples, Sample{Class: int32(i / 50)})
	}
	if n, err := eachSample(o, Train, 4, func(s *Sample) { seen = append(seen, int(s.Class)) }); err != nil || n != 4 || fmt.Sprint(seen) != "[0 0 1 1]" {
		t.Errorf("%d samples of classes %v, %v", n, seen, err)
	}
	dir := map[string][]byte{}
	for i := range 20 {
		dir[fmt.Sprintf("a/%02d.txt", i)], dir[fmt.Sprintf("b/%02d.txt", i)] = []byte("xx"), []byte("yy")
	}
	src := openSource(t, "file", Options{Seed: 1}, "data", folderOf(t, dir))
	if list, err := Baselines(src, 6); err != nil || list[1].Score != 1 {
		t.Errorf("baselines %+v, %v: naive Bayes has seen one class alone", list, err)
	}
}

// The words are the words of CountVectorizer of scikit-learn: runs of two letters, digits or
// underscores and more.
func TestTextWordsAreRunsOfTwoCharactersOrMore(t *testing.T) {
	var got []string
	eachTextWord(appendBytes(nil, []byte("A Ünïcode wörd's 42 x_1: ÉTÉ\xff\xc3é日本 i.e. x"), 100), func(w []byte) { got = append(got, string(w)) })
	if want := "[ünïcode wörd 42 x_1 été é日本]"; fmt.Sprint(got) != want {
		t.Errorf("words are %v, want %s", got, want)
	}
}

// Weights of a text are scikit-learn's TfidfVectorizer(sublinear_tf=True) without the bigrams of one
// text.
func TestTFIDFWeighsWordsAndCommonBigrams(t *testing.T) {
	texts := []string{"red red apple", "red apple pie", "a green pie"}
	words, err := newTFIDF(100, func(f func([]int32)) error {
		for _, text := range texts {
			f(appendBytes(nil, []byte(text), 100))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(words.idf) != 5 { // apple, green, pie, red, "red apple"
		t.Fatalf("%d features, want 5", len(words.idf))
	}
	common, rare := math.Log(4./3)+1, math.Log(4./2)+1
	for _, c := range []struct {
		text string
		want []float64
	}{
		{texts[0], []float64{(1 + math.Ln2) * common, common, common}},
		{texts[2], []float64{common, rare}},
		{"nothing known", nil},
	} {
		cols, values := words.vector(appendBytes(nil, []byte(c.text), 100))
		length := 0.
		for _, x := range c.want {
			length += x * x
		}
		var got []float64
		for i, x := range values {
			if i > 0 && cols[i] <= cols[i-1] {
				t.Errorf("%q: columns are %v", c.text, cols)
			}
			got = append(got, float64(x)*math.Sqrt(length))
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
			t.Errorf("%q: weights are %v, want %v", c.text, got, c.want)
		}
	}
}

// A pair of words decides where each word alone says nothing.
func TestLinearClassifierReadsBigrams(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 400 {
		a, b := i%2, i/2%2
		fmt.Fprintf(&rows, "%s %s\t%v\n", []string{"not", "very"}[a], []string{"good", "bad"}[b], a == b)
	}
	src := openSource(t, "file", Options{Seed: 1}, "data", folderOf(t, map[string][]byte{"t.tsv": []byte(rows.String())})+"/t.tsv", "length", "4")
	list, err := Baselines(src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b := list[2]; b.Score != 1 || b.Advice == "" {
		t.Errorf("baseline is %+v", b)
	}
}

// A resumed run has the tokens that it has learned, and the advice of its start.
func TestAdviceStaysWhereTokensWereLearned(t *testing.T) {
	path := folderOf(t, map[string][]byte{"t.tsv": []byte("text\tlabel\n" + strings.Repeat("good\ta\nbad\tb\n", 30))}) + "/t.tsv"
	model := &Tokens{Vocabulary: token.NewByteVocabulary(), Size: 256}
	for _, c := range []struct{ vocabulary, want string }{{"bpe", "fine-tune a trained model"}, {"", "train longer"}} {
		src := openSource(t, "file", Options{Tokens: model}, "data", path, "vocabulary", c.vocabulary)
		if list, err := Baselines(src, 0); err != nil || !strings.HasPrefix(list[0].Advice, c.want) {
			t.Errorf("vocabulary %q: advice is %q, %v, want %s", c.vocabulary, list[0].Advice, err, c.want)
		}
	}
}

// A sample without words is of the commonest class, even where no sample has words.
func TestTextsWithoutWordsAreOfTheCommonestClass(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 200 {
		fmt.Fprintf(&rows, "%d ?\t%v\n", i%10, i%4 > 0)
	}
	path := folderOf(t, map[string][]byte{"t.tsv": []byte(rows.String())}) + "/t.tsv"
	list, err := Baselines(openSource(t, "file", Options{Seed: 1}, "data", path), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if b.Score != list[0].Score || b.Score < 0.5 {
			t.Errorf("%+v, the commonest class has %v", b, list[0].Score)
		}
	}
}
