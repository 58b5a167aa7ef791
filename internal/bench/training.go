package bench

import (
	"runtime"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
)

// Training describes an update of a model on random bytes.
type Training struct {
	Mechanism string
	Order     int // 0: the mechanism's default
	Set       map[string]string
	Layers    int
	Heads     int
	D         int // width of a head
	Context   int // tokens of a sequence
	Batch     int // number of sequences
}

func (t Training) modelConfig() model.Config {
	return model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: t.Layers, Heads: t.Heads, Width: t.Heads * t.D, Context: t.Context,
		Positions: model.Rotary, Mechanism: t.Mechanism, Order: t.Order, Set: t.Set, Tied: true,
	}
}

// Case returns the case of the suite train, or an error for impossible settings. The useful
// operations are three times those of forward's products, and those of attention forward and
// backward.
func (t Training) Case() (*Case, error) {
	config := t.modelConfig()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	a := Attention{
		Mechanism: t.Mechanism, Options: mechanism.Options{Order: t.Order, Heads: t.Heads, Width: t.D, Set: t.Set},
		Shape: attention.Shape{B: t.Batch, H: t.Heads, Hkv: t.Heads, N: t.Context, M: t.Context, D: t.D, Dv: t.D, Causal: true},
	}
	_, c, err := a.describeCase()
	if err != nil {
		return nil, err
	}
	c.X, c.Line.Direction = float64(t.Context), update
	tokens, layers, w := float64(t.Batch*t.Context), float64(t.Layers), float64(config.Width)
	layer := c.FLOPs + BackwardFLOPs(c.FLOPs)
	c.FLOPs = layers*layer + 3*2*tokens*countWeights(config)
	// Weights, gradients and two moments; per token what a layer keeps.
	kept := tokens * (layers*(16*w+float64(t.Heads)+4) + 6*w)
	c.Need = 4 * (4*float64(config.Params()) + kept)
	c.open = t.openCase
	return c, nil
}

// countWeights is the number of weights that every token is multiplied with: four
// projections, an MLP of four times the width, and the head.
func countWeights(c model.Config) float64 {
	w := float64(c.Width)
	return float64(c.Layers)*12*w*w + w*float64(c.Vocab)
}

func (t Training) openCase() (*work, error) {
	u, err := NewUpdate(t.modelConfig(), t.Batch, 1)
	if err != nil {
		return nil, err
	}
	kept, err := u.MeasureMemory()
	if err != nil {
		return nil, err
	}
	return &work{call: u.Run, held: kept}, nil
}

// liveBytes is the memory in use, without the scratch that is only kept for reuse,
// which takes two collections to let go of.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
