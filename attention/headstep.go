package attention

import (
	"fmt"

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
	return ForwardByStep(Mechanism[T](w), out, c, true)
}

func (w *headwise[T]) NewState(s Shape) (State[T], error) {
	if err := w.refuseFuture("state"); err != nil {
		return nil, err
	}
	if err := s.CheckState(); err != nil {
		return nil, err
	}
	if err := w.checkShape(&s); err != nil {
		return nil, err
	}
	if own, ok := w.Headwise.(Stateful[T]); ok {
		return own.NewState(s)
	}
	if keys, _ := w.window(); keys > 0 {
		if err := s.CheckStateSize(w.ringBytes(s)); err != nil {
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
