package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// AttentionLook is called with a call of attention before its mechanism computes it.
type AttentionLook = func(name string, of attention.Mechanism, call *attention.Call) error

// AttentionNames returns the names of the attention layers, in the order in which a pass goes
// through them.
func (m *Model) AttentionNames() []string {
	if m.folder != nil {
		return m.folder.AttentionNames()
	}
	return m.body.AttentionNames()
}

// WatchAttention runs the tokens ids through the model, and calls look for each call of attention.
// Other passes may run meanwhile. It returns an error if ids do not fit the model, if look returns
// one, or if ctx ends.
func (m *Model) WatchAttention(ctx context.Context, ids []int32, look AttentionLook) error {
	if m.folder != nil {
		return m.folder.WatchAttention(ctx, ids, look)
	}
	_, _, err := model.ShareWatched(m.body, look).Vectors(ctx, nil, &model.Batch{B: 1, N: len(ids), Tokens: ids})
	return err
}

// nearWindow is the near distance of a layer without a window.
const nearWindow = 64

// LayerMaps holds the attention weights of a layer for a text of N tokens.
type LayerMaps struct {
	Name    string      // name of the layer
	Layers  int         // number of attention layers in the model
	Heads   int         // query heads in the layer
	Window  int         // width of the layer's window in tokens, or 64: keys with |i-j| < Window are near
	Weights [][]float32 // [heads][N·N], a row for each query
}

// maxMapElements bounds the weights of a layer.
const maxMapElements = 1 << 27

// errLayerSeen ends a pass whose layer was seen.
var errLayerSeen = errors.New("the layer was seen")

// MapLayer returns the weights of attention layer number layer, counted from 0, for the tokens ids
// [N]. It may be called concurrently. It returns an error if there is no such layer, if ids do not
// fit the model, if there are too many weights, or if ctx ends.
func (m *Model) MapLayer(ctx context.Context, ids []int32, layer int) (*LayerMaps, error) {
	names := m.AttentionNames()
	n := len(ids)
	switch c := m.Config(); {
	case len(names) == 0:
		return nil, fmt.Errorf("layer: the model has mixers %s, which have no attention matrix", c.Mechanism)
	case layer < 0 || layer >= len(names):
		return nil, fmt.Errorf("layer: is %d, the model has %d, counted from 0", layer, len(names))
	case n == 0:
		return nil, errors.New("ids: are empty")
	case tensor.Size(c.Heads, n, n) > maxMapElements:
		return nil, fmt.Errorf("ids: are %d, and %d heads of %d² weights exceed %d", n, c.Heads, n, maxMapElements)
	}
	maps := &LayerMaps{Name: names[layer], Layers: len(names), Window: m.window(layer)}
	err := m.WatchAttention(ctx, ids, func(name string, of attention.Mechanism, call *attention.Call) error {
		if name != maps.Name {
			return nil
		}
		if maps.Heads = call.Q.H; call.Q.N != n || call.K.N != n {
			return fmt.Errorf("%s: has %d queries and %d keys for %d tokens", name, call.Q.N, call.K.N, n)
		}
		for h := range maps.Heads {
			w := tensor.Mat{Data: make([]float32, n*n), Rows: n, Cols: n, Stride: n}
			if err := of.Weights(w, call, 0, h, 0, n); err != nil {
				return err
			}
			maps.Weights = append(maps.Weights, w.Data)
		}
		return errLayerSeen
	})
	if err != nil && !errors.Is(err, errLayerSeen) {
		return nil, err
	}
	for h, w := range maps.Weights {
		if i := slices.IndexFunc(w, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }); i >= 0 {
			return nil, fmt.Errorf("%s: weight %d of head %d is %v", maps.Name, i, h, w[i])
		}
	}
	return maps, nil
}

// window returns the span of a layer's near field in tokens.
func (m *Model) window(layer int) int {
	if list := m.Config().Mechanisms(); layer < len(list) {
		for _, key := range []string{"span", "window"} {
			if w, err := strconv.Atoi(list[layer].Set[key]); err == nil && w > 0 {
				return w
			}
		}
	}
	return nearWindow
}
