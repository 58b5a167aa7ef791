package task

import (
	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train/data"
)

// The contract between tasks and training.
type (
	Source         = data.Source
	WindowDrawer   = data.WindowDrawer
	WindowSource   = data.WindowSource
	ClassNamer     = data.ClassNamer
	ColumnNamer    = data.ColumnNamer
	OrderReporter  = data.OrderReporter
	LengthReporter = data.LengthReporter
	Spec           = data.Spec
	Sample         = data.Sample
	Split          = data.Split
	Kind           = data.Kind
	Metric         = data.Metric
)

// The constants of the contract.
const (
	Train, Valid, Test               = data.Train, data.Valid, data.Test
	Class, Regression, Labels        = data.Class, data.Regression, data.Labels
	Next, Trace, Level               = data.Next, data.Trace, data.Level
	Accuracy, MSE, Nats, Bits Metric = data.Accuracy, data.MSE, data.Nats, data.Bits
	Endless                          = data.Endless
)

// Baseliner is implemented by sources that can score simple methods.
type Baseliner interface {
	Source
	// Baselines scores simple methods on the first n samples of the test set, or of the validation
	// set if there is no test set. The methods learn from the first n training samples. If n is 0,
	// all samples are used, or 2000 of an endless split. Baselines returns the errors of Sample.
	Baselines(n int) ([]Baseline, error)
}

// Baselines returns the baselines of src, or nil if src is not a Baseliner.
func Baselines(src Source, n int) ([]Baseline, error) {
	if b, ok := src.(Baseliner); ok {
		return b.Baselines(n)
	}
	return nil, nil
}

// sampleValue returns element i of Values before rounding.
func sampleValue(s *Sample, i int) float64 {
	if len(s.Values64) > 0 {
		return s.Values64[i]
	}
	return float64(s.Values[i])
}

// resetSample empties s and keeps its memory.
func resetSample(s *Sample) {
	*s = Sample{Tokens: s.Tokens[:0], Types: s.Types[:0], Values: s.Values[:0], Labels: s.Labels[:0], Targets: s.Targets[:0], Values64: s.Values64[:0]}
}

// PictureSource is implemented by sources whose samples are made of pictures.
type PictureSource interface {
	Source
	// Picture returns the picture of sample i of a split as one grey image. It returns an
	// error if the split has no sample i or the picture cannot be read.
	Picture(split Split, i int) (*dataset.Images, error)
}

// Baseline is the score of a simple method by the task's metric.
type Baseline struct {
	Name    string  `json:"name"`
	Score   float64 `json:"score"`
	Learned int     `json:"learned"` // training samples that the method learned from; 0: it is a fixed rule
	Judged  int     `json:"judged"`  // samples on which it was scored
	// Error is the standard error of a mean squared error. 0: not known, or another metric.
	Error float64 `json:"standard_error,omitempty"`
	// Advice says what to do, other than using the baseline, if the baseline is as good as a
	// model; "": train longer.
	Advice string `json:"advice,omitempty"`
}

// endlessSamples is the number of samples that stands for all of an endless split in baselines.
const endlessSamples = 2000

// sampleCount returns the smaller of n and the samples of a split; n of 0 means all.
func sampleCount(s *Spec, split Split, n int) int {
	c := s.Count[split]
	switch {
	case n == 0 && c == Endless:
		return endlessSamples
	case n == 0:
		return c
	case c == Endless:
		return n
	}
	return min(n, c)
}

// randomDraws is the random stream of one sample.
type randomDraws struct {
	key rng.Key
	n   uint64
}

// newDraws returns the random stream of sample i of a split.
func newDraws(seed uint64, split Split, i int) *randomDraws {
	return &randomDraws{key: rng.New(seed).Fold(uint64(split)).Fold(uint64(i))}
}

// intn returns a random number 0 ≤ x < n.
func (d *randomDraws) intn(n int) int {
	d.n++
	return d.key.Intn(d.n, n)
}

// float returns a random number 0 ≤ x < 1.
func (d *randomDraws) float() float64 {
	d.n++
	return d.key.Float64(d.n)
}

// uniform returns a random number lo ≤ x < hi.
func (d *randomDraws) uniform(lo, hi float64) float64 { return lo + (hi-lo)*d.float() }

// chooseDistinct fills dst with distinct numbers 0 ≤ x < n in random order (Floyd's algorithm,
// then a shuffle).
func (d *randomDraws) chooseDistinct(dst []int, n int) {
	seen := make(map[int]struct{}, len(dst))
	for i := range dst {
		x := d.intn(n - len(dst) + i + 1)
		if _, ok := seen[x]; ok {
			x = n - len(dst) + i
		}
		seen[x] = struct{}{}
		dst[i] = x
	}
	for i := len(dst) - 1; i > 0; i-- {
		j := d.intn(i + 1)
		dst[i], dst[j] = dst[j], dst[i]
	}
}
