package data

import (
	"fmt"

	"github.com/farfield-ml/farfield/rng"
)

// Source provides samples. A sample depends on its split and its index alone. A Source is safe
// for concurrent use.
type Source interface {
	// Spec returns the specification of the samples.
	Spec() Spec
	// Sample overwrites s with sample i of the split and reuses its memory. It returns an
	// error if the split has no sample i.
	Sample(s *Sample, split Split, i int) error
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

// LengthReporter is a source that knows the lengths of its samples without reading them.
type LengthReporter interface {
	Source
	// SampleLength returns the positions of sample i of a split. It is 0 where the length
	// is not known.
	SampleLength(split Split, i int) int
}

// ByteReporter is a source whose tokens may be bytes.
type ByteReporter interface {
	Source
	// TokensAreBytes reports whether the tokens are bytes: there are 256, and token t is the byte t. If
	// so, a run saves the vocabulary of bytes, and farfield.Open opens its model as a model of texts.
	TokensAreBytes() bool
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

// The kinds of targets, and the field of Sample that has them. A class per position comes from all
// positions, or is causal: from its own and earlier positions. To predict the next token of a text,
// Next has token p+1 in Labels[p].
const (
	Class      Kind = iota // one class per sample: Class
	Regression             // numbers per sample: Targets
	Labels                 // a class per position, from all positions: Labels
	Next                   // a class per position, causal: Labels
	Trace                  // numbers per position: Targets
	Level                  // one of 256 numeric levels per position, causal: Targets
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

// The metrics.
const (
	Accuracy Metric = "accuracy" // share of correct positions or samples
	MSE      Metric = "mean squared error"
	Nats     Metric = "nats per token"     // mean of -ln p
	Bits     Metric = "bits per dimension" // mean of -log₂ p
)
