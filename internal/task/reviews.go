package task

import (
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/rng"
)

// Reviews decides whether a film review of IMDB is positive, from its first bytes (task text of
// the Long Range Arena). The token of a byte is its value plus one; 0 is padding. LRA validates
// on the test set; here the last tenth of the training data is the validation set.
type Reviews struct {
	length      int // bytes of a review
	train, test []dataset.Review
}

var reviewSettings = []Setting{{"length", "4000", "bytes of a review that are seen (LRA's paper 4000)"}}

func openReviews(o *settingsReader) (Source, error) {
	length := o.int("length")
	if err := checkRange("length", length, 1, 1<<20); err != nil {
		return nil, err
	}
	train, test, err := readReviews(filepath.Join(o.Folder, "imdb"))
	if err != nil {
		return nil, err
	}
	return &Reviews{length, train, test}, nil
}

// reviewClasses are the names of classes 0 and 1.
var reviewClasses = []string{"negative", "positive"}

// ClassNames returns the names of the classes.
func (t *Reviews) ClassNames() []string { return slices.Clone(reviewClasses) }

func askReview(o *settingsReader, _ ModelInfo) (*Question, error) {
	return askText(Spec{Kind: Class, Classes: 2}, reviewClasses, o.int("length"))
}

// readReviews reads the unpacked archive in a folder, or lists of reviews. It returns an error
// if both are missing or malformed.
func readReviews(folder string) (train, test []dataset.Review, err error) {
	if acl, err := findFile(folder, "aclImdb", "train/urls_pos.txt"); err == nil {
		if filepath.Base(acl) != "aclImdb" {
			acl = folder
		}
		if train, err = dataset.ReadReviewFolder(filepath.Join(acl, "train")); err != nil {
			return nil, nil, err
		}
		test, err = dataset.ReadReviewFolder(filepath.Join(acl, "test"))
		return train, test, err
	}
	path, err := findFile(folder, "imdb_train_10000.tsv.gz", "imdb_train.tsv")
	if err != nil {
		return nil, nil, err
	}
	if train, err = dataset.ReadFile(path, dataset.ReadReviews); err != nil {
		return nil, nil, err
	}
	if path, err = findFile(folder, "imdb_test_2500.tsv.gz", "imdb_test.tsv"); err != nil {
		return nil, nil, err
	}
	test, err = dataset.ReadFile(path, dataset.ReadReviews)
	return train, test, err
}

// Spec returns the specification of the samples.
func (t *Reviews) Spec() Spec {
	n := len(t.train)
	return Spec{Name: "text", Kind: Class, Metric: Accuracy, Vocab: 257, Length: t.length, Parts: 1, Classes: 2,
		Count: [3]int{n - n/10, n / 10, len(t.test)}}
}

// Sample overwrites s with the bytes of a review; class 1 is positive. It returns an error if
// the split has no sample i.
func (t *Reviews) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	list := t.train
	switch split {
	case Valid:
		list = list[spec.Count[Train]:]
	case Test:
		list = t.test
	}
	s.Tokens = appendBytes(s.Tokens, list[i].Text, t.length)
	if list[i].Positive {
		s.Class = 1
	}
	return nil
}

// DrawWindow overwrites s with up to length bytes of a training review and the review's class. They
// are any part of the bytes that the task reads, and depend on key and i alone. DrawWindow returns
// an error if length is less than 1 or more than the task reads.
func (t *Reviews) DrawWindow(s *Sample, length int, key rng.Key, i uint64) error {
	if err := checkRange("length", length, 1, t.length); err != nil {
		return err
	}
	d := &randomDraws{key: key.Fold(i)}
	if err := t.Sample(s, Train, d.intn(t.Spec().Count[Train])); err != nil {
		return err
	}
	if n := len(s.Tokens) - length; n > 0 {
		from := d.intn(n + 1)
		s.Tokens = append(s.Tokens[:0], s.Tokens[from:from+length]...)
	}
	return nil
}

// appendBytes appends the first most bytes of a text as tokens: values plus one.
func appendBytes(tokens []int32, text []byte, most int) []int32 {
	for _, b := range text[:min(len(text), most)] {
		tokens = append(tokens, int32(b)+1)
	}
	return tokens
}

// Baselines scores the commonest class and naive Bayes over words. The published scores of all
// mechanisms are below the latter. It returns the errors of Sample.
func (t *Reviews) Baselines(n int) ([]Baseline, error) {
	return runGrowing(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) {
			return scoreNaiveBayes("naive Bayes over words", t, n, func(s *Sample, f func([]byte)) { eachWord(s.Tokens, f) })
		},
	)
}
