package task

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/token"
)

// PairsName is the name of the task that TextPairs implements.
const PairsName = "pairs"

// Bytes of a sample of pairs, the separators of ASCII. Texts do not hold them.
const (
	pairSeparator = 0x1f // between source and target
	pairEnd       = 0x1e // after the target
)

// TextPairs learns to write targets for sources: summaries of texts, translations, dates in another
// form. It reads the user's own files. A sample is the source, a separator and the target, in
// bytes. Each byte of the target is predicted from the bytes before it; the bytes of the source
// have no labels.
type TextPairs struct {
	data           string // path of the file or folder
	length, target int    // most bytes in a sample, and in a target
	parts          [3][]TextPair
}

// TextPair is a source with its target.
type TextPair struct{ Source, Target []byte }

var pairsSettings = []Setting{
	{"data", "", "file .jsonl, .json (an array of objects), .csv, .tsv or .txt with tabs, plain, gzip or zstd"},
	{"source", "source", "name of the column, or the key, of the source"},
	{"target", "target", "name of the column, or the key, of the target"},
	{"length", "1024", "bytes of source, separator and target together"},
	{"target_length", "256", "bytes of a target that are learned and written; a source has the rest of the length"},
}

// pairSizes reads the sizes of samples.
func pairSizes(o *settingsReader) (length, target int, err error) {
	length, target = o.int("length"), o.int("target_length")
	if err := checkRange("target_length", target, 1, 1<<23); err != nil {
		return 0, 0, err
	}
	return length, target, checkRange("length", length, target+2, 1<<24)
}

func openPairs(o *settingsReader) (Source, error) {
	length, target, err := pairSizes(o)
	if err != nil {
		return nil, err
	}
	if o.Tokens != nil && o.Tokens.Vocabulary.Kind() != token.KindBytes {
		return nil, fmt.Errorf("the model reads other tokens than %s", token.KindBytes)
	}
	t := &TextPairs{data: o.text("data"), length: length, target: target}
	if t.data == "" {
		return nil, errors.New("data: no file is named; --data names one with sources and targets")
	}
	columns := ownColumns{text: o.text("source"), label: o.text("target")}
	if columns.text == columns.label {
		return nil, fmt.Errorf("target: its column is %q, and so is that of the source", columns.label)
	}
	rows, err := columns.readFile(t.data)
	if err != nil {
		return nil, err
	}
	all := make([]TextPair, len(rows))
	for i, row := range rows {
		all[i] = TextPair{[]byte(row.text), []byte(row.label)}
		for _, x := range []struct {
			name string
			text []byte
		}{{columns.text, all[i].Source}, {columns.label, all[i].Target}} {
			if len(x.text) == 0 {
				return nil, fmt.Errorf("%s: %s: %s: the text is empty", t.data, row.place(i), x.name)
			}
			if at := bytes.IndexAny(x.text, string([]byte{pairSeparator, pairEnd})); at >= 0 {
				return nil, fmt.Errorf("%s: %s: %s: byte %d is %#02x, which separates sources and targets", t.data, row.place(i), x.name, at, x.text[at])
			}
		}
	}
	for i, split := range (splitter{seed: o.Seed}).split(make([]int32, len(all))) {
		t.parts[split] = append(t.parts[split], all[i])
	}
	if len(t.parts[Train]) == 0 && !o.ScoreOnly {
		return nil, fmt.Errorf("%s: rows: there is none to learn from", t.data)
	}
	return t, nil
}

// TestOnly returns the same task with all pairs in the test set.
func (t *TextPairs) TestOnly() *TextPairs {
	w := *t
	w.parts = [3][]TextPair{Test: slices.Concat(t.parts[:]...)}
	return &w
}

// Pair returns pair i of a split.
func (t *TextPairs) Pair(split Split, i int) TextPair { return t.parts[split][i] }

// TokensAreBytes reports that token t is the byte t.
func (t *TextPairs) TokensAreBytes() bool { return true }

// Spec returns the specification of the samples.
func (t *TextPairs) Spec() Spec {
	return Spec{Name: PairsName, Kind: Next, Metric: Nats, Vocab: 256, Length: t.length, Parts: 1, Classes: 256,
		Count: [3]int{len(t.parts[Train]), len(t.parts[Valid]), len(t.parts[Test])}}
}

// SampleLength returns the positions of sample i of a split.
func (t *TextPairs) SampleLength(split Split, i int) int {
	p := &t.parts[split][i]
	return min(len(p.Source), t.sourceLength()) + 1 + min(len(p.Target), t.target)
}

// sourceLength returns the bytes of a source that are read.
func (t *TextPairs) sourceLength() int { return t.length - t.target - 1 }

// Sample overwrites s with a pair: the beginning of the source, the separator, and the beginning of
// the target. Only the target has labels; the last is the end of the target, unless the target is
// cut. Sample returns an error if the split has no sample i.
func (t *TextPairs) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	p := &t.parts[split][i]
	s.Tokens = appendPairSource(s.Tokens, p.Source, t.sourceLength())
	for range len(s.Tokens) - 1 {
		s.Labels = append(s.Labels, -1)
	}
	for _, b := range t.targetBytes(p) {
		s.Labels, s.Tokens = append(s.Labels, int32(b)), append(s.Tokens, int32(b))
	}
	s.Tokens = s.Tokens[:len(s.Labels)] // nothing is read after the last label
	return nil
}

// targetBytes returns the bytes of a target that are learned, and its end unless it is cut.
func (t *TextPairs) targetBytes(p *TextPair) []byte {
	if len(p.Target) > t.target {
		return p.Target[:t.target]
	}
	return append(slices.Clip(p.Target), pairEnd)
}

// appendPairSource appends the beginning of a source, of at most length bytes, and the separator.
func appendPairSource(tokens []int32, source []byte, length int) []int32 {
	for _, b := range source[:min(len(source), length)] {
		tokens = append(tokens, int32(b))
	}
	return append(tokens, pairSeparator)
}

// CountTruncated returns the number of pairs whose source or target is cut, and the number of pairs.
func (t *TextPairs) CountTruncated() (cut, all int) {
	for _, part := range t.parts {
		for i := range part {
			all++
			if len(part[i].Source) > t.sourceLength() || len(part[i].Target) > t.target {
				cut++
			}
		}
	}
	return cut, all
}

// Baselines returns the losses of n-gram models of the targets, which do not see the sources, on
// the first n pairs of the judged split. The models learn from the first n training pairs. If n is
// 0, all pairs are used.
func (t *TextPairs) Baselines(n int) ([]Baseline, error) {
	spec := t.Spec()
	split := spec.JudgedSplit()
	stream := func(split Split) (list []int32, count int) {
		count = sampleCount(&spec, split, n)
		list = []int32{pairEnd, pairEnd} // context of the first target
		for i := range count {
			for _, b := range t.targetBytes(&t.parts[split][i]) {
				list = append(list, int32(b))
			}
		}
		return list, count
	}
	from, learned := stream(Train)
	judged, count := stream(split)
	if learned == 0 || count == 0 {
		return nil, fmt.Errorf("%s: %d pairs to learn from and %d to be judged by are too few", PairsName, learned, count)
	}
	loss := NewNgram(slices.Values(from), 256).Loss(slices.Values(judged))
	var list []Baseline
	for order, name := range []string{"frequency of the bytes of targets", "after one byte of the target", "after two"} {
		list = append(list, Baseline{Name: name, Score: loss[order], Learned: learned, Judged: count})
	}
	return list, nil
}

// PairWriter makes the prompts for a model of the task pairs.
type PairWriter struct{ length, target int }

// NewPairWriter returns the PairWriter for a run with the settings set. It returns an error if a
// setting is unknown or out of range.
func NewPairWriter(set map[string]string) (*PairWriter, error) {
	row, err := Lookup(PairsName)
	if err != nil {
		return nil, err
	}
	o := newSettingsReader(&row, Options{Settings: set})
	o.refuseUnknown()
	length, target, err := pairSizes(o)
	if o.err != nil {
		err = o.err
	}
	return &PairWriter{length, target}, err
}

// Prompt returns the tokens after which the model writes the target for a source. isTruncated
// reports that the source was cut. Prompt returns an error if the source is empty or contains a
// byte that separates sources and targets.
func (w *PairWriter) Prompt(source []byte) (tokens []int32, isTruncated bool, err error) {
	if len(source) == 0 {
		return nil, false, errors.New("the source is empty")
	}
	if at := bytes.IndexAny(source, string([]byte{pairSeparator, pairEnd})); at >= 0 {
		return nil, false, fmt.Errorf("byte %d of the source is %#02x, which separates sources and targets", at, source[at])
	}
	most := w.length - w.target - 1
	return appendPairSource(nil, source, most), len(source) > most, nil
}

// MaxTarget returns the largest number of bytes in a target.
func (w *PairWriter) MaxTarget() int { return w.target }

// EndsTarget reports whether a token ends the target.
func (w *PairWriter) EndsTarget(t int32) bool { return t == pairEnd }
