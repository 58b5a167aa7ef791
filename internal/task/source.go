package task

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/rng"
)

// Source provides the samples of a task. A sample is a function of the task, its seed, the split
// and its index alone. A Source is safe for concurrent use.
type Source interface {
	// Spec returns the specification of the samples.
	Spec() Spec
	// Sample overwrites s with sample i of the split and reuses its memory. It returns an
	// error if the split has no sample i.
	Sample(s *Sample, split Split, i int) error
	// Baselines scores simple methods on the first n samples of the test set, or of the
	// validation set if there is no test set. They learn from the first n training samples.
	// n of 0 means all, or 2000 of an endless split. It returns the errors of Sample.
	Baselines(n int) ([]Baseline, error)
}

// WindowDrawer is a source that draws training samples of a wanted length.
type WindowDrawer interface {
	Source
	// DrawWindow overwrites s with a training sample of length positions, or up to length
	// where samples differ in length, a function of key and i. It returns an error if none
	// has this length.
	DrawWindow(s *Sample, length int, key rng.Key, i uint64) error
}

// WindowSource is a source whose samples are windows of a longer sequence.
type WindowSource interface {
	WindowDrawer
	// WithWindow returns the same source with windows of length positions.
	WithWindow(length int) WindowSource
}

// ClassNamer is a source whose classes have names.
type ClassNamer interface {
	Source
	// ClassNames returns the names in the order of the class numbers; nil without classes.
	ClassNames() []string
}

// ColumnNamer is a source whose channels may have names.
type ColumnNamer interface {
	Source
	// ColumnNames returns the names in the order of the channels; nil without names.
	ColumnNames() []string
}

// OrderReporter is a source whose positions may have no order.
type OrderReporter interface {
	Source
	// IsUnordered reports whether positions have no order.
	IsUnordered() bool
}

// PictureSource is a source whose samples come from pictures.
type PictureSource interface {
	Source
	// Picture returns the picture of sample i of a split as one grey image. It returns an
	// error if the split has no sample i or the picture cannot be read.
	Picture(split Split, i int) (*dataset.Images, error)
}

// Split is one of the three parts of a task's samples.
type Split int

// The training, validation and test sets.
const (
	Train Split = iota
	Valid
	Test
)

// String returns the name of the split.
func (s Split) String() string {
	switch s {
	case Train:
		return "train"
	case Valid:
		return "valid"
	case Test:
		return "test"
	}
	return fmt.Sprintf("Split(%d)", int(s))
}

// Kind is the kind of target that a sample has.
type Kind int

// The kinds of targets.
const (
	Class      Kind = iota // one class per sample
	Regression             // numbers per sample
	Labels                 // a class per position, from all positions
	Next                   // a class per position, causal
	Trace                  // numbers per position
	Level                  // one of 256 numeric levels per position, causal
)

// String describes the kind.
func (k Kind) String() string {
	switch k {
	case Class:
		return "class"
	case Regression:
		return "numbers"
	case Labels:
		return "label of each position"
	case Next:
		return "next token"
	case Trace:
		return "numbers of each position"
	case Level:
		return "next level"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Endless is the sample count of a generated split.
const Endless = -1

// Metric is the measure by which a task is scored.
type Metric string

// The metrics: share of correct positions or samples, mean squared error, mean of -ln p, and
// mean of -log₂ p.
const (
	Accuracy Metric = "accuracy"
	MSE      Metric = "mean squared error"
	Nats     Metric = "nats per token"
	Bits     Metric = "bits per dimension"
)

// Spec is the specification of a task's samples.
type Spec struct {
	Name     string
	Kind     Kind
	Metric   Metric
	Vocab    int    // tokens are 0 ≤ t < Vocab; 0: positions hold numbers
	Channels int    // numbers of a position where Vocab is 0
	Length   int    // maximum positions of a sample, both parts together
	Parts    int    // 2: pairs of sequences; 0 and 1: single sequences
	Classes  int    // labels are 0 ≤ y < Classes
	Outputs  int    // numbers of a target, per sample or per position
	Count    [3]int // samples by split; may be Endless
}

// Sample is one sample. Fields that its task does not use are empty.
type Sample struct {
	Tokens   []int32   // [positions]
	Cut      int       // start of the second part if Parts is 2
	Types    []int32   // [positions] of tokens, of a pair that is one sequence; empty: all 0
	Values   []float32 // [positions, Channels]
	Class    int32
	Labels   []int32   // [positions]; -1: no label
	Targets  []float32 // [Outputs], or [positions, Outputs]
	values64 []float64 // [positions, Channels] that Values rounds; empty: Values are as they are
}

// value returns element i of Values before rounding.
func (s *Sample) value(i int) float64 {
	if len(s.values64) > 0 {
		return s.values64[i]
	}
	return float64(s.Values[i])
}

// reset empties s and keeps its memory.
func (s *Sample) reset() {
	*s = Sample{Tokens: s.Tokens[:0], Types: s.Types[:0], Values: s.Values[:0], Labels: s.Labels[:0], Targets: s.Targets[:0], values64: s.values64[:0]}
}

// IsBetter reports whether score a is better than score b.
func (m Metric) IsBetter(a, b float64) bool {
	if m == Accuracy {
		return a > b
	}
	return a < b
}

// Baseline is the score of a simple method by the task's metric.
type Baseline struct {
	Name    string  `json:"name"`
	Score   float64 `json:"score"`
	Learned int     `json:"learned"` // training samples used; 0: a fixed rule
	Judged  int     `json:"judged"`  // samples scored
	// Error is the standard error of a mean squared error; 0: not known, and of other metrics.
	Error float64 `json:"standard_error,omitempty"`
	// Advice is what to do in place of using the baseline where the baseline is as good
	// as a model; "": train longer.
	Advice string `json:"advice,omitempty"`
}

// checkIndex returns an error if the split is unknown or has no sample i.
func (s *Spec) checkIndex(split Split, i int) error {
	if split < Train || split > Test {
		return fmt.Errorf("%s: split is %d; there are 0 (train), 1 (valid), 2 (test)", s.Name, int(split))
	}
	if n := s.Count[split]; i < 0 || n != Endless && i >= n {
		return fmt.Errorf("%s: sample is %d, the split %v has %d", s.Name, i, split, n)
	}
	return nil
}

// JudgedSplit returns the split that results are scored on: Test, or Valid if Test is empty.
func (s *Spec) JudgedSplit() Split {
	if s.Count[Test] == 0 {
		return Valid
	}
	return Test
}

// endlessSamples is the number of samples that stands for all of an endless split in baselines.
const endlessSamples = 2000

// sampleCount returns the smaller of n and the split's samples; n of 0 means all.
func (s *Spec) sampleCount(split Split, n int) int {
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
