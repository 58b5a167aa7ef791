package nn

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Mixer is a Branch in which the tokens of a sequence see each other. Attention is one,
// with any mechanism of package mechanism. MixerNames lists those that own their
// projections.
type Mixer[T tensor.Float] interface {
	Branch[T]

	// Traits returns the properties of the mixer.
	Traits() attention.Traits
	// NewState returns the state of batch empty sequences. It returns an error if the
	// mixer has none.
	NewState(batch int) (State[T], error)
	// RestoreState reads the state of batch sequences that State.AppendBinary wrote.
	// It returns an error if data is no such state.
	RestoreState(batch int, data []byte) (State[T], error)
}

// State holds the memory of a mixer for the tokens so far.
type State[T tensor.Float] interface {
	Clone() State[T]
	Reset()
	Tokens() int64 // of each sequence
	Bytes() int64  // memory held
	AppendBinary(b []byte) ([]byte, error)
}
