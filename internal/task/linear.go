package task

import (
	"cmp"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/logistic"
)

// Sizes of a tf-idf classifier.
const (
	maxLinearClass  = 1 << 10
	mostLinearWork  = 1 << 27 // features of all texts times classes
	leastLinearCost = 16      // classes, below which a feature costs the same
	mostWeights     = 1 << 23
	hashStart       = 14695981039346656037 // FNV-1a
	hashFactor      = 1099511628211
	bigramFactor    = 0x9e3779b97f4a7c15
)

// linearName is the name of the baseline.
const linearName = "logistic regression over tf-idf of words and bigrams"

// feature is the hash of a word, or of a pair of neighbouring words.
type feature struct {
	hash     uint64
	isBigram bool
}

// appendFeatures appends the words and bigrams of a text, whose tokens are bytes plus one.
func appendFeatures(features []feature, tokens []int32) []feature {
	var before uint64
	eachTextWord(tokens, func(word []byte) {
		h := uint64(hashStart)
		for _, b := range word {
			h = (h ^ uint64(b)) * hashFactor
		}
		features = append(features, feature{h * bigramFactor, false})
		if before != 0 {
			features = append(features, feature{(before*bigramFactor ^ h) * bigramFactor, true})
		}
		before = h
	})
	return features
}

// tfidf weighs the features of texts. A count of n has weight 1 + ln n, times the feature's
// inverse document frequency ln((1+texts)/(1+texts with it)) + 1; the vector of a text has length 1.
type tfidf struct {
	column map[uint64]int32
	idf    []float64

	read   []feature // memory of appendVector
	counts map[int32]float64
	cols   []int32
	values []float32
}

// newTFIDF learns the features of the texts that each calls its argument with. It keeps all words
// and the bigrams of two texts or more, at most limit by the number of texts that have them.
func newTFIDF(limit int, each func(f func(tokens []int32)) error) (*tfidf, error) {
	type count struct {
		texts, last int32
		isBigram    bool
	}
	counts, texts := map[uint64]count{}, int32(0)
	var read []feature
	err := each(func(tokens []int32) {
		texts++
		read = appendFeatures(read[:0], tokens)
		for _, f := range read {
			if c := counts[f.hash]; c.last != texts {
				counts[f.hash] = count{c.texts + 1, texts, f.isBigram}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	var kept []uint64
	for hash, c := range counts {
		if !c.isBigram || c.texts > 1 {
			kept = append(kept, hash)
		}
	}
	slices.SortFunc(kept, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(counts[b].texts, counts[a].texts), cmp.Compare(a, b))
	})
	kept = kept[:min(len(kept), limit)]
	t := &tfidf{column: make(map[uint64]int32, len(kept)), counts: map[int32]float64{}}
	for i, hash := range kept {
		t.column[hash] = int32(i)
		t.idf = append(t.idf, math.Log(float64(1+texts)/float64(1+counts[hash].texts))+1)
	}
	return t, nil
}

// vector returns the columns and weights of a text, which the next call overwrites. They are empty
// for a text without known features.
func (t *tfidf) vector(tokens []int32) (cols []int32, values []float32) {
	t.read = appendFeatures(t.read[:0], tokens)
	clear(t.counts)
	t.cols, t.values = t.cols[:0], t.values[:0]
	for _, f := range t.read {
		if j, ok := t.column[f.hash]; ok {
			if t.counts[j]++; t.counts[j] == 1 {
				t.cols = append(t.cols, j)
			}
		}
	}
	slices.Sort(t.cols)
	sum := 0.
	for _, j := range t.cols {
		w := (1 + math.Log(t.counts[j])) * t.idf[j]
		t.counts[j] = w
		sum += w * w
	}
	for _, j := range t.cols {
		t.values = append(t.values, float32(t.counts[j]/math.Sqrt(sum)))
	}
	return t.cols, t.values
}

// scoreLinear scores a logistic regression over the tf-idf of src, whose tokens are bytes plus one.
// The regression learns from all samples that are not judged; if they exceed mostLinearWork, from
// an evenly spaced part of them. Its strength is chosen on the validation set, or on a fifth of the
// training set if the validation set is the one that is judged.
func scoreLinear(src Source, n int) (Baseline, error) {
	spec := src.Spec()
	splits := []Split{Train}
	if spec.JudgedSplit() == Test && spec.Count[Valid] > 0 {
		splits = append(splits, Valid)
	}
	every := 1
	each := func(f func(split Split, s *Sample)) error {
		for _, split := range splits {
			i := 0
			_, err := eachSample(src, split, n, func(s *Sample) {
				if i++; i%every == 0 {
					f(split, s)
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	work := 0
	var read []feature
	err := each(func(_ Split, s *Sample) {
		read = appendFeatures(read[:0], s.Tokens)
		work += len(read) * max(spec.Classes, leastLinearCost)
	})
	if err != nil {
		return Baseline{}, err
	}
	every = work/mostLinearWork + 1
	words, err := newTFIDF(mostWeights/spec.Classes, func(f func(tokens []int32)) error {
		return each(func(_ Split, s *Sample) { f(s.Tokens) })
	})
	if err != nil {
		return Baseline{}, err
	}
	x := &logistic.Matrix{Cols: len(words.idf)}
	var classes []int32
	var held []int
	err = each(func(split Split, s *Sample) {
		if split == Valid {
			held = append(held, x.Rows())
		}
		x.Add(words.vector(s.Tokens))
		classes = append(classes, s.Class)
	})
	if err != nil {
		return Baseline{}, err
	}
	if len(splits) == 1 {
		held = logistic.HoldOut(classes, 5)
	}
	m, _, err := logistic.FitBest(x, classes, spec.Classes, held)
	if err != nil {
		return Baseline{}, err
	}
	return scoreClasses(linearName, src, n, x.Rows(), func(s *Sample) int {
		row := &logistic.Matrix{Cols: x.Cols}
		row.Add(words.vector(s.Tokens))
		return m.Predict(row)[0]
	})
}
