package nn

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/tensor"
)

// Mixer lets the tokens of sequences see each other, from rows [B·N,width] to
// rows [B·N,width]. Attention is one, with any mechanism of package mechanism;
// Mixers lists those that own their projections. What it gives for a sequence
// depends on no other sequence and not on the number of threads.
type Mixer[T tensor.Float] interface {
	// Traits says what the mixer can honestly do.
	Traits() attention.Traits
	// FLOPs returns the operations of Forward for a sequence of n tokens. A
	// multiply-add counts two.
	FLOPs(n int, causal bool) float64

	// NewTrace returns room for what Forward leaves for Backward, and for what
	// Step works in. It serves all mixers of the type.
	NewTrace() Trace[T]
	// Forward sets y to base, which y may be, plus what comes of x. keep says that
	// Backward will follow.
	Forward(y, base, x tensor.Mat[T], s Scope[T], tr Trace[T], keep bool) error
	// Backward sets dx and adds to the gradients of the weights; x and tr are those
	// of Forward. dx overlaps neither dy nor x.
	Backward(dx, dy, x tensor.Mat[T], tr Trace[T], s *Scratch[T]) error

	// NewState returns what is remembered of so many empty sequences.
	NewState(batch int) (State[T], error)
	// RestoreState reads what State.AppendBinary wrote for so many sequences.
	RestoreState(batch int, data []byte) (State[T], error)
	// Step continues sequences.
	Stepper[T]
	// Freeze returns the mixer with its weights rearranged for at most so many rows.
	// Its steps have the same bits.
	Freeze(rows int) Stepper[T]
}

// Stepper continues sequences from a state.
type Stepper[T tensor.Float] interface {
	// Step adds to y what comes of x after what state has seen: the causal Forward,
	// continued. The rotations of s start at the position of the first new token.
	// Results do not depend on the pieces in which tokens arrive.
	Step(y, x tensor.Mat[T], state State[T], s Scope[T], tr Trace[T]) error
}

// Trace is what Forward leaves for Backward. It belongs to one block, or where
// nothing is kept to all of them.
type Trace[T tensor.Float] interface {
	// Aux returns what the mixer loses of its own, in a pass that is kept.
	Aux() float64
}

// State is what a mixer remembers of the tokens so far.
type State[T tensor.Float] interface {
	Clone() State[T]
	Reset()
	Tokens() int64 // of each sequence
	Bytes() int64  // memory held
	AppendBinary(b []byte) ([]byte, error)
}

// Scope is who sees whom in a call.
type Scope[T tensor.Float] struct {
	B       int // batch rows
	Causal  bool
	KeyLens []int64            // [B] valid keys of each batch row; nil: all
	Rope    *attention.Rope[T] // nil: none
	Drop    *attention.Drop    // nil: none; stays as it is until Backward

	// Init and Final are the states of Attention before and after a part of causal
	// sequences, for calls that Backward follows: Init nil where nothing came before,
	// Final nil where it is not wanted. Other mixers do not have them.
	Init, Final State[T]

	// Ranks are those that the tokens of causal sequences are divided among, each with
	// those behind the tokens of the rank before (package comm/sequence); nil: none.
	// Other mixers than Attention do not have them.
	Ranks *comm.Comm
}

// Scratch is memory that Backward works in. It may be shared by layers.
type Scratch[T tensor.Float] struct {
	// Aux is the gradient of the mixer's own loss, which is added to the others: 0
	// where it is in no loss.
	Aux T

	// DFinal and DInit are, for parts of sequences, the gradients of Scope.Final, nil
	// where nothing follows, and of Scope.Init, nil where nothing came before.
	DFinal, DInit *attention.StateGrad[T]

	rooms [][]T
	used  int
}

// empty takes back all rooms.
func (s *Scratch[T]) empty() { s.used = 0 }

// room lends a matrix, whose contents are not defined, until s is emptied.
func (s *Scratch[T]) room(rows, cols int) tensor.Mat[T] {
	if s.used == len(s.rooms) {
		s.rooms = append(s.rooms, nil)
	}
	s.used++
	return room(&s.rooms[s.used-1], rows, cols)
}
