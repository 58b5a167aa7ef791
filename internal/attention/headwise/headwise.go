// Package headwise drives functions that compute a whole head: projections, landmarks, clusters,
// hashes and sparse patterns. Such a function sees one query head of one sequence at a time. The
// package does the rest: checks, scheduling, packed sequences, masks, rotation, shared key heads,
// states, rows of the attention matrix and their diagnosis. Package attention/headwise has what
// functions of one's own need of it.
package headwise

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Function computes a whole head of attention. New makes a Mechanism from it. A weight may
// depend on all queries and all keys of the head.
//
// Several goroutines may call it at the same time, each for one query head of one sequence. The
// output may depend only on the Head. It must be linear in V, because New computes the attention
// matrix by calls with unit vectors instead of V. A Function with NoMatrix has no such matrix and
// need not use V.
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

// MeasuredCost is a Function whose speed has been measured.
type MeasuredCost interface {
	// CostAtPeak returns the expected cost of Forward for one head of a sequence, in operations
	// at the multiply-add peak of one core, like attention.Plan.Cost.
	CostAtPeak(s attention.Shape) float64
}

// Segmented is a causal Function whose calls can continue from a state (attention.Call.Init and
// Final), with gradients through the states. It must set Traits.Segments. The driver checks
// calls before it passes them on.
type Segmented interface {
	ForwardSegment(out tensor.Heads, c *attention.Call, keep *attention.Saved) error
	BackwardSegment(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error
}

// Divided is a Function whose calls without a causal mask can be computed over a sequence whose
// tokens are divided among ranks. The tokens of a rank follow the tokens of the rank before,
// and a rank may have none. All ranks call the same method, each with its part of one call,
// which the driver has checked. DividedOf returns the Divided of a Mechanism.
type Divided interface {
	// ForwardDivided sets out to the outputs of the rank's queries. keep is nil at inference.
	ForwardDivided(ranks *comm.Comm, out tensor.Heads, c *attention.Call, keep *attention.Saved) error
	// BackwardDivided sets the gradients of the rank's queries, keys and values. keep is what
	// ForwardDivided saved.
	BackwardDivided(ranks *comm.Comm, g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error
}

// StridedRows is a Function whose Forward can read V and write Out with any row stride, so that
// they need not be copied. The driver uses this only in calls without a key mask that no
// Backward follows.
type StridedRows interface {
	// TakesStridedRows reports whether the rows of V and Out may have gaps between them.
	TakesStridedRows() bool
}

// Head is one query head of one sequence with its visible keys. Its matrices are contiguous,
// except V and Out for StridedRows. Q, K and V must not be changed. They are already rotated if
// the call has a Rope, and rows of masked keys are zeros.
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
	// PastQueries [Offset,D] holds the queries before the first row of Q, in states of a
	// PastQueryReader, with zeros for tokens that were absorbed without a query. Otherwise it
	// is empty.
	PastQueries tensor.Mat
	// PastCodes [Offset, CodeCount] are the codes of PastQueries, in states of a PastQueryCoder.
	PastCodes []int32

	Scratch *arena.Arena                // released by the driver
	Table   *kernel.Table[tensor.Float] // of this machine

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

	illConditioned illConditionedRows
}

// illConditionedRows counts the ill-conditioned rows of a head.
type illConditionedRows struct{ count, first int }

// CountIllConditioned counts query i as ill-conditioned (Saved.WeakCount): all its weights
// underflow, and its output is 0.
func (h *Head) CountIllConditioned(i int) {
	if h.illConditioned.count == 0 {
		h.illConditioned.first = i
	}
	h.illConditioned.count++
}

// SaveBuffer sets h.Saved to n numbers with undefined contents and returns it. Without
// NeedsBackward it is scratch memory.
func (h *Head) SaveBuffer(n int) []tensor.Float {
	switch {
	case !h.NeedsBackward:
		h.Saved = arena.Take[float](h.Scratch, n)
	case cap(h.Saved) >= n:
		h.Saved = h.Saved[:n]
	default:
		h.Saved = make([]float, n)
	}
	return h.Saved
}

// IsUnmasked reports whether key j is unmasked.
func (h *Head) IsUnmasked(j int) bool { return h.Mask == nil || h.Mask[j] }

// VisibleKeys returns the number of keys that query i sees by position: keys
// 0 ≤ j < VisibleKeys, masked ones included.
func (h *Head) VisibleKeys(i int) int {
	if !h.Causal {
		return h.K.Rows
	}
	return min(i+h.Offset+1, h.K.Rows)
}

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
func (g *Grads) Clear() {
	for _, x := range [3]tensor.Mat{g.DQ, g.DK, g.DV} {
		scratch.ClearRows(x, 0, x.Rows)
	}
}

// driver is the Mechanism of a Function.
type driver struct {
	Function
	size   int       // elements of the parameters
	passes sync.Pool // of *headPass
	heads  sync.Pool // of *Head
	grads  sync.Pool // of *Grads
}

// New returns the mechanism that computes h. Each call of h gets one Head. Query i has the position
// of key i+Head.Shift, in causal calls and in others: a weight that depends on a distance needs this
// position. In a causal call query i sees the unmasked keys j < Head.VisibleKeys(i).
func New(h Function) attention.Mechanism {
	return &driver{Function: h, size: h.Params().Size()}
}

func (w *driver) name() string { return w.Function.Traits().Name }

// checkCall returns an error if the call does not fit or the mechanism does not support it.
func (w *driver) checkCall(c *attention.Call) error {
	if err := c.Check(); err != nil {
		return err
	}
	own := *c
	if w.segmented() != nil {
		own.Init, own.Final = nil, nil
	}
	if err := w.refuseCall(&own); err != nil {
		return err
	}
	if c.Causal {
		if err := w.refuseFuture("causal"); err != nil {
			return err
		}
	}
	return w.Function.Check(c)
}

// segmented returns the Function if its calls may continue from states, and otherwise nil.
func (w *driver) segmented() Segmented {
	if x, ok := w.Function.(Segmented); ok && w.Function.Traits().Segments {
		return x
	}
	return nil
}

// DividedOf returns the Divided of m, or nil if m does not support it.
func DividedOf(m attention.Mechanism) Divided {
	if w, ok := m.(*driver); ok {
		if x, ok := w.Function.(Divided); ok {
			return x
		}
	}
	return nil
}

// CheckDivided returns an error if c, a rank's part of a divided call of m, does not fit, or if
// m does not support divided calls.
func CheckDivided(m attention.Mechanism, out *tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	w, ok := m.(*driver)
	if !ok || DividedOf(m) == nil {
		return fmt.Errorf("causal: %s goes over ranks in causal calls alone", m.Traits().Name)
	}
	if err := w.checkCall(c); err != nil {
		return err
	}
	return c.CheckWritten("o", out, keep)
}

func (w *driver) refuseCall(c *attention.Call) error { return RefuseHeadwise(w.name(), c) }

// RefuseHeadwise returns an error, which names the mechanism, if c uses a feature that headwise
// mechanisms do not have. For a Segmented, callers take Init and Final off c first.
func RefuseHeadwise(name string, c *attention.Call) error {
	switch {
	case c.AttnKeep != nil:
		return fmt.Errorf("attn_keep: %s computes whole heads: it has no place for a choice of pairs", name)
	case c.HasDecay():
		return fmt.Errorf("log_g: %s computes whole heads: it has no weights that could decay", name)
	case c.Drop.IsActive():
		return fmt.Errorf("dropout: %s has none of its own", name)
	case c.HasState():
		return fmt.Errorf("init: %s computes whole heads: a call cannot go on from a state", name)
	case c.Form == attention.Linear:
		return fmt.Errorf("form: %s has no linear form, but one of its own", name)
	}
	return nil
}

// refuseFuture returns an error if the mechanism has no causal form. what names the request.
func (w *driver) refuseFuture(what string) error {
	if t := w.Function.Traits(); !t.Causal {
		return fmt.Errorf("%s: %s has no causal form: %s", what, t.Name, t.NoCausal)
	}
	return nil
}

func (w *driver) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := w.checkCall(c); err != nil {
		return err
	}
	if err := c.CheckWritten("o", &out, keep); err != nil {
		return err
	}
	if c.Form == attention.Step {
		if keep != nil {
			return states.ErrStepKeeps
		}
		return w.forwardStep(out, c)
	}
	if c.HasState() {
		return w.segmented().ForwardSegment(out, c, keep)
	}
	p := w.schedule(c, out, keep)
	defer p.release()
	if keep != nil {
		keep.Den, keep.Moments = keep.Den[:0], keep.Moments[:0]
		keep.Heads = scratch.Resize(keep.Heads, p.units)
		keep.UnseenCount, keep.WeakCount, keep.Aux, keep.Residual, keep.ExactShare = 0, 0, 0, 0, 0
		saved, ok := keep.Own.(*savedCall)
		if !ok {
			saved = new(savedCall)
			keep.Own = saved
		}
		saved.shape, saved.sequences = callShape(c), append(saved.sequences[:0], p.seqs...)
	}
	p.runForward()
	if keep != nil {
		for i := range p.units {
			keep.UnseenCount += int64(p.unseenCounts[i])
			if s, head := p.sequenceOf(i); p.illConditioned[i].count > 0 {
				if keep.WeakCount == 0 {
					keep.WeakAt = [3]int{s.Batch, head, s.Q0 + p.illConditioned[i].first}
				}
				keep.WeakCount += int64(p.illConditioned[i].count)
			}
			keep.Aux += p.aux[i]
			keep.Residual = max(keep.Residual, p.residual[i])
			keep.ExactShare += p.exact[i] / float64(p.units)
		}
	}
	return attention.ReportNonFinite(out, keep, p.overflow.Load())
}

func (w *driver) Backward(g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := w.checkCall(c); err != nil {
		return err
	}
	if err := c.CheckOutput("o", &out); err != nil {
		return err
	}
	if err := g.CheckShapes(&dout, c); err != nil {
		return err
	}
	if x := w.segmented(); x != nil && c.HasState() {
		if g.DLogG.D != 0 {
			return fmt.Errorf("d_log_g: %s computes whole heads: it has no weights that could decay", w.name())
		}
		if err := g.CheckMemory(&dout, &out, c, keep); err != nil {
			return err
		}
		return x.BackwardSegment(g, dout, out, c, keep)
	}
	if g.DFinal != nil || g.DInit != nil {
		return fmt.Errorf("d_init: %s computes whole heads: a call has no state before or after it", w.name())
	}
	if g.DLogG.D != 0 {
		return fmt.Errorf("d_log_g: %s computes whole heads: it has no weights that could decay", w.name())
	}
	if err := g.CheckMemory(&dout, &out, c, keep); err != nil {
		return err
	}
	p := w.schedule(c, out, keep)
	defer p.release()
	if keep == nil || len(keep.Heads) != p.units {
		return errOtherCall
	}
	if saved, ok := keep.Own.(*savedCall); !ok || saved.shape != callShape(c) || !slices.Equal(saved.sequences, p.seqs) {
		return errOtherCall
	}
	p.g, p.dout = *g, dout
	p.runBackward()
	return nil
}

// savedCall identifies the call that a Saved belongs to.
type savedCall struct {
	shape     attention.Shape
	sequences []attention.Sequence
}

var errOtherCall = errors.New("saved: not what Forward left for this call")

// callShape returns the shape of c.
func callShape(c *attention.Call) attention.Shape {
	s := c.Shape()
	s.Form, s.Chunk = attention.Direct, 0
	return s
}

func (w *driver) Plan(s attention.Shape) attention.Plan {
	s.Form = attention.Direct
	one := w.Cost(s)
	heads := float64(s.B * s.H)
	const why = "it has one form of its own"
	p := attention.Plan{Form: attention.Direct, Back: attention.Direct, Reason: why, BackWhy: why, FLOPs: heads * one.FLOPs, Bytes: one.Bytes, State: w.planState(s)}
	if x, ok := w.Function.(MeasuredCost); ok {
		p.Cost = heads * x.CostAtPeak(s)
	}
	return p
}
