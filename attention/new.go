package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/tensor"
)

// New returns the mechanism that s describes. It returns an error if its fields do not fit
// together.
func New[T tensor.Float](s Spec[T]) (Mechanism[T], error) {
	if s.Window != nil {
		return newHybrid(s)
	}
	e, err := newEngine(headtask.Spec[T]{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}
