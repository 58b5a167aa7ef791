package task

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/dataset"
)

// ETT forecasts electricity transformers by the hour, as Informer does (Zhou et al. 2021): all
// columns of the next hours from all columns of the hours before. Training, validation and
// test sets are 8640, 2880 and 2880 consecutive rows. Columns are standardised by the training
// set.
type ETT struct {
	input, horizon int // hours
	columns        int
	names          []string  // of the columns
	values         []float32 // [rows, columns]
	scales         Scales    // [columns]
}

// Scales returns mean and deviation of the columns.
func (t *ETT) Scales() *Scales { return &t.scales }

// ColumnNames returns the names of the columns.
func (t *ETT) ColumnNames() []string { return slices.Clone(t.names) }

// ettRows are the rows at which the splits end.
var ettRows = [3]int{8640, 8640 + 2880, 8640 + 2*2880}

var ettSettings = []Setting{
	{"input", "96", "hours that are seen"},
	{"horizon", "96", "hours that are forecast"},
}

func openETT(o *settingsReader) (Source, error) {
	path, err := findFile(filepath.Join(o.Folder, "ett"), "ETTh1.csv", "ETTh1.csv.gz")
	if err != nil {
		return nil, err
	}
	return OpenETT(path, o.int("input"), o.int("horizon"))
}

// OpenETT reads an hourly file. It returns an error if a length is out of range, the file has
// too few rows, or a column is constant in the training set.
func OpenETT(path string, input, horizon int) (*ETT, error) {
	if err := checkRange("horizon", horizon, 1, 2880); err != nil {
		return nil, err
	}
	if err := checkRange("input", input, 1, ettRows[Train]-horizon); err != nil {
		return nil, err
	}
	table, err := dataset.ReadFile(path, dataset.ReadTable)
	if err != nil {
		return nil, err
	}
	if table.Rows() < ettRows[Test] {
		return nil, fmt.Errorf("%s: it has %d rows, %d are needed", path, table.Rows(), ettRows[Test])
	}
	t := &ETT{input: input, horizon: horizon, columns: len(table.Names), names: table.Names}
	t.values = make([]float32, ettRows[Test]*t.columns)
	for c := range t.columns {
		sum, squares := 0., 0.
		for r := range ettRows[Train] {
			sum += table.Row(r)[c]
		}
		mean := sum / float64(ettRows[Train])
		for r := range ettRows[Train] {
			squares += (table.Row(r)[c] - mean) * (table.Row(r)[c] - mean)
		}
		deviation := math.Sqrt(squares / float64(ettRows[Train]))
		if deviation == 0 {
			return nil, fmt.Errorf("%s: %s: it is %g in all of the first %d rows", path, table.Names[c], mean, ettRows[Train])
		}
		for r := range ettRows[Test] {
			t.values[r*t.columns+c] = float32((table.Row(r)[c] - mean) / deviation)
		}
		t.scales.Mean, t.scales.Deviation = append(t.scales.Mean, mean), append(t.scales.Deviation, deviation)
	}
	return t, nil
}

// Spec returns the specification of the samples. A target is [horizon, columns]. Inputs of
// the validation and test sets begin in the split before.
func (t *ETT) Spec() Spec {
	s := Spec{Name: "ett", Kind: Regression, Metric: MSE, Channels: t.columns, Length: t.input, Parts: 1, Outputs: t.horizon * t.columns}
	s.Count[Train] = ettRows[Train] - t.input - t.horizon + 1
	s.Count[Valid] = ettRows[Valid] - ettRows[Train] - t.horizon + 1
	s.Count[Test] = ettRows[Test] - ettRows[Valid] - t.horizon + 1
	return s
}

// Sample overwrites s with input [input, columns] and target [horizon, columns]. It returns
// an error if the split has no sample i.
func (t *ETT) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.checkIndex(split, i); err != nil {
		return err
	}
	s.reset()
	at := i // row of the first input hour
	if split != Train {
		at += ettRows[split-1] - t.input
	}
	s.Values = append(s.Values, t.values[at*t.columns:][:t.input*t.columns]...)
	s.Targets = append(s.Targets, t.values[(at+t.input)*t.columns:][:t.horizon*t.columns]...)
	return nil
}

// Baselines scores the mean, the last input hour repeated, and the last input day repeated.
// It returns the errors of Sample.
func (t *ETT) Baselines(n int) ([]Baseline, error) {
	before := func(period int) func(s *Sample, i int) float64 {
		return func(s *Sample, i int) float64 {
			hour, column := i/t.columns, i%t.columns
			return float64(s.Values[(t.input-period+hour%period)*t.columns+column])
		}
	}
	list := []func() (Baseline, error){
		func() (Baseline, error) { return scoreMeanTarget(t, n) },
		func() (Baseline, error) { return scoreNumbers("the last hour", t, n, 0, before(1)) },
	}
	if t.input >= 24 {
		list = append(list, func() (Baseline, error) { return scoreNumbers("the last day", t, n, 0, before(24)) })
	}
	return runBaselines(list...)
}
