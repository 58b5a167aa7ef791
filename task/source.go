package task

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/farfield-ml/farfield/dataset"
	"github.com/farfield-ml/farfield/rng"
)

// Source gives the samples of a task. A sample is a function of the task, its
// seed, the split and its number alone: whatever was asked for before, and by
// however many goroutines, which may ask at the same time.
type Source interface {
	Spec() Spec
	// Sample sets s to sample i of the split, in the memory that s has. A number
	// that the split does not have is an error.
	Sample(s *Sample, split Split, i int) error
	// Baselines are what simple means score on the first n samples of the test split,
	// or of the validation split where there is no other, having learned from the
	// first n to learn from; fewer where there are fewer. 0 stands for all, and for
	// 2000 of a split without end.
	Baselines(n int) ([]Baseline, error)
}

// WindowSource is a source whose samples are windows of something longer.
type WindowSource interface {
	Source
	// WithWindow returns the same source with windows of so many positions.
	WithWindow(length int) WindowSource
	// DrawWindow sets s to a window of that length to learn from, whose place is a
	// function of key and i.
	DrawWindow(s *Sample, length int, key rng.Key, i uint64) error
}

// ClassNamer is a source whose classes have names, in the order of their numbers; none
// where it has no classes.
type ClassNamer interface {
	Source
	ClassNames() []string
}

// OrderReporter is a source whose positions may have no order.
type OrderReporter interface {
	Source
	IsUnordered() bool
}

// PictureSource is a source whose samples are made from pictures.
type PictureSource interface {
	Source
	// Picture returns that of sample i of a split, one image of grey levels.
	Picture(split Split, i int) (*dataset.Images, error)
}

// digestSamples is how many samples of a split identify a source.
const digestSamples = 64

// Digest identifies what a source gives: a source that says so itself does, of
// others it is the SHA-256 of the specification and of up to 64 samples of each
// split, spread evenly.
func Digest(src Source) (string, error) {
	if d, ok := src.(interface{ Digest() string }); ok {
		return d.Digest(), nil
	}
	spec := src.Spec()
	h := sha256.New()
	fmt.Fprintf(h, "%+v", spec)
	var s Sample
	for split, count := range spec.Count {
		if count == Endless {
			count = digestSamples
		}
		n := min(count, digestSamples)
		for i := range n {
			if err := src.Sample(&s, Split(split), i*count/n); err != nil {
				return "", err
			}
			for _, part := range []any{s.Tokens, int64(s.Cut), s.Values, s.Class, s.Labels, s.Targets} {
				if err := binary.Write(h, binary.LittleEndian, part); err != nil {
					return "", err
				}
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Split is a part of a task's samples.
type Split int

// The splits: to learn from, to choose by, to be judged by.
const (
	Train Split = iota
	Valid
	Test
)

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

// Kind is what has to be said about a sample.
type Kind int

// The kinds of targets.
const (
	Class      Kind = iota // one class
	Regression             // numbers
	Labels                 // a class for each position, from all positions
	Next                   // the same from the positions up to it
	Trace                  // numbers for each position
	Level                  // one of 256 levels for each position, a number, from the positions up to it
)

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

// Endless is the number of samples of a split that a generator makes.
const Endless = -1

// Metric is what a task is judged by.
type Metric string

// The metrics: the share of positions or samples that are right, the mean of
// squared differences, the mean of -ln p, and of -log₂ p.
const (
	Accuracy Metric = "accuracy"
	MSE      Metric = "mean squared error"
	Nats     Metric = "nats per token"
	Bits     Metric = "bits per dimension"
)

// Spec says what the samples of a task are.
type Spec struct {
	Name     string
	Kind     Kind
	Metric   Metric
	Vocab    int    // tokens are 0 ≤ t < Vocab; 0: positions hold numbers
	Channels int    // numbers of a position where Vocab is 0
	Length   int    // most positions of a sample, of both parts together
	Parts    int    // 2: pairs of sequences
	Classes  int    // labels are 0 ≤ y < Classes
	Outputs  int    // numbers of a target: of the sample, or of a position
	Count    [3]int // samples by split: Endless, or how many
}

// Sample is one sample. What its task has not is empty.
type Sample struct {
	Tokens  []int32   // [positions]
	Cut     int       // Parts is 2: Tokens[:Cut] and Tokens[Cut:]
	Values  []float32 // [positions, Channels]
	Class   int32
	Labels  []int32   // [positions]; -1 where nothing is to be said
	Targets []float32 // [Outputs], or [positions, Outputs]
}

// reset empties s and keeps its memory.
func (s *Sample) reset() {
	*s = Sample{Tokens: s.Tokens[:0], Values: s.Values[:0], Labels: s.Labels[:0], Targets: s.Targets[:0]}
}

// IsBetter reports whether a score by the metric is better than another.
func (m Metric) IsBetter(a, b float64) bool {
	if m == Accuracy {
		return a > b
	}
	return a < b
}

// Baseline is what a simple means scores by the task's metric.
type Baseline struct {
	Name    string  `json:"name"`
	Score   float64 `json:"score"`
	Learned int     `json:"learned"` // samples that it learned from; 0: it is a rule
	Judged  int     `json:"judged"`  // samples that it was judged by
}

// checkIndex reports a split that there is not, or a number that it does not have.
func (s *Spec) checkIndex(split Split, i int) error {
	if split < Train || split > Test {
		return fmt.Errorf("%s: split is %d; there are 0 (train), 1 (valid), 2 (test)", s.Name, int(split))
	}
	if n := s.Count[split]; i < 0 || n != Endless && i >= n {
		return fmt.Errorf("%s: sample is %d, the split %v has %d", s.Name, i, split, n)
	}
	return nil
}

// JudgedSplit is the split that baselines are scored on: Test where there is one.
func (s *Spec) JudgedSplit() Split {
	if s.Count[Test] == 0 {
		return Valid
	}
	return Test
}

// endlessSamples are all samples of a split without end, where baselines learn from
// them or are judged by them.
const endlessSamples = 2000

// sampleCount returns how many of n samples the split has, and with n of 0 how many there are.
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

// randomDraws are the random numbers of one sample, in the order they are asked for.
type randomDraws struct {
	key rng.Key
	n   uint64
}

// newDraws returns those of sample i of a split.
func newDraws(seed uint64, split Split, i int) *randomDraws {
	return &randomDraws{key: rng.New(seed).Fold(uint64(split)).Fold(uint64(i))}
}

// intn returns a number 0 ≤ x < n.
func (d *randomDraws) intn(n int) int {
	d.n++
	return d.key.Intn(d.n, n)
}

// float returns a number 0 ≤ x < 1.
func (d *randomDraws) float() float64 {
	d.n++
	return d.key.Float64(d.n)
}

// uniform returns a number lo ≤ x < hi.
func (d *randomDraws) uniform(lo, hi float64) float64 { return lo + (hi-lo)*d.float() }

// chooseDistinct sets dst to different numbers 0 ≤ x < n in random order (Floyd's
// algorithm, then a shuffle).
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
