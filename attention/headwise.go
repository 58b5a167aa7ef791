package attention

import (
	"fmt"
	"sync"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Headwise is a mechanism that computes a head as a whole: its weights are no
// function of one query and one key, as those of projections, landmarks,
// clusters, hashes and patterns are not. NewHeadwise makes it a Mechanism.
//
// It is asked for one query head of one sequence at a time, by several
// goroutines at once. What it computes depends on the Head alone, and is linear
// in V: a row of the attention matrix is what it makes of unit vectors. One that is
// Unpaired has no such matrix, and may do without V.
type Headwise[T tensor.Float] interface {
	// Traits has a sentence in NoCausal where Causal is not set.
	Traits() Traits
	// Setting identifies all that changes results beside Params and Constants;
	// snapshots of states are bound to it.
	Setting() string
	// Params are learned; nil: none.
	Params() *param.Set[T]
	// Constants are drawn once and not learned, such as random features: they are
	// saved with a model, and whoever has other ones writes them to Data. nil:
	// none.
	Constants() *param.Set[T]
	// Check reports what the mechanism refuses in calls that fit otherwise, such
	// as lengths.
	Check(c *Call[T]) error
	// Forward sets h.Out.
	Forward(h *Head[T])
	// Backward sets the gradients in g from g.DOut and what Forward left in
	// h.Saved for the same head.
	Backward(h *Head[T], g *HeadGrads[T])
	// Cost is that of one head of a sequence, of the N, M, D, Dv and Causal of s.
	Cost(s Shape) Cost
}

// Cost is what one head takes forward.
type Cost struct {
	FLOPs float64 // 2 per fused multiply-add
	Bytes float64 // of scratch and of what is kept for Backward
}

// Head is one query head of one sequence with the keys that it may see. Its
// matrices are contiguous. Q, K and V are read only, rotated where the call says
// so; keys and values that do not exist are zeros.
//
// Every query sees a key that exists, by position and mask: others are not here.
type Head[T tensor.Float] struct {
	Q, K, V, Out tensor.Mat[T] // [n,D], [m,D], [m,Dv], [n,Dv]; Out is given in Backward, too

	Mask   []bool // [m] keys that exist; nil: all
	Causal bool
	// Off is 0 or more. Query i stands at the place of key i+Off, which may lie
	// beyond the last; where Causal it sees keys j ≤ i+Off. It is 0 where the call
	// is not causal.
	Off  int
	Head int // among the query heads, for parameters of each
	// Past has the queries of the tokens before the first of Q in states of what
	// RemembersQueries, [Off,D], of zeros where a token came without. It is empty
	// elsewhere: these tokens have no queries then.
	Past tensor.Mat[T]

	Scratch *arena.Arena     // released by the driver
	Table   *kernel.Table[T] // of this machine

	Keep  bool // Backward will follow
	Saved []T  // what Forward keeps for it, of the length that Save gave it

	// Unseen is set by Forward to the number of queries for which the mechanism
	// itself leaves no key; their outputs are 0.
	Unseen int
	// Residual is set by Forward where the mechanism iterates (Saved.Residual).
	Residual float64
	// Aux is set by Forward to what the head adds to a loss of the mechanism's
	// own (Saved.Aux).
	Aux float64

	weak weakRows
}

// weakRows counts the weak rows of a head, and has the first.
type weakRows struct{ count, first int }

// Weak counts query i, whose weights are all too small for the element type, as
// ill-conditioned (Saved.Weak): its output is 0.
func (h *Head[T]) Weak(i int) {
	if h.weak.count == 0 {
		h.weak.first = i
	}
	h.weak.count++
}

// Save sets the length of h.Saved, whose contents are undefined, and returns it.
// Where nothing is kept it is scratch.
func (h *Head[T]) Save(n int) []T {
	switch {
	case !h.Keep:
		h.Saved = arena.Take[T](h.Scratch, n)
	case cap(h.Saved) >= n:
		h.Saved = h.Saved[:n]
	default:
		h.Saved = make([]T, n)
	}
	return h.Saved
}

// Exists reports whether key j takes part.
func (h *Head[T]) Exists(j int) bool { return h.Mask == nil || h.Mask[j] }

// Seen returns how many keys query i could see by position alone: keys
// 0 ≤ j < Seen, before the mask.
func (h *Head[T]) Seen(i int) int {
	if !h.Causal {
		return h.K.Rows
	}
	return min(i+h.Off+1, h.K.Rows)
}

// HeadGrads are the gradients of a Head. DQ, DK and DV are overwritten; those of
// keys that do not exist count as 0, whatever is written.
type HeadGrads[T tensor.Float] struct {
	DOut       tensor.Mat[T] // given
	DAux       T             // given: the gradient of Head.Aux
	DQ, DK, DV tensor.Mat[T]
	// Params has a buffer for each of the mechanism's parameters, in their order
	// and of their sizes. It is added to.
	Params [][]T
}

// Clear sets DQ, DK and DV to zero.
func (g *HeadGrads[T]) Clear() {
	for _, x := range [3]tensor.Mat[T]{g.DQ, g.DK, g.DV} {
		scratch.ClearRows(x, 0, x.Rows)
	}
}

// headwise keeps the contract for a Headwise.
type headwise[T tensor.Float] struct {
	Headwise[T]
	size   int       // elements of the parameters
	passes sync.Pool // of *headPass[T]
	heads  sync.Pool // of *Head[T]
	grads  sync.Pool // of *HeadGrads[T]
}

// NewHeadwise returns the mechanism that h computes.
func NewHeadwise[T tensor.Float](h Headwise[T]) Mechanism[T] {
	return &headwise[T]{Headwise: h, size: h.Params().Size()}
}

func (w *headwise[T]) name() string { return w.Headwise.Traits().Name }

// check is Call.check with what the mechanism itself cannot do.
func (w *headwise[T]) check(c *Call[T]) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := w.refuse(c); err != nil {
		return err
	}
	if c.Causal {
		if err := w.refuseFuture("causal"); err != nil {
			return err
		}
	}
	return w.Headwise.Check(c)
}

func (w *headwise[T]) refuse(c *Call[T]) error { return refuseOfHeads(w.name(), c) }

// refuseOfHeads reports what no headwise mechanism can do, as that of the name.
func refuseOfHeads[T tensor.Float](name string, c *Call[T]) error {
	switch {
	case c.AttnKeep != nil:
		return fmt.Errorf("attn_keep: %s computes whole heads: it has no place for a choice of pairs", name)
	case c.HasDecay():
		return fmt.Errorf("log_g: %s computes whole heads: it has no weights that could decay", name)
	case c.Drop.IsActive():
		return fmt.Errorf("dropout: %s has none of its own", name)
	case c.HasState():
		return fmt.Errorf("init: %s computes whole heads: a call cannot go on from a state", name)
	case c.Form == Linear:
		return fmt.Errorf("form: %s has no linear form, but one of its own", name)
	}
	return nil
}

// refuseFuture reports a mechanism without a causal form where later tokens must
// not count.
func (w *headwise[T]) refuseFuture(what string) error {
	if t := w.Headwise.Traits(); !t.Causal {
		return fmt.Errorf("%s: %s has no causal form: %s", what, t.Name, t.NoCausal)
	}
	return nil
}

func (w *headwise[T]) Forward(out tensor.Heads[T], c *Call[T], keep *Saved[T]) error {
	if err := w.check(c); err != nil {
		return err
	}
	if err := c.CheckOutput("o", &out); err != nil {
		return err
	}
	if c.Form == Step {
		if keep != nil {
			return ErrStepKeeps
		}
		return w.forwardStep(out, c)
	}
	p := w.pass(c, out, keep)
	defer p.release()
	if keep != nil {
		keep.Den, keep.Moments = keep.Den[:0], keep.Moments[:0]
		keep.Heads = scratch.Resize(keep.Heads, p.units)
		keep.Unseen, keep.Weak, keep.Aux, keep.Residual = 0, 0, 0, 0
	}
	p.forward()
	if keep != nil {
		for i := range p.units {
			keep.Unseen += int64(p.unseen[i])
			if s, head := p.sequence(i); p.weak[i].count > 0 {
				if keep.Weak == 0 {
					keep.WeakAt = [3]int{s.Batch, head, s.Q0 + p.weak[i].first}
				}
				keep.Weak += int64(p.weak[i].count)
			}
			keep.Aux += p.aux[i]
			keep.Residual = max(keep.Residual, p.residual[i])
		}
	}
	return ReportNonFinite(out, keep, p.overflow.Load())
}

func (w *headwise[T]) Backward(g *Grads[T], dout, out tensor.Heads[T], c *Call[T], keep *Saved[T]) error {
	if err := w.check(c); err != nil {
		return err
	}
	if err := c.CheckOutput("o", &out); err != nil {
		return err
	}
	if err := g.CheckShapes(&dout, c); err != nil {
		return err
	}
	if g.DFinal != nil || g.DInit != nil {
		return fmt.Errorf("d_init: %s computes whole heads: a call has no state before or after it", w.name())
	}
	p := w.pass(c, out, keep)
	defer p.release()
	if keep == nil || len(keep.Heads) != p.units {
		return fmt.Errorf("saved: not what Forward left for this call")
	}
	p.g, p.dout = *g, dout
	p.backward()
	return nil
}

func (w *headwise[T]) Plan(s Shape) Plan {
	s.Form = Direct
	one := w.Cost(s)
	heads := float64(s.B * s.H)
	const why = "it has one form of its own"
	return Plan{Form: Direct, Back: Direct, Why: why, BackWhy: why, FLOPs: heads * one.FLOPs, Bytes: one.Bytes, State: w.ringBytes(s)}
}
