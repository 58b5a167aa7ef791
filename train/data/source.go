package data

import (
	"fmt"

	"github.com/farfield-ml/farfield/rng"
)

// Source provides samples. A sample depends only on its split and its index. The methods of a
// Source may be called concurrently.
type Source interface {
	// Spec returns the specification of the samples.
	Spec() Spec
	// Sample overwrites s with sample i of the split and reuses its memory. It returns an
	// error if the split has no sample i.
	Sample(s *Sample, split Split, i int) error
}

// WindowDrawer is a Source that draws training samples of a given length.
type WindowDrawer interface {
	Source
	// DrawWindow overwrites s with a training sample of length positions, or of up to length if
	// samples differ in length. The sample depends only on key and i. DrawWindow returns an error
	// if there is no sample of this length.
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
	// ClassNames returns the names in the order of the class numbers, or nil if there are no
	// classes.
	ClassNames() []string
}

// ColumnNamer is a source whose channels may have names.
type ColumnNamer interface {
	Source
	// ColumnNames returns the names in the order of the channels, or nil if they have no names.
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
	// SampleLength returns the number of positions in sample i of a split, or 0 if it is not
	// known.
	SampleLength(split Split, i int) int
}

// ByteReporter is a source whose tokens may be bytes.
type ByteReporter interface {
	Source
	// TokensAreBytes reports whether the tokens are bytes: there are 256, and token t is the byte
	// t. If so, a run saves the vocabulary of bytes, and farfield.Open opens its model as one that
	// reads texts.
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

// The kinds of targets, and the field of Sample that holds them. A class for each position is
// predicted from all positions, or causally: from its own and earlier positions. To predict the
// next token of a text, Next has token p+1 in Labels[p].
const (
	Class      Kind = iota // one class for each sample: Class
	Regression             // numbers for each sample: Targets
	Labels                 // a class for each position, from all positions: Labels
	Next                   // a class for each position, causally: Labels
	Trace                  // numbers for each position: Targets
	Level                  // one of 256 numeric levels for each position, causally: Targets
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

// Endless is the number of samples of a split that is generated without end.
const Endless = -1

// Metric says how a task is scored.
type Metric string

// The metrics.
const (
	Accuracy Metric = "accuracy" // share of positions or samples that are right
	MSE      Metric = "mean squared error"
	Nats     Metric = "nats per token"     // mean of -ln p
	Bits     Metric = "bits per dimension" // mean of -log₂ p
)
