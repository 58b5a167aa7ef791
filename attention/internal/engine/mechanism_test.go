package engine

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// newMechanism returns the mechanism that s describes.
func newMechanism[T tensor.Float](s attention.Spec[T]) (attention.Mechanism[T], error) {
	e, err := New(headtask.Spec[T]{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// mechanismOf returns the mechanism for what the reference describes.
func mechanismOf[T tensor.Float](t *testing.T, name string, m *oracle.Mechanism) attention.Mechanism[T] {
	t.Helper()
	e, err := newMechanism(calltest.SpecOf[T](name, m))
	if err != nil {
		t.Fatal(err)
	}
	return e
}
