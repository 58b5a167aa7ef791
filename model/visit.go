package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/internal/losses"
	"github.com/farfield-ml/farfield/tensor"
)

// Visit gets rows [B·N,width] of a stack: for 0 ≤ layer < Layers those before the layer, for
// layer = Layers those after the last layer, and for layer = Layers+1 those after the final
// norm. The rows are valid until Visit returns and must not be changed. source is set in the
// encoder of an encoder-decoder, which has rows [B·SourceN,width] and SourceLayers layers. An
// error ends the pass.
type Visit func(source bool, layer int, rows tensor.Mat) error

// VisitLayers runs a pass of b and calls visit with the rows between layers, as described at
// Visit. With PoolCLS each sequence begins with the class row. It may be called between a
// Forward and its Backward.
//
// VisitLayers returns an error if the model is a convolutional net, b does not fit the
// model, a mechanism refuses its call, or visit returns one.
func (m *Model) VisitLayers(ctx context.Context, b *Batch, visit func(source bool, layer int, rows tensor.Mat) error) error {
	if m.net != nil {
		return fmt.Errorf("visit: kind is %s, needs %s, %s or %s", m.config.Kind, Decoder, Encoder, EncoderDecoder)
	}
	p := &m.eval
	p.main.visit = func(layer int, rows tensor.Mat) error { return visit(false, layer, rows) }
	p.encoder.visit = func(layer int, rows tensor.Mat) error { return visit(true, layer, rows) }
	defer func() { p.main.visit, p.encoder.visit = nil, nil }()
	return p.run(ctx, m, b)
}

// VisitLogits computes VisitLayers and Logits in one pass: it calls visit, and sets dst
// [Config.Rows(B, N), outputs] to the outputs of the head. It returns an error if one of them
// would.
func (m *Model) VisitLogits(ctx context.Context, b *Batch, dst []tensor.Float, visit func(source bool, layer int, rows tensor.Mat) error) error {
	return m.setLogits(&m.eval, b, dst, func() error { return m.VisitLayers(ctx, b, visit) })
}

// BackwardLogits adds the gradient of a loss to the gradients of the weights, given its gradient
// dlogits [Config.Rows(B, N), outputs] with respect to the logits of the last ForwardLogits. It
// also adds scale times the gradient of the auxiliary loss (Aux). It returns an error if no
// ForwardLogits precedes it or dlogits has another size. It does not look at the context of
// ForwardLogits: a loop that ends between the two drops the pass, which has changed no gradient.
func (m *Model) BackwardLogits(dlogits []tensor.Float, scale tensor.Float) error {
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
		losses.CapGrad(d, y, m.head.limit)
	}
	m.head.Backward(dx, d, x, false)
	return tr.backward(m, m.pool.backward(dx, tr.body, &tr.in, &tr.pool, sc), scale)
}
