package nn

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/tensor"
)

// Branch computes the term that a block of a model adds to its rows [B·N,width]. A
// Mixer, an MLP, an ISTA step and a CrossAttention are branches. The output for a
// sequence depends on no other sequence and not on the number of threads.
type Branch interface {
	// FLOPs returns the operations of Forward for a sequence of n tokens. A
	// multiply-add counts two.
	FLOPs(n int, causal bool) float64

	// NewTrace returns an empty trace for Forward and Step. It serves all branches of
	// one type and size.
	NewTrace() Trace
	// Forward sets y [B·N,width] to base [B·N,width] plus the output for x
	// [B·N,width]. y may be base. keep saves what Backward needs in tr.
	Forward(y, base, x tensor.Mat, s Scope, tr Trace, keep bool) error
	// Backward sets dx [B·N,width] from dy [B·N,width] and adds to the gradients of
	// the weights. x and tr are the arguments of Forward. dx overlaps neither dy nor x.
	Backward(dx, dy, x tensor.Mat, tr Trace, s *Scratch) error

	Stepper
	// Freeze returns a stepper with a packed copy of the weights, for at most that
	// many rows. Its steps have the bits of Step.
	Freeze(rows int) Stepper
}

// Stepper continues sequences from a state.
type Stepper interface {
	// Step adds to y [B·N,width] the output for x [B·N,width], the tokens that follow
	// those in state. state is nil for branches other than mixers. The rotations of s
	// start at the position of the first new token. Results do not depend on how the
	// tokens are cut into calls.
	Step(y, x tensor.Mat, state State, s Scope, tr Trace) error
}

// Trace holds intermediate results of Forward for Backward. It belongs to one block, or
// to all blocks of a type if nothing is saved.
type Trace interface {
	// Aux returns the auxiliary loss of the last Forward with keep set.
	Aux() float64
}

// Scope holds which tokens see which in a call, and what all layers of the call share.
type Scope struct {
	B       int // batch rows
	Causal  bool
	KeyLens []int64         // [B] valid keys of each batch row; nil: all
	KeyMask []bool          // [B·N] whether a key of self-attention is unmasked; nil: all are
	Rope    *attention.Rope // nil: none
	Drop    *attention.Drop // nil: none; it must not change before Backward

	// Source [B·M,width] is the encoder's output, which CrossAttention reads, and
	// SourceLens [B] its valid rows; nil: all.
	Source     tensor.Mat
	SourceLens []int64

	// Norm, if not nil, is applied by Attention to its input, some rows at a time; nil: the
	// input is normalised already. Attention.TakesParts reports where Norm may be set. Room
	// [B·N·H·D] is then memory for the outputs of the mechanism, which overlaps no other.
	Norm Norm
	Room []tensor.Float

	// Next is memory that is read after a step. The step may prefetch it.
	Next []tensor.Float

	// Init and Final are the states of Attention before and after a segment of causal
	// sequences, in training. Init is nil at the start of the sequences, Final if it is
	// not wanted. Other branches ignore them.
	Init, Final State

	// Ranks divide the tokens of causal sequences, in the order of the ranks; nil: none. Branches
	// other than Attention ignore them.
	Ranks *comm.Comm
}

// Scratch is memory that Backward works in. Layers may share it.
type Scratch struct {
	// Aux is the gradient of the auxiliary loss; 0: it is not part of the loss.
	Aux tensor.Float

	// DSource [B·M,width] receives the gradient of Scope.Source: CrossAttention adds
	// to it.
	DSource tensor.Mat

	// DFinal is the gradient of Scope.Final, nil if nothing follows. Backward sets DInit,
	// unless it is nil, to the gradient of Scope.Init.
	DFinal, DInit *attention.StateGrad

	rooms     [][]tensor.Float
	usedRooms int
}

// takeBack makes all lent memory available again.
func (s *Scratch) takeBack() { s.usedRooms = 0 }

// lendMatrix lends a matrix with undefined contents until takeBack.
func (s *Scratch) lendMatrix(rows, cols int) tensor.Mat {
	if s.usedRooms == len(s.rooms) {
		s.rooms = append(s.rooms, nil)
	}
	s.usedRooms++
	return resizeMatrix(&s.rooms[s.usedRooms-1], rows, cols)
}
