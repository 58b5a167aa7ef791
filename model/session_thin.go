package model

import (
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// thinModel is what a session steps through with a few rows.
type thinModel[T tensor.Float] struct {
	blocks []thinBlock[T]
	head   *nn.Thin[T]
}

// thinBlock is the layer of a block; what is nil has none.
type thinBlock[T tensor.Float] struct {
	mixer nn.Stepper[T]
	mlp   *nn.ThinMLP[T]
}

func (m *Model[T]) thin() *thinModel[T] {
	t := &thinModel[T]{head: m.head.Thin()}
	for i := range m.main.blocks {
		var b thinBlock[T]
		switch layer := &m.main.blocks[i]; {
		case layer.mlp != nil:
			b.mlp = layer.mlp.Thin()
		case layer.mixer != nil:
			b.mixer = layer.mixer.Thin()
		}
		t.blocks = append(t.blocks, b)
	}
	return t
}
