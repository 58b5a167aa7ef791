package published

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// Input is a pretrained.Input, which describes the fields.
type Input struct {
	B, N       int
	IDs        []int32
	Mask       []bool
	Types      []int32
	Pixels     []float32
	DecoderIDs []int32
	DecoderN   int
	Hidden     bool
}

// Output is a pretrained.Output, which describes the fields, with shapes and with the names that
// the arrays have in transformers.
type Output struct {
	Hidden      *array.Array // hidden, in an encoder-decoder decoder_hidden
	LastHidden  *array.Array // last_hidden_state
	Logits      *array.Array // logits
	Pooled      *array.Array // pooler_output
	EncoderLast *array.Array // encoder_last_hidden_state
}

// Forward computes the outputs for in. It returns an error if in does not fit the model,
// ctx ends, or a result is not finite.
func (m *Model) Forward(ctx context.Context, in *Input) (*Output, error) {
	in, err := m.plan.maskTail(in)
	if err != nil {
		return nil, err
	}
	b, err := m.batch(in)
	if err != nil {
		return nil, fault.Mark(fault.ErrInput, err)
	}
	share := m.passes.begin(b)
	defer m.passes.end(b, share)
	out := &Output{}
	var logits []float32
	if m.plan.scores {
		if logits, err = m.plan.newLogits(b); err != nil {
			return nil, err
		}
	}
	if !m.plan.scores || in.Hidden || share.Config().Kind == model.EncoderDecoder {
		err = m.visitLayers(ctx, share, b, in, out, logits)
	} else {
		err = share.Logits(ctx, b, logits)
	}
	if err != nil {
		return nil, err
	}
	if m.plan.scores {
		err = m.setLogits(b, in, out, logits)
	}
	return out, err
}

// visitLayers sets the rows between layers and what follows from them, and logits if the
// model has them.
func (m *Model) visitLayers(ctx context.Context, share *model.Model, b *model.Batch, in *Input, out *Output, logits []float32) error {
	c := share.Config()
	n, w := m.plan.rowCount(b), c.Width
	rows := b.B * n
	var hidden []float32
	if in.Hidden {
		if tensor.Size(c.Layers+1, rows, w) == math.MaxInt {
			return fmt.Errorf("hidden: %d layers of %d rows are beyond any memory", c.Layers+1, rows)
		}
		hidden = make([]float32, (c.Layers+1)*rows*w)
	}
	var last, encoderLast []float32
	visit := func(source bool, layer int, x tensor.Mat) error {
		layers := c.Layers
		if source {
			if layers = c.SourceLayers; layers == 0 {
				layers = c.Layers
			}
			if layer == layers+1 {
				encoderLast = appendRows(nil, x)
			}
			return nil
		}
		if layer == layers+1 {
			if !m.plan.scores {
				last = appendRows(nil, x)
			}
			layer-- // the last hidden rows are after the norm
			if m.plan.rawHidden {
				return nil
			}
		}
		if hidden != nil {
			appendRows(hidden[layer*rows*w:][:0], x)
		}
		return nil
	}
	var err error
	if m.plan.scores {
		err = share.VisitLogits(ctx, b, logits, visit)
	} else {
		err = share.VisitLayers(ctx, b, visit)
	}
	if err != nil {
		return err
	}
	mask := in.Mask
	if c.Kind == model.EncoderDecoder {
		clearMasked(encoderLast, in.Mask, w)
		if out.EncoderLast, err = array.New("encoder_last_hidden_state", encoderLast, in.B, in.N, w); err != nil {
			return err
		}
		mask = nil
	}
	if in.Hidden {
		for l := range c.Layers + 1 {
			clearMasked(hidden[l*rows*w:][:rows*w], mask, w)
		}
		name := "hidden"
		if c.Kind == model.EncoderDecoder {
			name = "decoder_hidden"
		}
		if out.Hidden, err = array.New(name, hidden, c.Layers+1, b.B, n, w); err != nil {
			return err
		}
	}
	if m.plan.scores {
		return nil
	}
	if i := slices.IndexFunc(last, func(x float32) bool { return x-x != 0 }); i >= 0 {
		return fmt.Errorf("last_hidden_state: row %d is not finite", i/w)
	}
	if out.Pooled, err = m.poolers.poolFirst(last, b.B, n, w); err != nil {
		return err
	}
	clearMasked(last, mask, w)
	out.LastHidden, err = array.New("last_hidden_state", last, b.B, n, w)
	return err
}

// poolFirst returns the tanh units of the first rows; nil if there are none.
func (p poolers) poolFirst(rows []float32, batch, n, w int) (*array.Array, error) {
	weight, bias := p[poolerName+".weight"], p[poolerName+".bias"]
	if weight == nil || bias == nil {
		return nil, nil
	}
	pooled := make([]float32, batch*w)
	for b := range batch {
		x := rows[b*n*w:][:w]
		for i := range w {
			sum := float64(bias.Data[i])
			for j, v := range weight.Data[i*w:][:w] {
				sum += float64(v) * float64(x[j])
			}
			pooled[b*w+i] = float32(math.Tanh(sum))
		}
	}
	return array.New("pooler_output", pooled, batch, w)
}

// outputs returns the number of outputs of the head.
func (p *plan) outputs() int {
	return cmp.Or(p.config.Outputs, p.config.Vocab)
}

// newLogits returns memory for the logits of b. It returns an error if they are too many.
func (p *plan) newLogits(b *model.Batch) ([]float32, error) {
	rows, outputs := p.config.Rows(b.B, b.N), p.outputs()
	if tensor.Size(rows, outputs) == math.MaxInt {
		return nil, fmt.Errorf("logits: %d rows of %d are beyond any memory", rows, outputs)
	}
	return make([]float32, rows*outputs), nil
}

// setLogits sets the logits of out.
func (m *Model) setLogits(b *model.Batch, in *Input, out *Output, logits []float32) (err error) {
	c := &m.plan.config
	shape := []int{b.B, m.plan.outputs()}
	if c.Pool == "" {
		shape = []int{b.B, b.N, m.plan.outputs()}
		if c.Kind != model.EncoderDecoder {
			clearMasked(logits, in.Mask, m.plan.outputs())
		}
	}
	out.Logits, err = array.New("logits", logits, shape...)
	return err
}

// Gradients computes the gradients of Σ out·do with respect to every weight of model.safetensors.
// out are the logits [B,N,classes] or [B,classes], or the last rows [B,N,C] if the model has no
// head. do has the shape of out; its elements at masked tokens count as 0. The result has one array
// for each weight, with its name and shape in the file. It is zero where out does not depend on the
// weight. Gradients overwrites the gradients that Model holds. It returns an error if in or do does
// not fit the model, or ctx ends.
func (m *Model) Gradients(ctx context.Context, in *Input, do []float32) ([]*array.Array, error) {
	in, err := m.plan.maskTail(in)
	if err != nil {
		return nil, err
	}
	b, err := m.batch(in)
	if err != nil {
		return nil, err
	}
	m.passes.refill(b)
	m.passes.use.Lock()
	defer m.passes.use.Unlock()
	m.body.Params().ZeroGrad()
	y, err := m.body.Outputs(ctx, b)
	if err != nil {
		return nil, err
	}
	c := m.body.Config()
	do = slices.Clone(do)
	size := y.Rows * y.Cols
	if m.plan.scores {
		size = c.Rows(b.B, b.N) * m.plan.outputs()
	}
	if len(do) != size {
		return nil, fmt.Errorf("do: has %d elements, the output has %d", len(do), size)
	}
	if i := slices.IndexFunc(do, func(x float32) bool { return x-x != 0 }); i >= 0 {
		return nil, fmt.Errorf("do: element %d is %v", i, do[i])
	}
	if c.Pool == "" && c.Kind != model.EncoderDecoder && in.Mask != nil {
		clearMasked(do, in.Mask, size/len(in.Mask))
	}
	if m.plan.scores {
		err = m.body.BackwardLogits(do, 1)
	} else {
		err = m.body.BackwardOutputs(tensor.Mat{Data: do, Rows: y.Rows, Cols: y.Cols, Stride: y.Cols}, 1)
	}
	if err != nil {
		return nil, err
	}
	return m.gradients()
}

// AttentionNames returns the names of the attention layers, in the order in which a pass goes
// through them.
func (m *Model) AttentionNames() []string { return m.body.AttentionNames() }

// WatchAttention runs the tokens ids through the model, and calls look before each attention layer
// with its name, its mechanism and its call. It returns an error if the model is no encoder or
// decoder of texts, if ids do not fit it, if look returns one, or if ctx ends.
func (m *Model) WatchAttention(ctx context.Context, ids []int32, look func(name string, of attention.Mechanism, call *attention.Call) error) error {
	if c := m.plan.config; c.Kind == model.EncoderDecoder || c.Inputs > 0 {
		return errors.New("attention: " + m.family + " is no encoder or decoder of texts")
	}
	b, err := m.batch(&Input{B: 1, N: len(ids), IDs: ids})
	if err != nil {
		return err
	}
	m.passes.refill(b)
	m.passes.use.RLock()
	defer m.passes.use.RUnlock()
	return model.ShareWatched(m.body, look).VisitLayers(ctx, b, func(bool, int, tensor.Mat) error { return nil })
}

// clearMasked sets the rows [·,width] of masked tokens to 0.
func clearMasked(x []float32, mask []bool, width int) {
	for i, exists := range mask {
		if !exists {
			clear(x[i*width:][:width])
		}
	}
}

// appendRows appends the rows of x to dst.
func appendRows(dst []float32, x tensor.Mat) []float32 {
	for i := range x.Rows {
		dst = append(dst, x.Row(i)...)
	}
	return dst
}
