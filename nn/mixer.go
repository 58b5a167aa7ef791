package nn

import (
	"github.com/farfield-ml/farfield/attention"
)

// Mixer is a Branch in which the tokens of a sequence see each other. Attention is a Mixer
// with any mechanism of package mechanism. MixerNames lists the mixers with projections of
// their own.
type Mixer interface {
	Branch

	// Traits returns the properties of the mixer.
	Traits() attention.Traits
	// NewState returns the state of batch empty sequences. It returns an error if the
	// mixer has none.
	NewState(batch int) (State, error)
	// RestoreState reads the state of batch sequences that State.AppendBinary wrote.
	// It returns an error if data is not such a state.
	RestoreState(batch int, data []byte) (State, error)
}

// State holds what a mixer remembers of the tokens so far.
type State interface {
	Clone() State  // returns a state that continues independently
	Reset()        // forgets all tokens
	Tokens() int64 // returns the number of tokens of each sequence
	Bytes() int64  // returns the memory of the state
	// AppendBinary appends a snapshot for Mixer.RestoreState. It returns an error if
	// the state has none.
	AppendBinary(b []byte) ([]byte, error)
}
