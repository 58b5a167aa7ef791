package exchange

import (
	"context"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kmeans"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// layerKeys are keys of a layer, as its mechanism sees them.
type layerKeys struct {
	number                 int
	name                   string
	heads, keyHeads, d, dv int
	causal                 bool
	rows                   [][]float32 // of each key head [n,d]
}

// Taker is a mechanism that also keeps the keys of its calls.
type taker struct {
	attention.Mechanism
	capture attention.Mechanism
	keys    *layerKeys
}

// newTaker returns a mechanism that computes as of does, and appends keys that are in a cell to
// keys. Calls have one sequence.
func newTaker(of attention.Mechanism, keys *layerKeys, f field) attention.Mechanism {
	return &taker{of, headwise.New(&capture{field: f, keys: keys}), keys}
}

func (t *taker) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	x := t.keys
	if x.rows == nil {
		x.heads, x.keyHeads, x.d, x.dv, x.causal = c.Q.H, c.K.H, c.K.D, c.V.D, c.Causal
		x.rows = make([][]float32, c.K.H)
	}
	if err := t.capture.Forward(tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D), c, nil); err != nil {
		return err
	}
	return t.Mechanism.Forward(out, c, keep)
}

// capture is a function of whole heads that keeps their keys, rotated as a mechanism sees them. Its
// outputs are 0.
type capture struct {
	field
	observer
	keys *layerKeys
}

func (x *capture) Traits() attention.Traits {
	return attention.Traits{Name: "keys", Positive: true, Causal: true, PlacedQueries: true, PlacedHeads: true}
}

func (x *capture) Setting() string { return "keys" }
func (x *capture) Cost(s attention.Shape) headwise.Cost {
	return headwise.Cost{FLOPs: float64(s.M * s.D)}
}

func (x *capture) Forward(h *headwise.Head) {
	clear(h.Out.Data)
	if h.Head != h.KeyHead*(x.keys.heads/h.KeyHeads) {
		return // another query head has the same keys
	}
	last := h.K.Rows
	if !h.Causal {
		last -= x.ends
	}
	for j := x.sinks; j < last; j++ {
		if h.IsUnmasked(j) {
			x.keys.rows[h.KeyHead] = append(x.keys.rows[h.KeyHead], h.K.Row(j)...)
		}
	}
}

// KeyDistance returns how far the keys of a sequence, which is the batch, lie from their centres,
// as a multiple of the distance on the texts of the exchange. It is the mean over key heads of the
// ratio of root mean square distances. KeyDistance returns 0 if no layer of m has calibrated cells,
// and an error if the batch does not fit the model.
func KeyDistance(ctx context.Context, m *model.Model, b *model.Batch, calibrated map[string][]float64) (float64, error) {
	var sum float64
	var heads int
	look := func(name string, of attention.Mechanism, c *attention.Call) error {
		want := calibrated[name]
		book, err := of.Constants().Get("codebook")
		if err != nil || len(want) != c.K.H || len(book.Shape) != 3 || book.Shape[0] != c.K.H || book.Shape[2] != c.K.D {
			return nil
		}
		keys := &layerKeys{heads: c.Q.H, rows: make([][]float32, c.K.H)}
		take := headwise.New(&capture{field: field{1, 0, multipoleSinks, multipoleEnds}, keys: keys})
		if err := take.Forward(tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D), c, nil); err != nil {
			return err
		}
		size := book.Shape[1] * book.Shape[2]
		for h, rows := range keys.rows {
			if len(rows) == 0 || want[h] == 0 {
				continue
			}
			sum += kmeans.RootMeanDistance(rows, book.Data[h*size:][:size], c.K.D) / want[h]
			heads++
		}
		return nil
	}
	err := model.ShareWatched(m, look).VisitLayers(ctx, b, func(bool, int, tensor.Mat) error { return nil })
	if err != nil || heads == 0 {
		return 0, err
	}
	return sum / float64(heads), nil
}
