package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/nn"
)

// Params returns the number of weights of a model of a valid configuration.
func (c Config) Params() int {
	_, size, err := bareMixer(c, true, noLayer)
	if err != nil {
		return 0
	}
	return int(cost{c}.weightSize(size))
}

// NewMechanism returns Config.Mechanism with its options, and the shape of its calls for a sequence
// of Context tokens. The result serves only to ask for traits and plans. It returns nil if the mixer
// has projections of its own or there is no attention, and an error if the mechanism refuses its
// options.
func NewMechanism(c Config) (attention.Mechanism, attention.Shape, error) {
	m, _, err := bareMixer(c, c.IsCausal(), noLayer)
	a, is := m.(*nn.Attention)
	if err != nil || !is {
		return nil, attention.Shape{}, err
	}
	s := attention.Shape{B: 1, H: c.Heads, Hkv: a.Hkv, N: c.Context, M: c.Context, D: a.D, Dv: a.D, Causal: c.IsCausal()}
	return a.Mechanism, s, nil
}

// bareMixer returns the mixer of a layer, or for noLayer one with Mechanism, and its number of
// weights. The weights have no elements.
func bareMixer(c Config, causal bool, layer int) (m nn.Mixer, size float64, err error) {
	if c.Heads == 0 {
		return nil, 0, nil
	}
	b := &builder{c: c, countsOnly: true}
	m = b.newMixer("", causal, layer)
	return m, b.size, b.err
}

// TrainFLOPs returns the floating-point operations of training on a number of
// positions, in sequences of the length Context. A multiply-add counts as two
// operations, and the backward pass as two forward passes. In an encoder-decoder the
// positions are the decoder's, and sources are as long as targets.
func (c Config) TrainFLOPs(tokens float64) float64 {
	x := cost{c}
	return 3 * (x.bodyFLOPs() + x.headFLOPs()) * tokens
}

// cost counts weights and operations of a valid configuration.
type cost struct{ Config }

// storedSize returns the least number of elements in a file of the model: weights and
// drawn constants.
func (c cost) storedSize() float64 {
	if c.Heads == 0 {
		return c.weightSize(0)
	}
	b := &builder{c: c.Config, countsOnly: true}
	b.newMixer("", c.IsCausal(), noLayer)
	constants := float64(c.Layers) * b.constantSize
	for _, g := range c.layerGroups() {
		own := &builder{c: c.Config, countsOnly: true}
		own.newMixer("", c.IsCausal(), g.first)
		constants += float64(g.count) * (own.constantSize - b.constantSize)
	}
	return c.weightSize(b.size) + constants
}

// weightSize returns Params for a mixer of Mechanism with the given number of weights.
// It is exact below 2⁵³ and does not overflow.
func (c cost) weightSize(mixer float64) float64 {
	w, biases := float64(c.Width), c.biases()
	linear := func(out, in float64, bias bool) float64 {
		if bias {
			in++
		}
		return out * in
	}
	vocab, layers := float64(c.Vocab), float64(c.Layers)

	outputs, read, head := float64(c.outputSize()), float64(c.pooledWidth()), 0.0
	if c.HeadHidden > 0 {
		head, read = linear(float64(c.HeadHidden), read, biases.HeadHidden), float64(c.HeadHidden)
	}
	if c.HeadNorm {
		head += c.countWeights(func(b *builder) { b.newNorm("", c.HeadHidden) })
	}
	if head += linear(outputs, read, biases.Head); c.Tied {
		head -= vocab * w
	}
	if c.Kind == Convolutional {
		window := float64(c.Conv)
		return linear(w, window*float64(c.Inputs), c.Bias) + (layers-2)*linear(w, window*w, c.Bias) + mixer + head
	}

	norm := c.countWeights(func(b *builder) { b.newNorm("", c.Width) })
	inner := c.countWeights(func(b *builder) { b.newInnerBlock("") })
	block := norm + float64(c.Conv)*w
	if c.BranchNorm {
		block += norm // of the mixer's output; inner has the other
	}
	ends := norm // of a stack, with its tables
	for _, absent := range []bool{c.NoFirstNorm, c.NoFinalNorm} {
		if absent {
			ends -= norm
		}
	}
	if c.EntryNorm {
		ends += norm
	}
	if c.positions() == Learned {
		ends += float64(c.positionRows()) * w
	}
	ends += float64(c.TokenTypes)*w + float64(c.RelativeBuckets*c.Heads)
	stack := ends + layers*(block+mixer+inner)
	for _, g := range c.layerGroups() {
		stack += float64(g.count) * (c.countWeights(func(b *builder) { b.newMixer("", c.IsCausal(), g.first) }) - mixer)
	}
	n := stack + head + float64(c.frontPositions())*w
	if c.Inputs > 0 {
		n += linear(w, float64(c.Inputs), c.Bias)
	} else {
		n += vocab * w
	}
	if c.Kind == EncoderDecoder {
		gate := 0.0 // which only the decoder's self-attention has
		if c.Decay == LearnedDecay {
			gate = float64(c.kvHeads()) * (w + 1)
		}
		source := float64(c.sourceLayers())
		n += ends + source*(block+mixer-gate+inner) + layers*(block+mixer-gate) // encoder, cross-attention
		if !c.SharedEmbedding {
			n += float64(c.sourceVocab()) * w
		}
	}
	return n
}

// countWeights returns the number of weights that build adds. The weights have no
// elements.
func (c cost) countWeights(build func(*builder)) float64 {
	b := &builder{c: c.Config, countsOnly: true}
	build(b)
	return b.size
}

// bodyFLOPs returns the operations of a forward pass without the head, per position.
func (c cost) bodyFLOPs() float64 {
	w, inputs, layers := float64(c.Width), float64(c.Inputs), float64(c.Layers)
	if c.Kind == Convolutional {
		return 2*float64(c.Conv)*w*(inputs+(layers-2)*w) + c.mixerFLOPs(false, noLayer)
	}
	inner := c.innerFLOPs() + 2*float64(2*c.Conv)*w // and the convolutions of both blocks
	token := layers * (c.mixerFLOPs(c.IsCausal(), noLayer) + inner)
	for _, g := range c.layerGroups() {
		token += float64(g.count) * (c.mixerFLOPs(c.IsCausal(), g.first) - c.mixerFLOPs(c.IsCausal(), noLayer))
	}
	if c.Kind == EncoderDecoder {
		token += float64(c.sourceLayers()) * (c.mixerFLOPs(false, noLayer) + inner)
		token += layers * c.mixerFLOPs(false, noLayer) // cross-attention
	}
	context := float64(c.Context)
	return 2*inputs*w + token*(context+float64(c.frontPositions()))/context
}

// innerFLOPs returns the operations of the MLP or ISTA step of one layer in a forward
// pass, per token.
func (c cost) innerFLOPs() float64 {
	b := &builder{c: c.Config, countsOnly: true}
	x := b.newInnerBlock("")
	if b.err != nil {
		return 0
	}
	return x.branch.FLOPs(1, c.IsCausal())
}

// headFLOPs returns the operations of the head in a forward pass, per position.
func (c cost) headFLOPs() float64 {
	row := 2 * float64(c.pooledWidth()) * float64(c.outputSize())
	if u := float64(c.HeadHidden); u > 0 {
		row = 2 * u * float64(c.pooledWidth()+c.outputSize())
	}
	if c.Pool == "" {
		return row
	}
	return row / float64(c.Context*max(c.Parts, 1))
}

// mixerFLOPs returns the operations of the mixer of a layer, or for noLayer of one with
// Mechanism, in a forward pass, per token.
func (c cost) mixerFLOPs(causal bool, layer int) float64 {
	m, _, err := bareMixer(c.Config, causal, layer)
	if err != nil || m == nil {
		return 0
	}
	return m.FLOPs(c.Context, causal) / float64(c.Context)
}
