package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
)

// Params returns the number of weights of a model of a valid configuration.
func (c Config) Params() int { return int(c.size(c.mechanismParams())) }

// size is Params with that many weights of a mechanism. It is exact below 2⁵³
// and does not overflow.
func (c Config) size(mechanism int) float64 {
	w, bias := float64(c.Width), 0.0
	if c.Bias {
		bias = 1
	}
	linear := func(out, in float64) float64 { return out * (in + bias) }
	norm := (1 + bias) * w
	vocab, hidden, layers := float64(c.Vocab), float64(c.hidden()), float64(c.Layers)

	keys := float64(c.kvHeads() * c.headWidth())
	norm += float64(c.Conv) * w // of a block
	attention := norm + 2*linear(w, w) + 2*linear(keys, w) + float64(mechanism)
	mlp := norm + linear(hidden, w) + linear(w, hidden)
	stack := norm - float64(c.Conv)*w + layers*(attention+mlp)
	if c.Positions == Learned {
		stack += float64(c.Context) * w
	}
	n := stack + vocab*(w+bias)
	if c.Decay == LearnedDecay {
		n += layers * float64(c.kvHeads()) * (w + 1)
	}
	if !c.Tied {
		n += vocab * w
	}
	if c.Kind == EncoderDecoder {
		n += stack + float64(c.sourceVocab())*w + layers*attention // cross-attention
	}
	return n
}

// mechanismParams returns the number of weights of one layer's mechanism.
func (c Config) mechanismParams() int {
	m, err := mechanism.New[float32](c.Mechanism, c.options())
	if err != nil {
		return 0
	}
	return m.Params().Size()
}

// TrainFLOPs returns the floating-point operations of training on that many
// tokens, in sequences as long as the context: forward, and twice as much
// backward. A multiply-add counts two. Of an encoder-decoder a token is one of
// the decoder's, and sources are as long as targets.
func (c Config) TrainFLOPs(tokens float64) float64 {
	w := float64(c.Width)
	keys := float64(c.kvHeads() * c.headWidth())
	projections := 2 * (2*w*w + 2*w*keys)
	mlp := 2 * 2 * w * float64(c.hidden())
	layers := float64(c.Layers)
	projections += 2 * float64(2*c.Conv) * w
	token := layers*(projections+mlp+c.attentionFLOPs(c.Kind != Encoder)) + 2*w*float64(c.Vocab)
	if c.Decay == LearnedDecay {
		token += layers * 2 * w * float64(c.kvHeads())
	}
	if c.Kind == EncoderDecoder {
		token += layers * (projections + mlp + c.attentionFLOPs(false)) // the encoder
		token += layers * (projections + c.attentionFLOPs(false))       // cross-attention
	}
	return 3 * token * tokens
}

// attentionFLOPs returns the operations of one layer's mechanism, forward, a
// token.
func (c Config) attentionFLOPs(causal bool) float64 {
	m, err := mechanism.New[float32](c.Mechanism, c.options())
	if err != nil {
		return 0
	}
	d := c.headWidth()
	plan := m.Plan(attention.Shape{B: 1, H: c.Heads, Hkv: c.kvHeads(), N: c.Context, M: c.Context, D: d, Dv: d, Causal: causal})
	return plan.FLOPs / float64(c.Context)
}
