package data

import (
	"fmt"
	"math"
	"slices"
)

// Spec describes the samples of a task.
type Spec struct {
	Name     string
	Kind     Kind
	Metric   Metric
	Vocab    int    // tokens are 0 ≤ t < Vocab; 0: positions hold numbers
	Channels int    // numbers at each position, if Vocab is 0
	Length   int    // most positions in a sample, both parts together
	Parts    int    // 2: pairs of sequences; 0 and 1: single sequences
	Classes  int    // labels are 0 ≤ y < Classes
	Outputs  int    // numbers in a target, for each sample or position
	Count    [3]int // number of samples in each split; may be Endless
}

// Sample is one sample. A field that the specification does not use stays empty.
type Sample struct {
	Tokens  []int32   // [positions]
	Cut     int       // start of the second part, if Parts is 2
	Types   []int32   // [positions] types of the tokens, if a pair is one sequence; empty: all 0
	Values  []float32 // [positions, Channels]
	Class   int32
	Labels  []int32   // [positions]; -1: the position has no label and is not counted
	Targets []float32 // [Outputs], or [positions, Outputs]
	// Values64 [positions, Channels] are the exact numbers that Values rounds, from which means
	// and deviations are computed; empty: Values are exact.
	Values64 []float64
}

// IsBetter reports whether score a is better than score b.
func (m Metric) IsBetter(a, b float64) bool {
	if m == Accuracy {
		return a > b
	}
	return a < b
}

// CheckIndex returns an error if the split is unknown or has no sample i.
func (s *Spec) CheckIndex(split Split, i int) error {
	if split < Train || split > Test {
		return fmt.Errorf("%s: split is %d; there are 0 (train), 1 (valid), 2 (test)", s.Name, int(split))
	}
	if n := s.Count[split]; i < 0 || n != Endless && i >= n {
		return fmt.Errorf("%s: sample is %d, the split %v has %d", s.Name, i, split, n)
	}
	return nil
}

// JudgedSplit returns the split by which results are judged: Test, or Valid if Test is empty.
func (s *Spec) JudgedSplit() Split {
	if s.Count[Test] == 0 {
		return Valid
	}
	return Test
}

// metrics lists the metrics of each kind of target.
var metrics = map[Kind][]Metric{
	Class:      {Accuracy},
	Regression: {MSE},
	Labels:     {Accuracy, Nats, Bits},
	Next:       {Accuracy, Nats, Bits},
	Trace:      {MSE},
	Level:      {Bits, Nats},
}

// maxSize bounds every size of a Spec: 2⁴⁰, or what an int holds.
const maxSize = min(1<<40, math.MaxInt)

// Sequences returns the number of sequences of a sample: Parts, where 0 means 1.
func (s *Spec) Sequences() int { return max(s.Parts, 1) }

// hasClasses reports whether targets are classes, and not numbers.
func (s *Spec) hasClasses() bool { return s.Kind == Class || s.Kind == Labels || s.Kind == Next }

// Check returns an error that names the first field of s with which no model can be trained.
func (s *Spec) Check() error {
	known, is := metrics[s.Kind]
	switch {
	case !is:
		return fmt.Errorf("task %s: asks for %v, which no model says", s.Name, s.Kind)
	case !slices.Contains(known, s.Metric):
		return fmt.Errorf("task %s: metric is %q, a %v has one of %q", s.Name, s.Metric, s.Kind, known)
	case s.Parts < 0 || s.Parts > 2:
		return fmt.Errorf("task %s: parts is %d, needs 1 or 2", s.Name, s.Parts)
	case s.Vocab > 0 && s.Channels > 0 || s.Vocab == 0 && s.Channels == 0:
		return fmt.Errorf("task %s: vocab is %d and channels %d, needs one of them above 0 and the other 0", s.Name, s.Vocab, s.Channels)
	}
	for _, f := range []struct {
		name        string
		n, from, to int
	}{
		{"vocab", s.Vocab, 0, maxSize},
		{"channels", s.Channels, 0, maxSize},
		{"length", s.Length, s.Sequences(), maxSize},
		{"train samples", s.Count[Train], Endless, maxSize},
		{"validation samples", s.Count[Valid], Endless, maxSize},
		{"test samples", s.Count[Test], Endless, maxSize},
	} {
		if f.n < f.from || f.n > f.to {
			return fmt.Errorf("task %s: %s is %d, needs to be from %d to %d", s.Name, f.name, f.n, f.from, f.to)
		}
	}
	given, other, field, unused := s.Classes, s.Outputs, "classes", "outputs"
	if !s.hasClasses() {
		given, other, field, unused = s.Outputs, s.Classes, "outputs", "classes"
	}
	if given < 1 || given > maxSize || other != 0 {
		return fmt.Errorf("task %s: %s is %d and %s %d, a %v needs 1 or more and 0", s.Name, field, given, unused, other, s.Kind)
	}
	return nil
}

// Positions returns the number of positions in x, or an error if s does not allow it.
func (s *Spec) Positions(x *Sample) (n int, err error) {
	n = len(x.Tokens)
	if s.Vocab == 0 {
		if len(x.Values)%s.Channels != 0 {
			return 0, fmt.Errorf("task %s: values: has %d numbers, not a multiple of %d channels", s.Name, len(x.Values), s.Channels)
		}
		n = len(x.Values) / s.Channels
	}
	if n < 1 || n > s.Length {
		return 0, fmt.Errorf("task %s: a sample has %d positions, needs 1 to %d", s.Name, n, s.Length)
	}
	return n, nil
}

// CheckSample returns an error that names the first field of x that s does not allow. Check must
// have accepted s.
func (s *Spec) CheckSample(x *Sample) error {
	n, err := s.Positions(x)
	switch {
	case err != nil:
		return err
	case s.Parts == 2 && (x.Cut < 0 || x.Cut > n || max(x.Cut, n-x.Cut) > s.Length/2):
		return fmt.Errorf("task %s: cut is %d of %d positions, each part has at most %d", s.Name, x.Cut, n, s.Length/2)
	case len(x.Types) != 0 && len(x.Types) != n:
		return fmt.Errorf("task %s: types: has %d elements, the sample %d positions", s.Name, len(x.Types), n)
	}
	if s.Vocab > 0 {
		if err := s.checkRange("tokens", x.Tokens, 0, s.Vocab); err != nil {
			return err
		}
	}
	labels, targets := 0, 0
	switch s.Kind {
	case Class:
		if x.Class < 0 || int(x.Class) >= s.Classes {
			return fmt.Errorf("task %s: class is %d, needs to be from 0 to %d", s.Name, x.Class, s.Classes-1)
		}
	case Labels, Next:
		labels = n
	case Regression:
		targets = s.Outputs
	case Trace, Level:
		targets = n * s.Outputs
	}
	switch {
	case labels > 0 && len(x.Labels) != labels:
		return fmt.Errorf("task %s: labels: has %d elements, needs %d", s.Name, len(x.Labels), labels)
	case targets > 0 && len(x.Targets) != targets:
		return fmt.Errorf("task %s: targets: has %d numbers, needs %d", s.Name, len(x.Targets), targets)
	case labels > 0:
		return s.checkRange("labels", x.Labels, -1, s.Classes)
	}
	return nil
}

// checkRange returns an error for the first element of list that is not from lo to n-1.
func (s *Spec) checkRange(name string, list []int32, lo, n int) error {
	for i, x := range list {
		if int(x) < lo || int(x) >= n {
			return fmt.Errorf("task %s: %s: element %d is %d, needs to be from %d to %d", s.Name, name, i, x, lo, n-1)
		}
	}
	return nil
}
