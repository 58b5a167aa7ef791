package engine

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// newMechanism returns the mechanism that s describes.
func newMechanism(s attention.Spec) (attention.Mechanism, error) {
	e, err := New(headtask.Spec{Spec: s})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// mechanismOf returns the mechanism for what the reference describes.
func mechanismOf(t *testing.T, name string, m *oracle.Mechanism) attention.Mechanism {
	t.Helper()
	e, err := newMechanism(calltest.SpecOf(name, m))
	if err != nil {
		t.Fatal(err)
	}
	return e
}
