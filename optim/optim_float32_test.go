//go:build !float64

package optim

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
)

func TestStepDoesNotDependOnThreads(t *testing.T) {
	defer par.SetThreads(0)
	run := func(threads int) []float32 {
		par.SetThreads(threads)
		s := weights(3*pieceSize + 11)
		a := NewAdamW(s)
		for step := range 3 {
			fillGrad(s, step)
			a.Step(0.01, 1)
		}
		return s.All()[0].Data
	}
	if !slices.Equal(run(1), run(3)) {
		t.Error("weights differ")
	}
}
