package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Stateful is a Headwise with states of its own, where what it remembers is less
// than all keys and values, or more. Causal mechanisms without have a state that
// remembers these, or as much of them as is Windowed.
type Stateful[T tensor.Float] interface {
	NewState(s Shape) (State[T], error)
	RestoreState(data []byte) (State[T], error)
}

// forwardStep is Forward token by token through a State.
func (w *headwise[T]) forwardStep(out tensor.Heads[T], c *Call[T]) error {
	if err := w.refuseFuture("form"); err != nil {
		return err
	}
	if !c.Causal {
		return fmt.Errorf("form: step of %s needs a causal call: its queries have a place among the keys", w.name())
	}
	suspected := false
	for _, s := range c.sequences() {
		sh := c.Shape()
		sh.B = 1
		st, err := w.NewState(sh)
		if err != nil {
			return err
		}
		// Keys beyond the row's key length are tokens that do not exist.
		exist := make([]bool, s.keys)
		for j := range s.m {
			exist[j] = c.KeyMask == nil || c.KeyMask[s.b*c.K.N+s.k0+j]
		}
		piece := func(i0, i1, j0, j1 int) (tensor.Heads[T], *Call[T]) {
			p := &Call[T]{
				Q:       row(c.Q, s.b).Tokens(s.q0+i0, s.q0+i1),
				K:       row(c.K, s.b).Tokens(s.k0+j0, s.k0+j1),
				V:       row(c.V, s.b).Tokens(s.k0+j0, s.k0+j1),
				KeyMask: exist[j0:j1],
			}
			if c.Rope != nil {
				p.Rope = c.Rope.Slice(j0)
			}
			return row(out, s.b).Tokens(s.q0+i0, s.q0+i1), p
		}
		unseen := min(max(-s.off, 0), s.n) // queries before the first key
		lead := max(s.off, 0)              // keys before the first query's own
		o, p := piece(0, unseen, 0, lead)
		for h := range o.H {
			clearRows(o.At(0, h), 0, o.N)
		}
		if err := st.Absorb(p); err != nil {
			return err
		}
		if unseen == s.n {
			continue
		}
		o, p = piece(unseen, s.n, lead, s.keys)
		if err := st.Step(o, p); isNonFinite(err) {
			suspected = true
		} else if err != nil {
			return err
		}
	}
	return report(out, nil, suspected)
}

func (w *headwise[T]) NewState(s Shape) (State[T], error) {
	if err := w.refuseFuture("state"); err != nil {
		return nil, err
	}
	if err := s.checkState(); err != nil {
		return nil, err
	}
	if err := w.checkShape(&s); err != nil {
		return nil, err
	}
	if own, ok := w.Headwise.(Stateful[T]); ok {
		return own.NewState(s)
	}
	if keys, _ := w.window(); keys > 0 {
		if err := s.checkRoom(w.ringBytes(s)); err != nil {
			return nil, err
		}
		return newHeadRing(w, s), nil
	}
	return newHeadState(w, s), nil
}

// checkShape reports a shape of states whose calls the mechanism refuses.
func (w *headwise[T]) checkShape(s *Shape) error {
	c := &Call[T]{Causal: true}
	c.Q.B, c.Q.H, c.Q.D = s.B, s.H, s.D
	c.K.B, c.K.H, c.K.D = s.B, s.Hkv, s.D
	c.V.B, c.V.H, c.V.D = s.B, s.Hkv, s.Dv
	return w.Headwise.Check(c)
}

// checkState reports a shape that no state can have.
func (s *Shape) checkState() error {
	if s.B < 0 || s.H <= 0 || s.Hkv <= 0 || s.H%s.Hkv != 0 || s.D <= 0 || s.Dv <= 0 {
		return fmt.Errorf("state: shape B=%d H=%d Hkv=%d D=%d Dv=%d is not possible", s.B, s.H, s.Hkv, s.D, s.Dv)
	}
	switch {
	case tensor.Size(s.B, s.H) > maxHeads:
		return fmt.Errorf("state: B·H is %d·%d, at most %d heads are kept", s.B, s.H, maxHeads)
	case s.D > maxRow || s.Dv > maxRow:
		return fmt.Errorf("state: rows of D = %d and Dv = %d, at most %d are kept", s.D, s.Dv, maxRow)
	case s.Chunk < 0:
		return fmt.Errorf("chunk: %d is negative", s.Chunk)
	case s.Chunk > maxChunk:
		return fmt.Errorf("chunk: %d tokens, a state has at most %d", s.Chunk, maxChunk)
	}
	return nil
}

const (
	maxRow = 1 << 28 // D and Dv of states
	// maxChunk is the most tokens of a state's chunk, of which all pairs are met.
	maxChunk = 1 << 24
	// maxState is the most bytes of a state: more than any memory has.
	maxState = float64(min(1<<44, math.MaxInt))
)

// checkRoom reports a state of shape s that takes more bytes than there can be.
func (s *Shape) checkRoom(bytes float64) error {
	if !(bytes <= maxState) {
		return fmt.Errorf("state: shape B=%d H=%d Hkv=%d D=%d Dv=%d in chunks of %d takes %.0f bytes, at most %.0f",
			s.B, s.H, s.Hkv, s.D, s.Dv, s.Chunk, bytes, maxState)
	}
	return nil
}

func (w *headwise[T]) RestoreState(data []byte) (State[T], error) {
	if err := w.refuseFuture("snapshot"); err != nil {
		return nil, err
	}
	if own, ok := w.Headwise.(Stateful[T]); ok {
		return own.RestoreState(data)
	}
	if keys, _ := w.window(); keys > 0 {
		return restoreHeadRing(w, data)
	}
	return restoreHeadState(w, data)
}
