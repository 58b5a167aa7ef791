package nn

import (
	"github.com/farfield-ml/farfield/attention"
)

// Mixer is a Branch in which the tokens of a sequence see each other. Attention is one,
// with any mechanism of package mechanism. MixerNames lists those that own their
// projections.
type Mixer interface {
	Branch

	// Traits returns the properties of the mixer.
	Traits() attention.Traits
	// NewState returns the state of batch empty sequences. It returns an error if the
	// mixer has none.
	NewState(batch int) (State, error)
	// RestoreState reads the state of batch sequences that State.AppendBinary wrote.
	// It returns an error if data is no such state.
	RestoreState(batch int, data []byte) (State, error)
}

// State holds the memory of a mixer for the tokens so far.
type State interface {
	Clone() State
	Reset()
	Tokens() int64 // of each sequence
	Bytes() int64  // memory held
	AppendBinary(b []byte) ([]byte, error)
}
