package task

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/strict"
)

// OwnTexts classifies or regresses the user's own texts, or labels each of their bytes. Its tokens
// are the tokens of a model or, without one, bytes: the value of a byte plus one.
type OwnTexts struct {
	ownData[ownText]
	tokens *Tokens // nil: bytes
	ends   textEnds

	data        string // path of the file or folder
	start       string // model that the advice is to start from; "": the run starts from scratch
	canLengthen bool   // the model can read texts that are longer than length
}

// ownText is one text with its target.
type ownText struct {
	text   []byte
	path   string // file that holds the text, read by Sample; "": text holds it
	class  int32
	number float32
	labels string  // one byte for each byte of the text
	ids    []int32 // tokens of the text, where they are no bytes
	types  []int32 // of ids; nil: all 0
	pair   []byte  // second text; nil: there is none

	row, line int32 // of the file of all texts, for placeRow
	isElement bool  // line counts the elements of a JSON array
}

// ownBytes bounds a line of JSONL. Tests lower it.
var ownBytes = 64 << 20

var ownSettings = []Setting{
	{"data", "", "file .jsonl, .json (an array of objects), .csv, .tsv or .txt with tabs, plain, gzip or zstd, or a folder with a folder of texts for each class (or with such folders train, valid, test)"},
	{"text", "text", "name of the column, or the key, of the text"},
	{"label", "label", "name of the column or key with the label"},
	{"target", "class", "class; number; or bytes: the label has a character for each byte of the text"},
	{"vocabulary", "", "bpe, or bpe=N for at most N tokens: byte-level BPE of lower-case texts, learned from the training set (from 16 MiB of a larger one, drawn at random); empty for bytes, which target=bytes has"},
	{"length", "4096", "bytes of a text that are seen; of other vocabularies tokens, enough for nine texts of ten by default (512 at most)"},
}

func openOwnTexts(o *settingsReader) (Source, error) {
	columns := ownColumns{text: o.text("text"), label: o.text("label")}
	t, err := openTexts(o.text("data"), o.targetKind("target", "bytes"), columns, o.int("length"), o.splitter(), o.ScoreOnly)
	if err != nil {
		return nil, err
	}
	tokens := o.Tokens
	if name := o.text("vocabulary"); tokens == nil && name != "" && t.kind != Labels { // else it has no effect
		if tokens, err = t.learnTokens(name, o.Seed); err != nil {
			return nil, fmt.Errorf("setting vocabulary: %w", err)
		}
	}
	if tokens == nil {
		return t, nil
	}
	length := o.int("length")
	if o.Settings["length"] == "" {
		length = 0
	}
	if o.Tokens != nil && o.text("vocabulary") == "" { // else they are learned, by this run or before
		t.start = "train longer"
	}
	err = t.encodeTexts(tokens, length, o.Context)
	t.canLengthen = o.Context == 0 || t.length < o.Context
	return t, err
}

// ownName is the name of the task in the catalogue.
const ownName = "file"

// askOwnText returns the question about a text.
func askOwnText(o *settingsReader, k ModelInfo) (*Question, error) {
	var spec Spec
	setTarget(&spec, o.targetKind("target", "bytes"), len(k.Classes))
	if k.Tokens != nil {
		return askTokenText(spec, k)
	}
	return askText(spec, k.Classes, o.int("length"))
}

// OpenOwnTexts reads a file of texts, or lists a folder of them, for which kind must be Class. kind
// is Class, Regression or Labels. The seed decides which tenth of the texts of each class is held
// out for validation, and which for the test. OpenOwnTexts returns an error if the data is
// malformed, has fewer than two classes or no training samples.
func OpenOwnTexts(path string, kind Kind, textName, labelName string, length int, seed uint64) (*OwnTexts, error) {
	return openTexts(path, kind, ownColumns{text: textName, label: labelName}, length, splitter{seed: seed}, false)
}

// openTexts is OpenOwnTexts. With scoreOnly one class, and no training sample, is enough.
func openTexts(path string, kind Kind, columns ownColumns, length int, parts splitter, scoreOnly bool) (*OwnTexts, error) {
	if err := checkRange("length", length, 1, 1<<24); err != nil {
		return nil, err
	}
	t, err := readOwnTexts(path, kind, columns, parts, scoreOnly)
	if err != nil {
		return nil, err
	}
	t.length, t.canLengthen = length, true
	if t.kind != Regression && len(t.classes) < 2 && !scoreOnly {
		return nil, fmt.Errorf("%s: label: the number of classes is %d, 2 are needed", path, len(t.classes))
	}
	if !t.hasSamples(scoreOnly) {
		return nil, fmt.Errorf("%s: rows: there is none to learn from", path)
	}
	return t, nil
}

// ownColumns are the names of columns or keys.
type ownColumns struct {
	text, label string
	pair        string // second text; "": there is none
}

// list returns the names that a row needs.
func (c *ownColumns) list() []string {
	if c.pair == "" {
		return []string{c.text, c.label}
	}
	return []string{c.text, c.label, c.pair}
}

// ownRow is a row of a file: text, label and second text.
type ownRow struct {
	text, label, pair string
	line              int  // from 1; 0: not known
	isElement         bool // line counts the elements of a JSON array
}

// place names row i of a file in messages.
func (r *ownRow) place(i int) string { return placeRow(i, r.line, r.isElement) }

// placeRow names row i of a file, which is in a line from 1; 0: the line is not known.
func placeRow(i, line int, isElement bool) string {
	if isElement {
		return fmt.Sprintf("element %d", line)
	}
	if line > 0 {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("row %d below the header", i+1)
}

// place names a text in messages: its file, or its row in the file of all texts.
func (t *OwnTexts) place(own *ownText) string {
	if own.path != "" {
		return own.path
	}
	return t.data + ": " + placeRow(int(own.row), int(own.line), own.isElement)
}

// checkTraining returns an error for the first class without training files, and for the first
// empty file. Texts with tokens have been read.
func (t *OwnTexts) checkTraining() error {
	if t.missing != nil || t.tokens != nil {
		return t.missing
	}
	for _, part := range t.parts {
		for i := range part {
			if path := part[i].path; path != "" {
				info, err := os.Stat(path)
				if err == nil && info.Size() == 0 {
					err = fmt.Errorf("%s: it is empty", path)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readOwnTexts reads or lists texts for openTexts, whatever their number.
func readOwnTexts(path string, kind Kind, columns ownColumns, parts splitter, scoreOnly bool) (*OwnTexts, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	t := &OwnTexts{ownData: ownData[ownText]{name: ownName, kind: kind}, data: path}
	if info.IsDir() {
		if kind != Class {
			return nil, fmt.Errorf("target: a folder says classes, %v is asked for", kind)
		}
		if columns.pair != "" {
			return nil, fmt.Errorf("data: %s: a file of a folder is one text; pairs are rows of .jsonl, .csv or .tsv", path)
		}
		c, err := readClassFolder(path, parts, scoreOnly)
		if err != nil {
			return nil, err
		}
		t.classes, t.ordered, t.ignored, t.missing = c.classes, true, c.ignored, c.checkTraining()
		for split, files := range c.files {
			for _, f := range files {
				t.parts[split] = append(t.parts[split], ownText{path: f.path, class: f.class})
			}
		}
		return t, nil
	}
	rows, err := columns.readFile(path)
	if err != nil {
		return nil, err
	}
	if err := t.addRows(rows, columns.pair != "", parts); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// readFile reads the columns or keys of a file, whose form its name tells.
func (c *ownColumns) readFile(path string) ([]ownRow, error) {
	read := c.readJSONL
	if comma, ok := fieldSeparator(path); ok {
		read = func(r io.Reader) ([]ownRow, error) { return c.readTable(r, comma) }
	} else if suffix := filepath.Ext(dataset.TrimSuffix(path)); suffix != ".jsonl" && suffix != ".json" {
		return nil, fmt.Errorf("data: %s: its name ends in %q; .jsonl, .json, .csv, .tsv and .txt with tabs are read, plain, .gz or .zst", path, suffix)
	}
	return dataset.ReadFile(path, read)
}

// readTable reads the columns of a table.
func (c *ownColumns) readTable(r io.Reader, comma rune) ([]ownRow, error) {
	f, err := dataset.ReadFields(comma)(r)
	if err != nil {
		return nil, err
	}
	var at []int
	for _, name := range c.list() {
		i, err := f.ColumnIndex(name)
		if err != nil {
			return nil, err
		}
		at = append(at, i)
	}
	rows := make([]ownRow, len(f.Rows))
	for i, row := range f.Rows {
		rows[i] = ownRow{text: row[at[0]], label: row[at[1]]}
		if c.pair != "" {
			rows[i].pair = row[at[2]]
		}
	}
	return rows, nil
}

// readJSONL reads the keys of the JSON object in each line, or of those in a JSON array. A label is
// a string, number or boolean.
func (c *ownColumns) readJSONL(r io.Reader) ([]ownRow, error) {
	var rows []ownRow
	records := infile.NewRecords(r)
	s := infile.NewLineScanner(records, ownBytes)
	n := 0
	unit := func() string {
		if records.HasArray() {
			return "element"
		}
		return "line"
	}
	for s.Scan() {
		n++
		line := s.Bytes()
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		row, err := c.parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", unit(), n, err)
		}
		row.line, row.isElement = n, records.HasArray()
		rows = append(rows, row)
	}
	if err := s.Err(); err == bufio.ErrTooLong {
		return nil, fmt.Errorf("%s %d: it has more than %d bytes", unit(), n+1, ownBytes)
	} else if err != nil {
		return nil, fmt.Errorf("%s %d: %w", unit(), n+1, err)
	}
	return rows, nil
}

// parse reads the keys of a JSON object.
func (c *ownColumns) parse(line []byte) (row ownRow, err error) {
	if !utf8.Valid(line) {
		return row, errors.New("it is not UTF-8") // encoding/json would replace bytes
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return row, notObject(line, err)
	}
	for _, name := range c.list() {
		if object[name] == nil {
			return row, fmt.Errorf("it has no key %q", name)
		}
		if strict.HasHalfPair(object[name]) {
			return row, fmt.Errorf("%s: %.40s has half a surrogate pair", name, object[name])
		}
	}
	if err := c.checkUnique(line); err != nil {
		return row, err
	}
	if err := json.Unmarshal(object[c.text], &row.text); err != nil {
		return row, fmt.Errorf("%s: a string is needed: %w", c.text, err)
	}
	if c.pair != "" {
		if err := json.Unmarshal(object[c.pair], &row.pair); err != nil {
			return row, fmt.Errorf("%s: a string is needed: %w", c.pair, err)
		}
	}
	var label any
	d := json.NewDecoder(bytes.NewReader(object[c.label]))
	d.UseNumber()
	if err := d.Decode(&label); err != nil {
		return row, fmt.Errorf("%s: %w", c.label, err)
	}
	switch label := label.(type) {
	case string:
		row.label = label
	case json.Number:
		if row.label, err = numberLabel(label.String()); err != nil {
			return row, fmt.Errorf("%s: %w", c.label, err)
		}
	case bool:
		row.label = strconv.FormatBool(label)
	default:
		return row, fmt.Errorf("%s: it is %.40s; a string, a number or a truth value is needed", c.label, object[c.label])
	}
	return row, nil
}

// notObject returns the error of JSON that is not an object, in words of the data.
func notObject(line []byte, err error) error {
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("it is no JSON object in a line of its own: %w", err)
	}
	return fmt.Errorf("it is %.40s; a JSON object is needed", bytes.TrimSpace(line))
}

// checkUnique returns an error if a key of a column comes twice in a JSON object, which must be
// valid: encoding/json takes the last value.
func (c *ownColumns) checkUnique(object []byte) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return err
	}
	seen, names := map[string]bool{}, c.list()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		name, _ := key.(string)
		if seen[name] && slices.Contains(names, name) {
			return fmt.Errorf("it has the key %q twice", name)
		}
		seen[name] = true
	}
	return nil
}

// numberLabel returns the label of a JSON number: the digits of an integer, else the shortest
// decimal number with the same float64. It returns an error if float64 cannot hold the number.
func numberLabel(number string) (string, error) {
	x, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return "", err
	case !strings.ContainsAny(number, ".eE"):
		return number, nil
	case x == math.Trunc(x) && math.Abs(x) < 1<<53:
		return strconv.FormatFloat(x, 'f', -1, 64), nil
	}
	return strconv.FormatFloat(x, 'g', -1, 64), nil
}

// addRows divides rows among the splits; pairs says that they have a second text. It returns an
// error if a text or the name of a class is empty, a label does not fit its kind or float32, or
// too many classes are found.
func (t *OwnTexts) addRows(rows []ownRow, pairs bool, parts splitter) error {
	classes := map[string]bool{}
	for i, row := range rows {
		if row.text == "" || pairs && row.pair == "" {
			return fmt.Errorf("%s: the text is empty", row.place(i))
		}
		switch t.kind {
		case Class:
			if row.label == "" {
				return fmt.Errorf("%s: the label is empty", row.place(i))
			}
			classes[row.label] = true
		case Labels:
			if len(row.label) != len(row.text) {
				return fmt.Errorf("%s: the label has %d bytes, the text %d", row.place(i), len(row.label), len(row.text))
			}
			for k := range len(row.label) {
				classes[row.label[k:k+1]] = true
			}
		}
	}
	for c := range classes {
		t.classes = append(t.classes, strings.Clone(c)) // a field of a table holds all its text
	}
	var index map[string]int32
	t.classes, index = sortClasses(t.classes)
	if len(t.classes) > 1<<16 {
		return fmt.Errorf("label: there are %d classes, at most %d are read; for numbers set the target", len(t.classes), 1<<16)
	}
	var numbers []float64
	all, strata := make([]ownText, 0, len(rows)), make([]int32, len(rows))
	for i, row := range rows {
		own := ownText{text: []byte(row.text), row: int32(i), line: int32(row.line), isElement: row.isElement}
		if pairs {
			own.pair = []byte(row.pair)
		}
		switch t.kind {
		case Class:
			own.class, strata[i] = index[row.label], index[row.label]
		case Labels:
			own.labels = strings.Clone(row.label)
		default:
			x, err := strconv.ParseFloat(row.label, 32)
			if err != nil || x-x != 0 {
				return fmt.Errorf("%s: the label is %.40q, a finite number is needed", row.place(i), row.label)
			}
			own.number = float32(x)
			if x, err = strconv.ParseFloat(row.label, 64); err != nil {
				return fmt.Errorf("%s: label: %w", row.place(i), err)
			}
			numbers = append(numbers, x)
		}
		all = append(all, own)
	}
	for i, split := range parts.split(strata) {
		t.parts[split] = append(t.parts[split], all[i])
	}
	if err := checkRounding(numbers); err != nil {
		return fmt.Errorf("label: %w", err)
	}
	return nil
}

// Spec returns the specification of the samples.
func (t *OwnTexts) Spec() Spec {
	s := t.spec()
	s.Vocab = 257
	if t.tokens != nil {
		s.Vocab = t.tokens.Size
	}
	return s
}

// Sample overwrites s with the first tokens of a text. It returns an error if the split has no
// sample i, or the text's file is empty or cannot be read.
func (t *OwnTexts) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	own := &t.parts[split][i]
	if t.tokens != nil {
		s.Tokens = t.ends.appendTruncated(s.Tokens, own.ids, t.length)
		s.Types = append(s.Types, own.types...)
	} else {
		text, err := own.read(t.length)
		if err != nil {
			return err
		}
		s.Tokens = appendBytes(s.Tokens, text, t.length)
	}
	s.Class = own.class
	switch t.kind {
	case Regression:
		s.Targets = append(s.Targets, own.number)
	case Labels:
		for k := range s.Tokens {
			if own.labels == "" {
				s.Labels = append(s.Labels, -1)
				continue
			}
			label, _ := slices.BinarySearch(t.classes, own.labels[k:k+1])
			s.Labels = append(s.Labels, int32(label))
		}
	}
	return nil
}

// Baselines scores simple methods by kind of target. Classes: the commonest, naive Bayes over
// words, and a logistic regression over tf-idf of words and bigrams, both of whole texts. Numbers:
// the mean. Labels: the commonest, and the commonest for each byte. It returns an error if a sample cannot be read.
func (t *OwnTexts) Baselines(n int) ([]Baseline, error) {
	switch t.kind {
	case Regression:
		return runBaselines(func() (Baseline, error) { return scoreMeanTarget(t, n) })
	case Labels:
		return runBaselines(
			func() (Baseline, error) { return scoreMajorityLabel(t, n) },
			func() (Baseline, error) { return scoreTokenLabels(t, n) },
		)
	}
	all, err := TextBaselines(t.wholeTexts(), n)
	for i := range all {
		all[i].Advice = t.advice()
	}
	return all, err
}

// TextBaselines scores the commonest class, naive Bayes over words and, if there are at most 1024
// classes, a logistic regression over words and bigrams. The tokens of the texts must be bytes plus
// one. n is as in Baseliner. It returns the errors of Sample.
func TextBaselines(src Source, n int) ([]Baseline, error) {
	list := []func() (Baseline, error){
		func() (Baseline, error) { return scoreMajority(src, n) },
		func() (Baseline, error) {
			return scoreNaiveBayes("naive Bayes over words", src, n, func(s *Sample, f func([]byte)) { eachTextWord(s.Tokens, f) })
		},
	}
	if src.Spec().Classes <= maxLinearClass {
		list = append(list, func() (Baseline, error) { return scoreLinear(src, n) })
	}
	return runBaselines(list...)
}

// advice returns what to do where a baseline is as good as the model.
func (t *OwnTexts) advice() string {
	text := cmp.Or(t.start, "fine-tune a trained model with --init")
	if cut, all := t.CountTruncated(); t.canLengthen && 10*cut > all {
		unit := "tokens"
		if t.tokens == nil {
			unit = "bytes"
		}
		text += fmt.Sprintf(", or read more than %d %s of a text with --task-set length=N: %d of %d texts are cut", t.length, unit, cut, all)
	}
	return text
}

// wholeTexts returns the task with all bytes of each text.
func (t *OwnTexts) wholeTexts() *OwnTexts {
	w := *t
	w.length, w.tokens = math.MaxInt, nil
	return &w
}

// scoreTokenLabels scores the commonest label of each token.
func scoreTokenLabels(src Source, n int) (Baseline, error) {
	spec := src.Spec()
	counts := make([][]int, spec.Vocab)
	for i := range counts {
		counts[i] = make([]int, spec.Classes)
	}
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		for i, y := range s.Labels {
			if y >= 0 {
				counts[s.Tokens[i]][y]++
			}
		}
	})
	if err != nil {
		return Baseline{}, err
	}
	return scoreLabels("label of the token", src, n, learned, func(s *Sample, i int) int32 { return int32(argMax(counts[s.Tokens[i]])) })
}
