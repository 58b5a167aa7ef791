package pretrained

import (
	"context"
	"errors"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// AttentionNames returns the names of the layers of attention, in the order of a pass.
func (m *Model) AttentionNames() []string { return m.body.AttentionNames() }

// WatchAttention runs a pass of the tokens ids and calls look with each call of
// attention, before its mechanism computes it. It returns an error if the model is no
// encoder or decoder of texts, ids do not fit it, look returns one, or ctx ends.
func (m *Model) WatchAttention(ctx context.Context, ids []int32, look func(name string, of attention.Mechanism[float32], call *attention.Call[float32]) error) error {
	if c := m.plan.config; c.Kind == model.EncoderDecoder || c.Inputs > 0 {
		return errors.New("attention: " + m.family + " is no encoder or decoder of texts")
	}
	b, err := m.batch(ctx, &Input{B: 1, N: len(ids), IDs: ids})
	if err != nil {
		return err
	}
	m.use.RLock()
	defer m.use.RUnlock()
	return m.body.ShareWatched(look).VisitLayers(b, func(bool, int, tensor.Mat[float32]) error { return nil })
}
