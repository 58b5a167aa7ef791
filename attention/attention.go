package attention

import (
	"io"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/tensor"
)

// Package contract holds the types of calls. These are their names for callers.

// Form is a way to compute a mechanism: direct, linear or step by step.
type Form = contract.Form

const (
	Auto   = contract.Auto   // Plan chooses by the sequence's own shape
	Direct = contract.Direct // every weight is computed: O(N·M)
	Linear = contract.Linear // sums of features: O(N+M)
	Step   = contract.Step   // token by token through a State
)

// Call is everything that varies from call to call. Nothing in it is written but
// Final.
type Call[T tensor.Float] = contract.Call[T]

// Grads receives gradients, except DFinal, which is given. They are
// overwritten; gradients of the mechanism's parameters are added to its Params.
type Grads[T tensor.Float] = contract.Grads[T]

// Saved holds intermediate results of Forward for Backward, and counts of exceptional
// rows.
type Saved[T tensor.Float] = contract.Saved[T]

// Traits says what a mechanism can honestly do.
type Traits = contract.Traits

// Mechanism is one attention function. Its methods may be called concurrently,
// except that Backward adds to Params.
type Mechanism[T tensor.Float] = contract.Mechanism[T]

// State holds the keys and values that a mechanism has absorbed. Its calls must have
// the B, H, Hkv, D and Dv for which it was made. Results do not depend on how tokens
// are divided into calls.
type State[T tensor.Float] = contract.State[T]

// CheckShape returns an error, with the name, if the shape of x is not [b,h,n,d].
func CheckShape[T tensor.Float](name string, x *tensor.Heads[T], b, h, n, d int) error {
	return contract.CheckShape[T](name, x, b, h, n, d)
}

// Sequence is one independent stretch of tokens: a batch row, or a packed
// segment of it.
type Sequence = contract.Sequence

// ErrNoMatrix says that a mechanism has no attention matrix.
var ErrNoMatrix = contract.ErrNoMatrix

// Carry is the way in which a state adds the sums of a chunk to the sums of earlier
// chunks. In both ways the sums of a chunk begin at zero in the element type.
type Carry = contract.Carry

const (
	// Rounded adds in the element type. Each chunk rounds the whole sum. The roundings
	// of a repeated token all go in one direction.
	Rounded = contract.Rounded
	// Compensated keeps beside each sum what its roundings left out, twice the
	// memory, so that a stream of any length has the error of a chunk. What is
	// read is the rounding of the whole: reading costs no more.
	Compensated = contract.Compensated
)

// Diagnosis describes the weights of one query head of one batch row. Rows are queries.
// Queries that see no key are counted and otherwise ignored.
//
// The weights w_j of a row are taken before any division. They are computed in the
// direct form and summed in float64.
type Diagnosis = contract.Diagnosis

// ErrNonFinite is in every error about numbers that are NaN or infinite.
var ErrNonFinite = contract.ErrNonFinite

// NonFiniteError says that rows of an output hold NaN or infinities: products or sums
// of the call left the range of the element type, or a denominator was 0. Every row is
// written all the same, and a state has absorbed its tokens. Forward returns it where
// there is no Saved to count the rows in.
type NonFiniteError = contract.NonFiniteError

// IsNonFinite reports whether err is about rows that are not finite.
func IsNonFinite(err error) bool {
	return contract.IsNonFinite(err)
}

// NonFinite counts the rows of x [B,H,N,D] that hold NaN or infinities and returns
// batch row, head and place of the first, by batch row, then place, then head.
func NonFinite[T tensor.Float](x tensor.Heads[T]) (rows int64, first [3]int) {
	return contract.NonFinite[T](x)
}

// HasNonFiniteSum reports whether the sum of x is not finite. This holds if an element
// of x is not finite.
func HasNonFiniteSum[T tensor.Float](x tensor.Mat[T]) bool {
	return contract.HasNonFiniteSum[T](x)
}

// ReportNonFinite counts the rows of out that are not finite in keep; without, it returns them
// as an error. Where none is suspected, none is looked for.
func ReportNonFinite[T tensor.Float](out tensor.Heads[T], keep *Saved[T], suspected bool) error {
	return contract.ReportNonFinite[T](out, keep, suspected)
}

// Plan describes what Forward and Backward do for a shape, and their cost.
type Plan = contract.Plan

// Shape is the shape of a call, for planning and for states (which ignore N
// and M).
type Shape = contract.Shape

// MaxHeads is the most heads, B·H, of a state.
const MaxHeads = contract.MaxHeads

// SnapshotHeader describes the state in a snapshot.
type SnapshotHeader = contract.SnapshotHeader

// ReadSnapshotHeader reads the header of the snapshot in the size bytes of r, and
// verifies the checksum of all bytes. It needs no mechanism, and no memory for the
// content. It returns an error if the snapshot is damaged or of another version.
func ReadSnapshotHeader(r io.ReaderAt, size int64) (h SnapshotHeader, err error) {
	return contract.ReadSnapshotHeader(r, size)
}

// StateGrad is the gradient of a State. Backward computes it for the initial state and
// reads it for the final state. The zero value is ready for use; memory is reused.
//
// It has the layout of the state. The open chunk of sums, and a whole cache, have
// gradients of prepared keys and of values. Sums have gradients of their moments, over
// the weights that features have when they are read. With decay, ages are the gradients
// of the log-decay before the state: see ageAfter.
type StateGrad[T tensor.Float] = contract.StateGrad[T]
