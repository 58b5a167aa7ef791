package task

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// FASTA classifies the records of the user's own FASTA files by their first letters.
type FASTA struct {
	ownData[ownRecord]
	letters *[256]int32 // token of each letter
	vocab   int
}

// ownRecord is the first letters of a record with its class.
type ownRecord struct {
	path    string
	letters []byte
	class   int32
}

var fastaSettings = []Setting{
	{"data", "", "FASTA file, plain, gzip or zstd, or a folder of such files, .fa, .fasta, .fna, .faa or .ffn (or of folders train, valid, test with such files)"},
	{"label", "folder", "where the class of a record is: folder, the one that its file lies in; file, its file's name without suffix; word:N, the N-th word of its header, which blanks and | end; key:NAME, what follows NAME= in the header; or a table .csv or .tsv, from the folder of the data, with columns name and label"},
	{"as", "records", "records: the first letters of each; windows: windows from anywhere, of records divided as in task genome"},
	{"letters", "dna", "dna: A, C, G, T and one for all others; all: A to Z, - and *"},
	{"length", "1024", "letters of a sequence that are seen"},
}

// fastaName is the name of the task in the catalogue.
const fastaName = "fasta"

// letterTokens maps letters to tokens: A to Z of either case to 1 to 26, - to 27, * to 28.
var letterTokens = func() *[256]int32 {
	t := new([256]int32)
	for i := range int32(26) {
		t['A'+i], t['a'+i] = i+1, i+1
	}
	t['-'], t['*'] = 27, 28
	return t
}()

// letterCodes returns the token of each letter and the size of the vocabulary.
func (o *settingsReader) letterCodes() (*[256]int32, int) {
	if o.oneOf("letters", "dna", "all") == "all" {
		return letterTokens, 29
	}
	return baseTokens, 6
}

func openFASTA(o *settingsReader) (Source, error) {
	letters, vocab := o.letterCodes()
	as := o.oneOf("as", "records", "windows")
	length := o.int("length")
	if o.err != nil {
		return nil, o.err
	}
	if err := checkRange("length", length, 1, 1<<20); err != nil {
		return nil, err
	}
	path := o.text("data")
	if path == "" {
		return nil, fmt.Errorf("data: a FASTA file or a folder of them is needed")
	}
	if as == "windows" && vocab != 6 {
		return nil, fmt.Errorf("as: windows are of letters=dna, here letters=all; set as=records, or letters=dna")
	}
	byClass, folder, err := readFASTAClasses(path, o.text("label"))
	if err != nil {
		return nil, err
	}
	isDivided := folder.isDivided
	var classes []string
	for _, r := range byClass {
		if !isDivided || r.split == Train {
			classes = append(classes, r.class)
		}
	}
	classes, index := sortClasses(classes)
	least := 2
	if o.ScoreOnly {
		least = 1
	}
	if len(classes) < least || len(classes) > 1<<16 {
		return nil, fmt.Errorf("label: %s: there are %d classes in %d records, %d to %d are possible: %.200q", o.text("label"), len(classes), len(byClass), least, 1<<16, classes)
	}
	for _, r := range byClass {
		if _, ok := index[r.class]; !ok {
			return nil, fmt.Errorf("%s: %q: class %q is not among those to learn from, %.200q", r.path, r.Name, r.class, classes)
		}
	}
	if as == "windows" {
		if isDivided && slices.Contains(folder.dirs[:], "") {
			return nil, fmt.Errorf("as: windows of a divided folder need its folders train, valid and test, here %q", folder.dirs)
		}
		t := &Genome{name: fastaName, classes: classes, length: length, seed: o.Seed, ignored: folder.ignored}
		for _, class := range classes {
			var records [3][]dataset.Record
			for _, r := range byClass {
				if r.class == class {
					records[r.split] = append(records[r.split], r.Record)
				}
			}
			if isDivided {
				err = t.addSplits(records)
			} else {
				err = t.addSpecies(records[Train])
			}
			if err != nil {
				return nil, fmt.Errorf("class %q: %w; set as=records for sequences that are shorter", class, err)
			}
		}
		return t, nil
	}
	t := &FASTA{letters: letters, vocab: vocab,
		ownData: ownData[ownRecord]{name: fastaName, kind: Class, length: length, classes: classes, ordered: true, ignored: folder.ignored}}
	strata := make([]int32, len(byClass))
	for i, r := range byClass {
		strata[i] = index[r.class]
	}
	splits := o.splitter().split(strata)
	for i, r := range byClass {
		split := r.split
		if !isDivided {
			split = splits[i]
		}
		t.parts[split] = append(t.parts[split], ownRecord{r.path, r.Bases[:min(len(r.Bases), length)], strata[i]})
	}
	if !t.hasSamples(o.ScoreOnly) {
		return nil, fmt.Errorf("%s: of %d records there is none to learn from", path, len(byClass))
	}
	t.setMissing("records", func(r *ownRecord, seen []bool) { seen[r.class] = true })
	return t, nil
}

// classRecord is a record with the name of its class.
type classRecord struct {
	dataset.Record
	path  string
	class string
	split Split // of its folder
}

var fastaSuffixes = []string{".fa", ".fasta", ".fna", ".faa", ".ffn", ".gz", ".zst"}

// readFASTAClasses reads a file, or all files of a folder, with the class of each record.
// It returns an error if a file is malformed, a record is empty or its class is unknown.
func readFASTAClasses(path, label string) ([]classRecord, *fileFolder, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("data: %w", err)
	}
	if _, ok := fieldSeparator(label); ok && !filepath.IsAbs(label) {
		folder := path
		if !info.IsDir() {
			folder = filepath.Dir(path)
		}
		label = filepath.Join(folder, label)
	}
	classOf, err := fastaLabel(label)
	if err != nil {
		return nil, nil, err
	}
	folder := &fileFolder{files: [3][]classFile{{{path: path}}}}
	if info.IsDir() {
		if folder, err = readFileFolder(path, label, fastaSuffixes...); err != nil {
			return nil, nil, err
		}
		if len(folder.files[Train]) == 0 {
			return nil, nil, fmt.Errorf("data: %s holds no file %s", cmp.Or(folder.dirs[Train], path), strings.Join(fastaSuffixes, ", "))
		}
	}
	var list []classRecord
	for split, files := range folder.files {
		for _, f := range files {
			if label == "folder" && folder.isDivided && filepath.Dir(f.path) == folder.dirs[split] {
				return nil, nil, fmt.Errorf("label: folder: %s lies in the folder of a split; a folder for each class is needed in it", f.path)
			}
			records, err := dataset.ReadFile(f.path, dataset.ReadFASTA)
			if err != nil {
				return nil, nil, err
			}
			for i, r := range records {
				class, err := classOf(f.path, r)
				if err == nil && len(r.Bases) == 0 {
					err = fmt.Errorf("it has no letters")
				}
				if err != nil {
					return nil, nil, fmt.Errorf("%s: record %d, %q: %w", f.path, i, r.Name, err)
				}
				list = append(list, classRecord{r, f.path, class, Split(split)})
			}
		}
	}
	return list, folder, nil
}

// fastaLabel returns the function that finds the class of a record, by the setting label.
// It returns an error if label has no known form or its table cannot be read.
func fastaLabel(label string) (func(path string, r dataset.Record) (string, error), error) {
	kind, value, _ := strings.Cut(label, ":")
	switch {
	case label == "folder":
		return func(path string, _ dataset.Record) (string, error) { return filepath.Base(filepath.Dir(path)), nil }, nil
	case label == "file":
		return func(path string, _ dataset.Record) (string, error) {
			name := dataset.TrimSuffix(filepath.Base(path))
			if suffix := filepath.Ext(name); slices.Contains(fastaSuffixes, strings.ToLower(suffix)) {
				name = strings.TrimSuffix(name, suffix)
			}
			return name, nil
		}, nil
	case kind == "word":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("label: %q: word:N with N from 1 is needed", label)
		}
		return func(_ string, r dataset.Record) (string, error) {
			words := headerWords(r)
			if n > len(words) {
				return "", fmt.Errorf("its header has %d words, word %d is asked for", len(words), n)
			}
			return words[n-1], nil
		}, nil
	case kind == "key" && value != "":
		return func(_ string, r dataset.Record) (string, error) {
			for _, w := range headerWords(r) {
				if v, ok := strings.CutPrefix(strings.Trim(w, "[];,"), value+"="); ok && v != "" {
					return v, nil
				}
			}
			return "", fmt.Errorf("its header has no %s=", value)
		}, nil
	}
	comma, ok := fieldSeparator(label)
	if !ok {
		return nil, fmt.Errorf("label: %q is none of folder, file, word:N, key:NAME and the path of a table .csv or .tsv", label)
	}
	rows, err := dataset.ReadFile(label, dataset.ReadFields(comma))
	if err != nil {
		return nil, fmt.Errorf("label: %w", err)
	}
	name, err := rows.ColumnIndex("name")
	if err != nil {
		return nil, fmt.Errorf("label: %s: %w", label, err)
	}
	class, err := rows.ColumnIndex("label")
	if err != nil {
		return nil, fmt.Errorf("label: %s: %w", label, err)
	}
	classes := make(map[string]string, len(rows.Rows))
	for _, row := range rows.Rows {
		if c, ok := classes[row[name]]; ok && c != row[class] {
			return nil, fmt.Errorf("label: %s: %q has two labels, %q and %q", label, row[name], c, row[class])
		}
		classes[row[name]] = row[class]
	}
	return func(_ string, r dataset.Record) (string, error) {
		c, ok := classes[r.Name]
		if !ok {
			return "", fmt.Errorf("%s has no row of that name", label)
		}
		if c == "" {
			return "", fmt.Errorf("its label in %s is empty", label)
		}
		return c, nil
	}, nil
}

// headerWords splits a header into words at blanks and |.
func headerWords(r dataset.Record) []string {
	return strings.FieldsFunc(r.Name+" "+r.Description, func(c rune) bool { return c == '|' || c == ' ' || c == '\t' })
}

// askFASTA returns the question for the class of a record's first letters.
func askFASTA(o *settingsReader, k ModelInfo) (*Question, error) {
	letters, vocab := o.letterCodes()
	return askRecords(k.Classes, o.int("length"), letters, vocab)
}

// askRecords returns the question for the classes of all records of a FASTA file.
func askRecords(classes []string, length int, letters *[256]int32, vocab int) (*Question, error) {
	return &Question{spec: Spec{Kind: Class, Vocab: vocab, Length: length, Classes: len(classes)}, classes: classes, inputKind: "a FASTA file", readFile: func(path string) ([]Input, error) {
		records, err := dataset.ReadFile(path, dataset.ReadFASTA)
		if err != nil {
			return nil, err
		}
		var list []Input
		for i, r := range records {
			if len(r.Bases) == 0 {
				return nil, fmt.Errorf("%s: record %d, %q: it has no letters", path, i, r.Name)
			}
			var s Sample
			appendLetters(&s, r.Bases[:min(len(r.Bases), length)], letters)
			list = append(list, Input{Name: r.Name, Samples: []Sample{s}, Size: len(r.Bases)})
		}
		return list, nil
	}}, checkRange("length", length, 1, 1<<20)
}

// appendLetters appends the tokens of letters to s.
func appendLetters(s *Sample, list []byte, tokens *[256]int32) {
	for _, c := range list {
		s.Tokens = append(s.Tokens, tokens[c])
	}
}

// Spec returns the specification of the samples. Token 0 is padding.
func (t *FASTA) Spec() Spec {
	s := t.spec()
	s.Vocab = t.vocab
	return s
}

// Sample overwrites s with the letters of a record. It returns an error if the split has no
// sample i.
func (t *FASTA) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	r := &t.parts[split][i]
	appendLetters(s, r.letters, t.letters)
	s.Class = r.class
	return nil
}

// Baselines scores the commonest class, and naive Bayes over words of letters. It returns an
// error if a sample cannot be read.
func (t *FASTA) Baselines(n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) {
			if t.vocab == 6 {
				return scoreNaiveBayes("naive Bayes over 6-mers", t, n, func(s *Sample, f func([]byte)) { eachKmer(s.Tokens, kmerLength, 4, f) })
			}
			return scoreNaiveBayes("naive Bayes over 3-mers", t, n, func(s *Sample, f func([]byte)) { eachKmer(s.Tokens, 3, 28, f) })
		},
	)
}
