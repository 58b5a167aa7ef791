// Package headwise makes mechanisms from functions that compute a whole head, such as projections,
// landmarks and clusters. Such a function sees one query head of one sequence at a time. The
// package does the rest: checks, scheduling, packed sequences, masks, rotation, shared key heads,
// states, rows of the attention matrix and their diagnosis.
package headwise

import (
	"sync"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Function computes a whole head of attention. New makes a Mechanism from it. A weight may
// depend on all queries and all keys of the head.
//
// Several goroutines may call it at the same time, each for one query head of one sequence. The
// output may depend only on the Head. It must be linear in V, because New computes the attention
// matrix by calls with unit vectors instead of V.
type Function interface {
	// Traits returns the features that the mechanism supports. NoCausal is the reason
	// if Causal is not set.
	Traits() attention.Traits
	// Setting identifies everything besides Params and Constants that changes results.
	// Snapshots of states are bound to it.
	Setting() string
	// Params returns the learned parameters. nil: none.
	Params() *param.Set
	// Constants returns numbers that are drawn once and not learned, such as random
	// features. A model saves them. nil: none.
	Constants() *param.Set
	// Check returns an error if the mechanism does not support c, whose shapes fit.
	Check(c *attention.Call) error
	// Forward sets h.Out.
	Forward(h *Head)
	// Backward sets the gradients in g from g.DOut and from h.Saved, which Forward has
	// set for the same head.
	Backward(h *Head, g *Grads)
	// Cost returns the cost of one head of a sequence. It reads N, M, D, Dv and Causal.
	Cost(s attention.Shape) Cost
}

// Cost is the cost of Forward for one head.
type Cost struct {
	FLOPs float64 // 2 per fused multiply-add
	Bytes float64 // scratch memory and memory saved for Backward
}

// Head is one query head of one sequence with its visible keys. Its matrices are contiguous. Q, K
// and V must not be changed. They are already rotated if the call has a Rope, and rows of masked
// keys are zeros. A Head is valid during one call of the Function.
//
// Every query sees at least one unmasked key. Other queries are left out.
type Head struct {
	Q, K, V, Out tensor.Mat // [n,D], [m,D], [m,Dv], [n,Dv]; Out is given in Backward, too

	Mask   []bool // [m] unmasked keys; nil: all
	Causal bool
	// Offset is at least 0, and 0 if the call is not causal. Query i has the position of key
	// i+Offset, which may be beyond the last key. In a causal call it sees keys j ≤ i+Offset.
	Offset int
	// Shift is M-N of the sequence, padding included, plus the number of queries left out
	// before query 0. In a near field query i has the position of key i+Shift, whether the call
	// is causal or not.
	Shift int
	Head  int // index of the query head, for parameters of each head
	// KeyHead is the key head of the query head, one of KeyHeads.
	KeyHead, KeyHeads int

	NeedsBackward bool           // Backward follows
	Saved         []tensor.Float // what Forward saves for Backward; see SaveBuffer

	// UnseenQueries is the number of queries that the mechanism leaves without a key. Forward sets
	// it. Their outputs are 0.
	UnseenQueries int
	// Residual is set by Forward if the mechanism iterates (Saved.Residual).
	Residual float64
	// ExactShare is set by Forward if the mechanism chooses pairs (Saved.ExactShare).
	ExactShare float64
	// Aux is the auxiliary loss of the head, set by Forward (Saved.Aux).
	Aux float64

	of *headwise.Head // with scratch memory
}

// CountIllConditioned counts query i as ill-conditioned (Saved.WeakCount): all its weights
// underflow, and its output is 0.
func (h *Head) CountIllConditioned(i int) { h.of.CountIllConditioned(i) }

// SaveBuffer sets h.Saved to n numbers with undefined contents and returns it. Without
// NeedsBackward it is scratch memory.
func (h *Head) SaveBuffer(n int) []tensor.Float {
	h.Saved = h.of.SaveBuffer(n)
	return h.Saved
}

// IsUnmasked reports whether key j is unmasked.
func (h *Head) IsUnmasked(j int) bool { return h.of.IsUnmasked(j) }

// VisibleKeys returns the number of keys that query i sees by position: keys
// 0 ≤ j < VisibleKeys, masked ones included.
func (h *Head) VisibleKeys(i int) int { return h.of.VisibleKeys(i) }

// Multiply sets c [m,n] to op(a)·op(b), or adds it if acc is set. ta and tb transpose a and b.
func (h *Head) Multiply(c, a, b tensor.Mat, ta, tb, acc bool) { h.of.Multiply(c, a, b, ta, tb, acc) }

// TakeScratch returns a contiguous matrix [rows,cols] in scratch memory with undefined contents.
func (h *Head) TakeScratch(rows, cols int) tensor.Mat { return h.of.TakeScratch(rows, cols) }

// SoftmaxRows replaces each row of x [m,n] by its softmax.
func (h *Head) SoftmaxRows(x tensor.Mat) { h.of.SoftmaxRows(x) }

// SoftmaxRowsGrad replaces dp [m,n], the gradient of p = SoftmaxRows(x), by the gradient of x.
func (h *Head) SoftmaxRowsGrad(dp, p tensor.Mat) { h.of.SoftmaxRowsGrad(dp, p) }

// Grads are the gradients of a Head. Backward overwrites DQ, DK and DV. Gradients of masked
// keys are ignored.
type Grads struct {
	DOut       tensor.Mat   // given
	DAux       tensor.Float // given: gradient of Head.Aux
	DQ, DK, DV tensor.Mat
	// Params has a buffer for each parameter, in order and of the same size. Backward adds
	// to it.
	Params [][]tensor.Float
}

// Clear sets DQ, DK and DV to zero.
func (g *Grads) Clear() { (*headwise.Grads)(g).Clear() }

// New returns the mechanism that computes f. Each call of f gets one Head. Query i has the position
// of key i+Head.Shift, in causal calls and in others: a weight that depends on a distance needs this
// position. In a causal call query i sees the unmasked keys j < Head.VisibleKeys(i).
func New(f Function) attention.Mechanism { return headwise.New(&function{Function: f}) }

// function is a Function as the driver calls it.
type function struct {
	Function
	heads sync.Pool // of *Head
}

func (f *function) Cost(s attention.Shape) headwise.Cost { return headwise.Cost(f.Function.Cost(s)) }

func (f *function) Forward(of *headwise.Head) {
	h := f.open(of)
	f.Function.Forward(h)
	of.Saved, of.UnseenQueries, of.Residual, of.ExactShare, of.Aux = h.Saved, h.UnseenQueries, h.Residual, h.ExactShare, h.Aux
	f.release(h)
}

func (f *function) Backward(of *headwise.Head, g *headwise.Grads) {
	h := f.open(of)
	f.Function.Backward(h, (*Grads)(g))
	f.release(h)
}

// open returns the Head of a call.
func (f *function) open(of *headwise.Head) *Head {
	h, _ := f.heads.Get().(*Head)
	if h == nil {
		h = new(Head)
	}
	*h = Head{
		Q: of.Q, K: of.K, V: of.V, Out: of.Out, Mask: of.Mask, Causal: of.Causal, Offset: of.Offset, Shift: of.Shift,
		Head: of.Head, KeyHead: of.KeyHead, KeyHeads: of.KeyHeads, NeedsBackward: of.NeedsBackward, Saved: of.Saved, of: of,
	}
	return h
}

// release keeps h for another call, without what it points at.
func (f *function) release(h *Head) {
	*h = Head{}
	f.heads.Put(h)
}
