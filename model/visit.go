package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// Visit gets the rows [B·N,width] of a place in a stack: before layer number layer, after
// the last layer for layer = Layers, and after the norm behind it for layer = Layers+1. The
// rows are valid until Visit returns and must not change. source says that the stack is the
// encoder of an encoder-decoder, with rows [B·SourceN,width] and SourceLayers layers. An
// error ends the pass.
type Visit func(source bool, layer int, rows tensor.Mat[float32]) error

// VisitLayers is Model.VisitLayers.
func (m *modelOf[T]) VisitLayers(ctx context.Context, b *Batch, visit func(source bool, layer int, rows tensor.Mat[T]) error) error {
	if m.net != nil {
		return fmt.Errorf("visit: kind is %s, needs %s, %s or %s", m.config.Kind, Decoder, Encoder, EncoderDecoder)
	}
	p := &m.eval
	p.main.visit = func(layer int, rows tensor.Mat[T]) error { return visit(false, layer, rows) }
	p.encoder.visit = func(layer int, rows tensor.Mat[T]) error { return visit(true, layer, rows) }
	defer func() { p.main.visit, p.encoder.visit = nil, nil }()
	return p.run(ctx, m, b)
}

// VisitLogits is Model.VisitLogits.
func (m *modelOf[T]) VisitLogits(ctx context.Context, b *Batch, dst []T, visit func(source bool, layer int, rows tensor.Mat[T]) error) error {
	return m.setLogits(&m.eval, b, dst, func() error { return m.VisitLayers(ctx, b, visit) })
}

// BackwardLogits is Model.BackwardLogits.
func (m *modelOf[T]) BackwardLogits(dlogits []T, scale T) error {
	if !m.canBackwardOutputs {
		return errors.New("backward: no logits or outputs precede it")
	}
	tr, sc := &m.train, &m.scratch
	x := tr.readOutputs(&m.pool)
	outputs := m.config.outputSize()
	if len(dlogits) != x.Rows*outputs {
		return fmt.Errorf("backward: dlogits has %d elements, there are %d rows of %d outputs", len(dlogits), x.Rows, outputs)
	}
	m.canBackwardOutputs = false
	dx := resizeMatrix(&sc.dy, x.Rows, x.Cols)
	d := resizeMatrix(&dlogits, x.Rows, outputs)
	if m.head.limit > 0 {
		y := resizeMatrix(&m.head.capped, x.Rows, outputs)
		m.head.forward(y, x)
		own := resizeMatrix(&m.head.logits, x.Rows, outputs)
		copy(own.Data, d.Data)
		d = own
		nn.CapGrad(d, y, m.head.limit)
	}
	m.head.Backward(dx, d, x, false)
	return tr.backward(m, m.pool.backward(dx, tr.body, &tr.in, &tr.pool, sc), scale)
}
