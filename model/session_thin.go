package model

import (
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// thinModel is what a session steps through: with a few rows, or if it has more
// sequences with any number.
type thinModel[T tensor.Float] struct {
	blocks []thinBlock[T]
	head   *nn.Thin[T]
	any    bool
}

// takes reports whether steps of so many rows may go through t.
func (t *thinModel[T]) takes(rows int) bool { return t.any || rows <= nn.ThinRows }

// thinBlock is the layer of a block; what is nil has none.
type thinBlock[T tensor.Float] struct {
	mixer nn.Stepper[T]
	mlp   *nn.ThinMLP[T]
}

// thin arranges the layers for steps of so many rows.
func (m *Model[T]) thin(rows int) *thinModel[T] {
	t := &thinModel[T]{head: m.head.Thin(rows), any: rows > nn.ThinRows}
	for i := range m.main.blocks {
		var b thinBlock[T]
		switch layer := &m.main.blocks[i]; {
		case layer.mlp != nil:
			b.mlp = layer.mlp.Thin(rows)
		case layer.mixer != nil:
			b.mixer = layer.mixer.Thin(rows)
		}
		t.blocks = append(t.blocks, b)
	}
	return t
}
