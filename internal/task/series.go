package task

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// OwnSeries classifies or regresses the user's own sequences of numbers, or sets of points.
// Each sequence is a file of rows and has its own length. The target is a class or number
// per sequence, or a label per row.
type OwnSeries struct {
	SeriesOptions
	ownData[ownSequence]
	channels int
	columns  []string // names of the channels; nil: no file has names
	namedBy  string   // first file that has names
	cut      int      // number of sequences that are cut to Length
	scales   *Scales
}

// SeriesOptions configures OpenOwnSeries.
type SeriesOptions struct {
	Ask         Kind   // Class, Regression or Labels
	Label       string // column with the label of a file in a list, or of a row in a table
	File        string // column with the files in a list
	Points      bool   // rows have no order
	Length      int    // most rows that are read from a file
	Standardise bool   // standardise targets that are numbers by the training samples
	Seed        uint64 // seed that divides the samples among the splits

	drawnSplits bool // as Options.DrawnSplits
}

// ownSequence is one sequence with its target.
type ownSequence struct {
	path     string
	values   []float32 // [rows, channels]
	values64 []float64 // [rows, channels] that values rounds; nil: values are as they are
	class    int32
	number   float32
	number64 float64 // the target that number rounds
	labels   []int32 // [rows]
}

// ownNumbers bounds the numbers that all files together may hold.
const ownNumbers = 1 << 28

var seriesSettings = []Setting{
	{"data", "", "folder with a folder of CSV, TSV or NPY files for each class (or with such folders train, valid, test); or a list of files, .csv or .tsv, with their labels; or, where each row has a label, a folder of tables (or of folders train, valid, test with tables)"},
	{"ask", "class", "class; number: of a sequence; or each: a label of every row"},
	{"label", "label", "name of the column of labels: of the list, or where each row has one, of every table"},
	{"file", "file", "name of the column of paths in the list, from the folder that it lies in"},
	{"points", "false", "true: rows are points of a set, in no order, and the model has no positions"},
	{"length", "1024", "rows of a file that are seen"},
	{"standardise", "true", "learn numbers less their mean, in deviations of the samples to learn from; their squared errors are in these, too"},
}

// seriesName is the name of the task in the catalogue.
const seriesName = "series"

func (o *settingsReader) seriesOptions() SeriesOptions {
	return SeriesOptions{Ask: o.targetKind("ask", "each"), Label: o.text("label"), File: o.text("file"),
		Points: o.bool("points"), Length: o.int("length"), Standardise: o.bool("standardise"), Seed: o.Seed, drawnSplits: o.DrawnSplits}
}

// splitter returns the division of the sequences.
func (o *SeriesOptions) splitter() splitter { return splitter{o.Seed, o.drawnSplits} }

func openOwnSeries(o *settingsReader) (Source, error) {
	s := o.seriesOptions()
	if o.err != nil {
		return nil, o.err
	}
	return openSeries(o.text("data"), s, o.ScoreOnly)
}

// askSeries returns the question about a file of rows. It returns an error if the scales
// of standardised targets are unknown.
func askSeries(o *settingsReader, k ModelInfo) (*Question, error) {
	s := o.seriesOptions()
	var spec Spec
	setTarget(&spec, s.Ask, len(k.Classes))
	if s.Ask == Regression && s.Standardise && (k.Scales == nil || len(k.Scales.Mean) != 1) {
		return nil, fmt.Errorf("scales: of the numbers they are not known; farfield train --resume writes them to the folder of the run")
	}
	return askValues(spec, k.Classes, k, s.Ask == Labels), nil
}

// sequenceSuffixes are the suffixes of files of rows.
var sequenceSuffixes = []string{".csv", ".tsv", ".npy"}

// OpenOwnSeries reads all files of a folder or of a list. Folders train, valid and test are
// the splits. Without them the seed and the file's index draw a tenth of the files for each
// of validation and test. It returns an error if a file is malformed, rows differ in width or
// in the names of their columns, there are fewer than two classes or no training samples.
func OpenOwnSeries(path string, o SeriesOptions) (*OwnSeries, error) {
	return openSeries(path, o, false)
}

// openSeries is OpenOwnSeries. With scoreOnly one class, and no training sample, is enough.
func openSeries(path string, o SeriesOptions, scoreOnly bool) (*OwnSeries, error) {
	if err := checkRange("length", o.Length, 1, 1<<24); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	t := &OwnSeries{SeriesOptions: o, ownData: ownData[ownSequence]{name: seriesName, kind: o.Ask}}
	switch {
	case info.IsDir() && o.Ask == Class:
		err = t.readClasses(path, scoreOnly)
	case info.IsDir() && o.Ask == Labels:
		err = t.readTables(path)
	case info.IsDir():
		return nil, fmt.Errorf("data: %s is a folder, which says no numbers; a list of files with a column %q is needed", path, o.Label)
	case o.Ask == Labels:
		return nil, fmt.Errorf("data: %s is a file; where each row has a label, a folder of tables with a column %q is needed", path, o.Label)
	default:
		err = t.readList(path)
	}
	if err != nil {
		return nil, err
	}
	if !t.hasSamples(scoreOnly) {
		return nil, fmt.Errorf("%s: it holds no sequences to learn from; files end in %s", path, strings.Join(sequenceSuffixes, ", "))
	}
	if o.Ask != Regression && len(t.classes) < 2 && !scoreOnly {
		return nil, fmt.Errorf("%s: %s: the number of classes is %d, 2 are needed", path, o.Label, len(t.classes))
	}
	if o.Ask == Regression && o.Standardise {
		t.standardiseTargets()
	}
	return t, nil
}

// addFile appends the sequence of a file to a split, and returns the labels of its rows.
// It returns an error if the file is malformed or its rows differ in width or in names from
// earlier files.
func (t *OwnSeries) addFile(split Split, path, label string, s ownSequence) (labels []string, err error) {
	v, err := dataset.ReadValues(path, label)
	if err != nil {
		return nil, err
	}
	if t.channels == 0 {
		t.channels = v.Columns
	}
	if v.Columns != t.channels {
		return nil, fmt.Errorf("%s: its rows have %d numbers, those of the first file %d", path, v.Columns, t.channels)
	}
	if t.columns == nil {
		t.columns, t.namedBy = v.Names, path
	}
	if err := checkColumns(v.Names, t.columns, "in "+t.namedBy); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	rows := min(v.Rows(), t.Length)
	if rows < v.Rows() {
		t.cut++
	}
	t.length = max(t.length, rows)
	s.path = path
	s.values = slices.Clone(v.Numbers[:rows*v.Columns])
	if v.Numbers64 != nil {
		s.values64 = slices.Clone(v.Numbers64[:rows*v.Columns])
	}
	if label != "" {
		labels = v.Labels[:rows]
	}
	t.parts[split] = append(t.parts[split], s)
	return labels, nil
}

// checkColumns returns an error if names and want, both present, differ. where is the place
// of want.
func checkColumns(names, want []string, where string) error {
	if names == nil || want == nil {
		return nil
	}
	for i, name := range names {
		if i >= len(want) || name != want[i] {
			list := func(names []string) string { return fmt.Sprintf("%.200s", fmt.Sprintf("%q", names)) }
			return fmt.Errorf("columns: they are %s, %s %s; number %d differs", list(names), where, list(want), i+1)
		}
	}
	return nil
}

// checkTotal adds the numbers of a split's last sequence to have. It returns an error if
// have exceeds ownNumbers.
func (t *OwnSeries) checkTotal(have *int, split Split, path string) error {
	*have += len(t.parts[split][len(t.parts[split])-1].values)
	if *have > ownNumbers {
		return fmt.Errorf("%s: with it there are %d numbers, at most %d are read; a smaller length keeps less of each file", path, *have, ownNumbers)
	}
	return nil
}

// readClasses reads a folder with one folder of files per class.
func (t *OwnSeries) readClasses(root string, scoreOnly bool) error {
	c, err := readClassFolder(root, t.splitter(), scoreOnly, sequenceSuffixes...)
	if err != nil {
		return err
	}
	t.classes, t.ordered, t.ignored, t.missing = c.classes, true, c.ignored, c.checkTraining()
	have := 0
	for split, files := range c.files {
		for _, f := range files {
			if _, err := t.addFile(Split(split), f.path, "", ownSequence{class: f.class}); err != nil {
				return err
			}
			if err := t.checkTotal(&have, Split(split), f.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// readTables reads a folder of tables whose rows have labels, or such folders train, valid and
// test.
func (t *OwnSeries) readTables(root string) error {
	folder, err := readFileFolder(root, "", sequenceSuffixes[:2]...)
	if err != nil {
		return err
	}
	files := folder.files
	t.ignored = folder.ignored
	if !folder.isDivided {
		files = [3][]classFile{}
		all := folder.files[Train]
		for i, split := range t.splitter().split(make([]int32, len(all))) {
			files[split] = append(files[split], all[i])
		}
	}
	have, number := 0, map[string]int32{}
	for split, part := range files {
		for _, f := range part {
			labels, err := t.addFile(Split(split), f.path, t.Label, ownSequence{})
			if err != nil {
				return err
			}
			s := &t.parts[split][len(t.parts[split])-1]
			for row, name := range labels {
				if strings.TrimSpace(name) == "" {
					return fmt.Errorf("%s: row %d: %s is empty", f.path, row, t.Label)
				}
				if _, ok := number[name]; !ok {
					if folder.isDivided && Split(split) != Train {
						return fmt.Errorf("%s: %s: class %q is not among those to learn from, %.200q", f.path, t.Label, name, t.classes)
					}
					name = strings.Clone(name) // a field of a table holds all its text
					number[name] = int32(len(t.classes))
					t.classes = append(t.classes, name)
				}
				s.labels = append(s.labels, number[name])
			}
			if len(t.classes) > 1<<16 {
				return fmt.Errorf("%s: %s: there are %d classes, at most %d are read", f.path, t.Label, len(t.classes), 1<<16)
			}
			if err := t.checkTotal(&have, Split(split), f.path); err != nil {
				return err
			}
		}
	}
	// Renumber the classes by the order of their names.
	found := t.classes
	var index map[string]int32
	t.classes, index = sortClasses(slices.Clone(found))
	for _, part := range t.parts {
		for _, s := range part {
			for k, y := range s.labels {
				s.labels[k] = index[found[y]]
			}
		}
	}
	t.setMissing("tables", func(s *ownSequence, seen []bool) {
		for _, y := range s.labels {
			seen[y] = true
		}
	})
	return nil
}

// readList reads the files that a table lists, with their targets.
func (t *OwnSeries) readList(path string) error {
	comma, ok := fieldSeparator(path)
	if !ok {
		return fmt.Errorf("data: %s is no folder, and as a list of files its name ends in .csv or .tsv, plain, .gz or .zst", path)
	}
	f, err := dataset.ReadFile(path, dataset.ReadFields(comma))
	if err != nil {
		return err
	}
	file, err := f.ColumnIndex(t.File)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	label, err := f.ColumnIndex(t.Label)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var index map[string]int32 // of the classes
	if t.Ask == Class {
		for i, row := range f.Rows {
			if strings.TrimSpace(row[label]) == "" {
				return fmt.Errorf("%s: row %d: %s is empty", path, i, t.Label)
			}
			t.classes = append(t.classes, row[label])
		}
		if t.classes, index = sortClasses(t.classes); len(t.classes) > 1<<16 {
			return fmt.Errorf("%s: %s: there are %d classes, at most %d are read; for numbers set ask=number", path, t.Label, len(t.classes), 1<<16)
		}
		for i, name := range t.classes {
			t.classes[i] = strings.Clone(name) // a field of a table holds all its text
		}
	}
	strata := make([]int32, len(f.Rows))
	for i, row := range f.Rows {
		if t.Ask == Class {
			strata[i] = index[row[label]]
		}
	}
	splits := t.splitter().split(strata)
	have := 0
	var numbers []float64
	for i, row := range f.Rows {
		s := ownSequence{}
		if t.Ask == Class {
			s.class = strata[i]
		} else {
			x, err := strconv.ParseFloat(strings.TrimSpace(row[label]), 32)
			if err != nil || x-x != 0 {
				return fmt.Errorf("%s: row %d: %s is %.40q, a finite number is needed", path, i, t.Label, row[label])
			}
			s.number = float32(x)
			if s.number64, err = strconv.ParseFloat(strings.TrimSpace(row[label]), 64); err != nil {
				return fmt.Errorf("%s: row %d: %s: %w", path, i, t.Label, err)
			}
			numbers = append(numbers, s.number64)
		}
		name := row[file]
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
		}
		split := splits[i]
		if _, err := t.addFile(split, name, "", s); err != nil {
			return fmt.Errorf("%s: row %d: %w", path, i, err)
		}
		if err := t.checkTotal(&have, split, name); err != nil {
			return err
		}
	}
	if t.Ask == Class {
		t.setMissing("files", func(s *ownSequence, seen []bool) { seen[s.class] = true })
	}
	switch err := checkRounding(numbers); {
	case err != nil && !t.Standardise:
		return fmt.Errorf("%s: %s: %w", path, t.Label, err)
	case err == nil:
		for _, part := range t.parts {
			for i := range part {
				part[i].number64 = float64(part[i].number)
			}
		}
	}
	return nil
}

// checkRounding returns an error if float32 changes a number by more than a thousandth of the
// range of all numbers.
func checkRounding(numbers []float64) error {
	if len(numbers) == 0 {
		return nil
	}
	low, high := slices.Min(numbers), slices.Max(numbers)
	for _, x := range numbers {
		if y := float64(float32(x)); low < high && math.Abs(x-y) > (high-low)/1000 {
			return fmt.Errorf("float32 rounds %v to %v, by more than a thousandth of the range, %v to %v; subtract a number from all", x, y, low, high)
		}
	}
	return nil
}

// standardiseTargets scales all number targets by mean and deviation of the training
// samples, or of all where there are none. It reads number64.
func (t *OwnSeries) standardiseTargets() {
	mean, squares := 0., 0.
	samples := t.parts[Train]
	if len(samples) == 0 {
		samples = slices.Concat(t.parts[:]...)
	}
	n := float64(len(samples))
	for _, s := range samples {
		mean += s.number64 / n
	}
	for _, s := range samples {
		squares += (s.number64 - mean) * (s.number64 - mean) / n
	}
	deviation := math.Sqrt(squares)
	if first := samples[0].number64; !slices.ContainsFunc(samples, func(s ownSequence) bool { return s.number64 != first }) {
		mean, deviation = first, 0 // a sum of n·(first/n) may differ
	}
	if !(deviation > 0) {
		deviation = 1
	}
	t.scales = &Scales{[]float64{mean}, []float64{deviation}}
	for _, part := range t.parts {
		for i := range part {
			part[i].number = float32((part[i].number64 - mean) / deviation)
		}
	}
}

// CountTruncated returns the number of sequences that are cut, and the number of all sequences.
func (t *OwnSeries) CountTruncated() (cut, all int) {
	return t.cut, len(t.parts[Train]) + len(t.parts[Valid]) + len(t.parts[Test])
}

// ColumnNames returns the names of the channels, or nil if no file has names.
func (t *OwnSeries) ColumnNames() []string { return slices.Clone(t.columns) }

// Scales returns means and deviations of the targets, or nil if the targets are not scaled.
func (t *OwnSeries) Scales() *Scales { return t.scales }

// IsUnordered reports whether the rows of a sequence have no order.
func (t *OwnSeries) IsUnordered() bool { return t.Points }

// Spec returns the specification of the samples.
func (t *OwnSeries) Spec() Spec {
	s := t.spec()
	s.Channels = t.channels
	return s
}

// Sample overwrites s with a sequence. It returns an error if the split has no sample i.
func (t *OwnSeries) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	from := &t.parts[split][i]
	s.Values, s.Values64 = append(s.Values, from.values...), append(s.Values64, from.values64...)
	s.Class = from.class
	s.Labels = append(s.Labels, from.labels...)
	if t.Ask == Regression {
		s.Targets = append(s.Targets, from.number)
	}
	return nil
}

// Baselines scores simple methods by kind of target. Classes: the commonest, and nearest mean
// of statistics. Numbers: the mean, and linear regression on statistics. Labels: the
// commonest, and nearest mean row. It returns an error if a sample cannot be read.
func (t *OwnSeries) Baselines(n int) ([]Baseline, error) {
	switch t.Ask {
	case Regression:
		list := []func() (Baseline, error){func() (Baseline, error) { return scoreMeanTarget(t, n) }}
		if statisticsPerChannel*t.channels <= maxStatistics {
			list = append(list, func() (Baseline, error) { return scoreRegression(t, n) })
		}
		return runBaselines(list...)
	case Labels:
		return runBaselines(
			func() (Baseline, error) { return scoreMajorityLabel(t, n) },
			func() (Baseline, error) { return scoreNearestRow(t, n) },
		)
	}
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) { return scoreNearestStatistics(t, n) },
	)
}
