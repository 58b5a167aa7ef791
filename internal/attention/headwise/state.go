package headwise

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// StateProvider is a Function that implements its own State. Other causal functions get a state
// that holds all keys and values, or as many as BoundedReach asks for.
type StateProvider interface {
	NewState(s attention.Shape) (attention.State, error)
	RestoreState(data []byte) (attention.State, error)
}

// StateSizer is a StateProvider whose states have a constant size in bytes, returned by
// StateBytes.
type StateSizer interface {
	StateBytes(s attention.Shape) float64
}

// planState returns the memory of a state of shape s, 0 if it grows with the tokens or is not known.
func (w *driver) planState(s attention.Shape) float64 {
	if x, is := w.Function.(StateSizer); is {
		return x.StateBytes(s)
	}
	return w.stateBytes(s)
}

// forwardStep computes Forward token by token through a State.
func (w *driver) forwardStep(out tensor.Heads, c *attention.Call) error {
	if err := w.refuseFuture("form"); err != nil {
		return err
	}
	if !c.Causal {
		return fmt.Errorf("form: step of %s needs a causal call: its queries have a place among the keys", w.name())
	}
	return states.ForwardByStep(attention.Mechanism(w), out, c, true)
}

func (w *driver) NewState(s attention.Shape) (attention.State, error) {
	if err := w.refuseFuture("state"); err != nil {
		return nil, err
	}
	if err := s.CheckState(); err != nil {
		return nil, err
	}
	if err := w.checkShape(&s); err != nil {
		return nil, err
	}
	if own, ok := w.Function.(StateProvider); ok {
		return own.NewState(s)
	}
	if err := s.CheckStateSize(w.stateBytes(s)); err != nil {
		return nil, err
	}
	return newTokenState(w, s), nil
}

// checkShape returns an error if the mechanism does not support states of the shape.
func (w *driver) checkShape(s *attention.Shape) error {
	c := &attention.Call{Causal: true}
	c.Q.B, c.Q.H, c.Q.D = s.B, s.H, s.D
	c.K.B, c.K.H, c.K.D = s.B, s.Hkv, s.D
	c.V.B, c.V.H, c.V.D = s.B, s.Hkv, s.Dv
	return w.Function.Check(c)
}
