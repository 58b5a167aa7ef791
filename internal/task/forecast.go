package task

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Forecast predicts rows of a table of the user, whose rows follow each other in time: some columns
// of the next horizon rows, from all columns of the window rows before them. The first eight tenths
// of the rows are the training set, the next tenth the validation set and the last the test set;
// the input of a sample may begin in the set before. A target is the difference from the last value
// of the input, divided by the standard deviation of these differences in the training set.
type Forecast struct {
	ForecastOptions
	columns []string
	values  []float64 // [rows, columns]
	targets []int     // columns that are forecast
	ends    [3]int    // rows at which the splits end
	scales  Scales    // [targets]; means are 0, since targets are differences
	season  int       // number of rows after which values repeat best; 0: none is known
}

// ForecastOptions configures OpenForecast.
type ForecastOptions struct {
	Target  string // columns to forecast, separated by commas; "": all
	Time    string // column of times, whose values are not read; "": the first column if it does not hold numbers
	Window  int    // rows of an input
	Horizon int    // rows that are forecast
}

const forecastName = "forecast"

var forecastSettings = []Setting{
	{"data", "", "table .csv or .tsv, plain, gzip or zstd, with named columns of numbers; its rows follow each other in time"},
	{"target", "", "name of the column that is forecast, or several with commas between them; empty for all"},
	{"time", "", "name of the column of times, which is not read; empty for the first column if it holds no numbers"},
	{"window", "48", "rows that are seen"},
	{"horizon", "12", "rows that are forecast"},
}

func (o *settingsReader) forecastOptions() ForecastOptions {
	return ForecastOptions{Target: o.text("target"), Time: o.text("time"), Window: o.int("window"), Horizon: o.int("horizon")}
}

func openForecast(o *settingsReader) (Source, error) {
	f := o.forecastOptions()
	if o.err != nil {
		return nil, o.err
	}
	return OpenForecast(o.text("data"), f)
}

// OpenForecast reads a table. It returns an error if the table is malformed, a column of the
// options is missing, times are not in order, or a part of the table is too short for a window and
// a horizon.
func OpenForecast(path string, o ForecastOptions) (*Forecast, error) {
	if err := checkRange("window", o.Window, 1, 1<<20); err != nil {
		return nil, err
	}
	if err := checkRange("horizon", o.Horizon, 1, 1<<16); err != nil {
		return nil, err
	}
	table, err := readSeriesTable(path, o.Time)
	if err != nil {
		return nil, err
	}
	n := table.Rows()
	t := &Forecast{ForecastOptions: o, columns: table.Names, values: table.Values, ends: [3]int{n - 2*(n/10), n - n/10, n}}
	if t.targets, err = targetColumns(o.Target, t.columns); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if n/10 < o.Horizon || t.ends[Train] < o.Window+o.Horizon {
		return nil, fmt.Errorf("%s: it has %d rows; a tenth of them must hold the horizon, %d rows, and eight tenths a window of %d and the horizon", path, n, o.Horizon, o.Window)
	}
	for _, c := range t.targets {
		var all moments
		for r := range t.ends[Train] {
			all.add(t.at(r, c))
		}
		deviation := math.Sqrt(all.variance())
		if !(deviation > 0) {
			return nil, fmt.Errorf("%s: %s: it is %g in all of the first %d rows, there is nothing to learn", path, t.columns[c], t.at(0, c), t.ends[Train])
		}
		t.scales.Mean, t.scales.Deviation = append(t.scales.Mean, 0), append(t.scales.Deviation, deviation)
	}
	t.season = t.findSeason()
	return t, nil
}

// readSeriesTable reads a table of numbers whose rows follow each other in time.
func readSeriesTable(path, time string) (*dataset.Table, error) {
	comma, ok := fieldSeparator(path)
	if !ok {
		return nil, fmt.Errorf("data: %q is no table: its name ends in .csv or .tsv, plain, .gz or .zst", path)
	}
	table, err := dataset.ReadFile(path, dataset.ReadTable(comma, time))
	if err != nil {
		return nil, err
	}
	if n := len(table.Values); n > ownNumbers {
		return nil, fmt.Errorf("%s: it holds %d numbers, at most %d are read", path, n, ownNumbers)
	}
	if row, ok := table.FindDisorder(); ok {
		return nil, fmt.Errorf("%s: %s: row %d below the header has %.40q after %.40q; rows must follow each other in time", path, table.Index, row+1, table.Labels[row], table.Labels[row-1])
	}
	return table, nil
}

// targetColumns returns the numbers of the columns with the names in a list; "": all.
func targetColumns(list string, columns []string) (targets []int, err error) {
	if list == "" {
		for c := range columns {
			targets = append(targets, c)
		}
		return targets, nil
	}
	names := strings.Split(list, ",")
	if slices.Contains(columns, list) { // a name may have a comma
		names = []string{list}
	}
	for _, name := range names {
		c, err := (&dataset.Fields{Names: columns}).ColumnIndex(strings.TrimSpace(name))
		if err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		if slices.Contains(targets, c) {
			return nil, fmt.Errorf("target: column %q is named twice", name)
		}
		targets = append(targets, c)
	}
	return targets, nil
}

// at returns a number of the table.
func (t *Forecast) at(row, column int) float64 { return t.values[row*len(t.columns)+column] }

// findSeason returns the number of rows, up to a window, after which the targets of the training set
// repeat best; 0 if values only drift apart. Neighbouring rows are alike in most series, so lags count
// from the first at which the difference falls again.
func (t *Forecast) findSeason() int {
	const most = 1 << 26 // differences
	rows := min(t.ends[Train], most/(t.Window*len(t.targets))+t.Window+1)
	best, least, before, rises, falls := 0, math.Inf(1), math.Inf(1), false, false
	for lag := 1; lag <= min(t.Window, rows-1); lag++ {
		sum := 0.
		for k, c := range t.targets {
			for r := lag; r < rows; r++ {
				d := (t.at(r, c) - t.at(r-lag, c)) / t.scales.Deviation[k]
				sum += d * d
			}
		}
		mean := sum / float64(rows-lag)
		falls = falls || rises && mean < before
		rises = rises || mean > before
		if before = mean; falls && mean < least {
			best, least = lag, mean
		}
	}
	return best
}

// ColumnNames returns the names of the columns.
func (t *Forecast) ColumnNames() []string { return slices.Clone(t.columns) }

// Scales returns the standard deviations by which targets are divided.
func (t *Forecast) Scales() *Scales { return &t.scales }

// Spec returns the specification of the samples. A target is [horizon, targets].
func (t *Forecast) Spec() Spec {
	s := Spec{Name: forecastName, Kind: Regression, Metric: MSE, Channels: len(t.columns), Length: t.Window, Parts: 1, Outputs: t.Horizon * len(t.targets)}
	begin := t.Window
	for split, end := range t.ends {
		s.Count[split] = end - begin - t.Horizon + 1
		begin = end
	}
	return s
}

// firstTarget returns the row after the input of a sample.
func (t *Forecast) firstTarget(split Split, i int) int {
	if split == Train {
		return t.Window + i
	}
	return t.ends[split-1] + i
}

// Sample overwrites s with input [window, columns] and target [horizon, targets]. It returns an
// error if the split has no sample i.
func (t *Forecast) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	row := t.firstTarget(split, i)
	setRows(s, t.values[(row-t.Window)*len(t.columns):row*len(t.columns)])
	for r := row; r < row+t.Horizon; r++ {
		for k, c := range t.targets {
			s.Targets = append(s.Targets, float32((t.at(r, c)-t.at(row-1, c))/t.scales.Deviation[k]))
		}
	}
	return nil
}

// setRows appends numbers of 64 bits to the input.
func setRows(s *Sample, values []float64) {
	for _, x := range values {
		s.Values = append(s.Values, float32(x))
	}
	s.Values64 = append(s.Values64, values...)
}

// regressionWindow bounds the values of a column that the linear baseline reads.
const regressionWindow = 128

// Baselines scores the last value, the last season, and for each target a linear regression on its
// last values. It returns the errors of Sample.
func (t *Forecast) Baselines(n int) ([]Baseline, error) {
	list := []func() (Baseline, error){
		func() (Baseline, error) {
			return scoreNumbers("the last value", t, n, 0, func(*Sample, int) float64 { return 0 })
		},
	}
	// before returns a value of a target, back rows before the end of the input, less the last value.
	before := func(s *Sample, k, back int) float64 {
		column := func(r int) float64 { return s.Values64[r*len(t.columns)+t.targets[k]] }
		return (column(t.Window-back) - column(t.Window-1)) / t.scales.Deviation[k]
	}
	if p := t.season; p > 0 {
		list = append(list, func() (Baseline, error) {
			return scoreNumbers(fmt.Sprintf("the last season of %d rows", p), t, n, t.ends[Train], func(s *Sample, i int) float64 {
				h, k := i/len(t.targets), i%len(t.targets)
				return before(s, k, p-h%p)
			})
		})
	}
	list = append(list, func() (Baseline, error) { return t.scoreLinear(n, before) })
	return runBaselines(list...)
}

// scoreLinear scores linear regressions of each target on its last values.
func (t *Forecast) scoreLinear(n int, before func(s *Sample, k, back int) float64) (Baseline, error) {
	width, targets := min(t.Window, regressionWindow), len(t.targets) // the last value is 0; in its place stands 1
	features := func(x []float64, s *Sample, k int) {
		x[0] = 1
		for back := 2; back <= width; back++ {
			x[back-1] = before(s, k, back)
		}
	}
	gram, sums := make([][]float64, targets), make([][]float64, targets) // [width, width], [horizon, width]
	for k := range targets {
		gram[k], sums[k] = make([]float64, width*width), make([]float64, t.Horizon*width)
	}
	x := make([]float64, width)
	learned, err := eachSample(t, Train, n, func(s *Sample) {
		for k := range targets {
			features(x, s, k)
			for i, a := range x {
				for j := range i + 1 {
					gram[k][i*width+j] += a * x[j]
				}
			}
			for h := range t.Horizon {
				y, sum := float64(s.Targets[h*targets+k]), sums[k][h*width:][:width]
				for i, a := range x {
					sum[i] += a * y
				}
			}
		}
	})
	if err != nil {
		return Baseline{}, err
	}
	for k := range targets {
		for i := range width {
			gram[k][i*width+i] += ridge * float64(learned)
		}
		for h := range t.Horizon {
			if err := solveCholesky(slices.Clone(gram[k]), sums[k][h*width:][:width]); err != nil {
				return Baseline{}, err
			}
		}
	}
	return scoreNumbers("linear regression on the last values", t, n, learned, func(s *Sample, i int) float64 {
		h, k := i/targets, i%targets
		if i < targets || targets > 1 {
			features(x, s, k)
		}
		y := 0.
		for j, a := range sums[k][h*width:][:width] {
			y += a * x[j]
		}
		return y
	})
}

// askForecast returns the question for the rows after the last one of a table.
func askForecast(o *settingsReader, k ModelInfo) (*Question, error) {
	f := o.forecastOptions()
	if o.err != nil {
		return nil, o.err
	}
	if k.Scales == nil || len(k.Scales.Mean) == 0 || f.Horizon*len(k.Scales.Mean) != k.Outputs {
		return nil, fmt.Errorf("scales: of %d rows that are forecast and %d outputs they are not known; farfield train --resume writes them to the folder of the run", f.Horizon, k.Outputs)
	}
	spec := Spec{Kind: Regression, Channels: k.Channels, Length: f.Window, Outputs: k.Outputs}
	return &Question{spec: spec, inputKind: fmt.Sprintf("a CSV or TSV file of %d or more rows with the columns of the data", f.Window), readFile: func(path string) ([]Input, error) {
		table, err := readSeriesTable(path, f.Time)
		if err != nil {
			return nil, err
		}
		if len(table.Names) != k.Channels || table.Rows() < f.Window {
			return nil, fmt.Errorf("%s: it has %d rows of %d columns, %d or more of %d are needed", filepath.Clean(path), table.Rows(), len(table.Names), f.Window, k.Channels)
		}
		if err := checkColumns(table.Names, k.Columns, "the model learned from"); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		targets, err := targetColumns(f.Target, table.Names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var g Input
		var s Sample
		setRows(&s, table.Values[(table.Rows()-f.Window)*k.Channels:])
		for _, c := range targets {
			g.Last = append(g.Last, table.Row(table.Rows() - 1)[c])
		}
		g.Samples = []Sample{s}
		return []Input{g}, nil
	}}, nil
}
