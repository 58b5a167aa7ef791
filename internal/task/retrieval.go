package task

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Retrieval decides whether two papers of the ACL anthology cite each other, from the first
// bytes of each (Long Range Arena). It needs the files new_aan_pairs.{train,eval,test}.tsv.
type Retrieval struct {
	length int // bytes of each text
	pairs  [3][]dataset.Pair
}

var retrievalSettings = []Setting{{"length", "4000", "bytes of each text that are seen (LRA 4000)"}}

func openRetrieval(o *settingsReader) (Source, error) {
	length := o.int("length")
	if err := checkRange("length", length, 1, 1<<20); err != nil {
		return nil, err
	}
	return OpenRetrieval(filepath.Join(o.Folder, "aan"), length)
}

// OpenRetrieval reads new_aan_pairs.train.tsv, .eval.tsv and .test.tsv in a folder, plain or gzip, or
// plain in its tsv_data. length bounds the bytes of each text. It returns an error if a file is missing or malformed.
func OpenRetrieval(folder string, length int) (*Retrieval, error) {
	t := &Retrieval{length: length}
	for split, part := range []string{"train", "eval", "test"} {
		name := "new_aan_pairs." + part + ".tsv"
		path, err := findFile(folder, name, name+".gz", "tsv_data/"+name)
		if err != nil {
			return nil, err
		}
		if t.pairs[split], err = dataset.ReadFile(path, dataset.ReadPairs(length)); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Spec returns the specification of the samples.
func (t *Retrieval) Spec() Spec {
	return Spec{Name: "retrieval", Kind: Class, Metric: Accuracy, Vocab: 257, Length: 2 * t.length, Parts: 2, Classes: 2,
		Count: [3]int{len(t.pairs[0]), len(t.pairs[1]), len(t.pairs[2])}}
}

// Sample overwrites s with two texts; class 1 means that they belong together. It returns an
// error if the split has no sample i.
func (t *Retrieval) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	p := &t.pairs[split][i]
	setPair(s, p.Text[0], p.Text[1], t.length, p.Match)
	return nil
}

// setPair overwrites s with the first most bytes of two texts; class 1 means match.
func setPair(s *Sample, a, b []byte, most int, match bool) {
	resetSample(s)
	s.Tokens = appendBytes(s.Tokens, a, most)
	s.Cut = len(s.Tokens)
	s.Tokens = appendBytes(s.Tokens, b, most)
	if match {
		s.Class = 1
	}
}

// pairClasses are the names of classes 0 and 1.
var pairClasses = []string{"apart", "together"}

// ClassNames returns the names of the classes.
func (t *Retrieval) ClassNames() []string { return slices.Clone(pairClasses) }

// ClassNames returns the names of the classes.
func (t *Films) ClassNames() []string { return slices.Clone(pairClasses) }

// Baselines scores the commonest class and a threshold of the share of common words. It
// returns the errors of Sample.
func (t *Retrieval) Baselines(n int) ([]Baseline, error) { return pairBaselines(t, n) }

// pairBaselines scores the baselines of Retrieval and Films.
func pairBaselines(src Source, n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(src, n) },
		func() (Baseline, error) { return scoreThreshold("share of common words", src, n, commonWords) },
	)
}

// commonWords returns the Jaccard index of the words of both parts.
func commonWords(s *Sample) float64 {
	seen := map[string]uint8{}
	eachWord(s.Tokens[:s.Cut], func(w []byte) { seen[string(w)] |= 1 })
	eachWord(s.Tokens[s.Cut:], func(w []byte) { seen[string(w)] |= 2 })
	both := 0
	for _, in := range seen {
		if in == 3 {
			both++
		}
	}
	return float64(both) / float64(max(len(seen), 1))
}

// Films is a substitute for Retrieval with public data: whether two reviews of IMDB rate the
// same film. It is not the published task. Half of the pairs rate one film. Every tenth film
// of the training data belongs to the validation set.
type Films struct {
	length int // bytes of each review
	seed   uint64
	films  [3][][][]byte // reviews by split and film
	pairs  [3][]int      // films with two reviews or more, by split
}

func openFilms(o *settingsReader) (Source, error) {
	length := o.int("length")
	if err := checkRange("length", length, 1, 1<<20); err != nil {
		return nil, err
	}
	folder := filepath.Join(o.Folder, "imdb")
	train, test, err := readReviews(folder)
	if err != nil {
		return nil, err
	}
	t := &Films{length: length, seed: o.Seed}
	number := map[string]int{}
	for _, r := range train {
		i, ok := number[r.Film]
		if !ok {
			i = len(number)
			number[r.Film] = i
		}
		split, at := Train, i-i/10-1
		if i%10 == 0 {
			split, at = Valid, i/10
		}
		t.addReview(split, at, r.Text)
	}
	clear(number)
	for _, r := range test {
		i, ok := number[r.Film]
		if !ok {
			i = len(number)
			number[r.Film] = i
		}
		t.addReview(Test, i, r.Text)
	}
	for split, films := range t.films {
		for f, reviews := range films {
			if len(reviews) > 1 {
				t.pairs[split] = append(t.pairs[split], f)
			}
		}
		if n := len(t.pairs[split]); n < 2 {
			return nil, fmt.Errorf("%s: %v has %d films with two reviews, 2 are needed", folder, Split(split), n)
		}
	}
	return t, nil
}

// addReview appends a review of a film, which may be the split's next film.
func (t *Films) addReview(split Split, film int, text []byte) {
	if film == len(t.films[split]) {
		t.films[split] = append(t.films[split], nil)
	}
	t.films[split][film] = append(t.films[split][film], text)
}

// Spec returns the specification of the samples.
func (t *Films) Spec() Spec {
	return Spec{Name: "films", Kind: Class, Metric: Accuracy, Vocab: 257, Length: 2 * t.length, Parts: 2, Classes: 2,
		Count: [3]int{Endless, Endless, Endless}}
}

// Sample overwrites s with two reviews; class 1 means that both are of the same film. It returns an error if the
// split has no sample i.
func (t *Films) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	d := newDraws(t.seed, split, i)
	films, pairs := t.films[split], t.pairs[split]
	// Both classes draw reviews from one distribution, so films with one review are omitted.
	k := d.intn(len(pairs))
	f := pairs[k]
	a := d.intn(len(films[f]))
	if d.intn(2) == 1 {
		b := d.intn(len(films[f]) - 1)
		if b >= a {
			b++
		}
		setPair(s, films[f][a], films[f][b], t.length, true)
		return nil
	}
	l := d.intn(len(pairs) - 1)
	if l >= k {
		l++
	}
	g := pairs[l]
	setPair(s, films[f][a], films[g][d.intn(len(films[g]))], t.length, false)
	return nil
}

// Baselines scores the baselines of Retrieval. It returns the errors of Sample.
func (t *Films) Baselines(n int) ([]Baseline, error) { return pairBaselines(t, n) }
