package model

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	// embedded is the deviation of the first weights of nets that embed tokens
	// (Radford et al. 2019, GPT-2). Nets of numbers, whose inputs are as large as 1,
	// start with the variance of PyTorch's linear layers, 1/(3·in).
	embedded = 0.02

	convDeviation = 0.3
	normEps       = 1e-5
	sinusoids     = 1 << 22 // elements of their table at most
)

// builder makes the weights of a model. Weight i of the set starts from the
// stream of numbers that key.Fold(i) names; without a key matrices stay 0.
type builder[T tensor.Float] struct {
	c   Config
	key *rng.Key
	set param.Set[T]
	// constants are the numbers that mechanisms have drawn.
	constants param.Set[T]
	layers    []layer[T] // of attention
	err       error

	bare  bool    // weights are only counted: they have no elements
	size  float64 // of bare weights
	drawn float64 // constants beside them
}

// weight adds one.
func (b *builder[T]) weight(name string, decay bool, first nn.First, shape ...int) *param.Param[T] {
	p := b.add(name, decay, shape...)
	if b.key == nil || b.bare {
		return p
	}
	key := b.key.Fold(uint64(len(b.set.All()) - 1))
	for i := range p.Data {
		p.Data[i] = T(first(key, uint64(i)))
	}
	return p
}

func (b *builder[T]) add(name string, decay bool, shape ...int) *param.Param[T] {
	if !b.bare {
		return b.set.New(name, decay, shape...)
	}
	size := 1.0
	for _, n := range shape {
		size *= float64(n)
	}
	b.size += size
	return &param.Param[T]{Name: name, Shape: shape}
}

// normal adds a weight from a normal distribution.
func (b *builder[T]) normal(name string, deviation float64, shape ...int) *param.Param[T] {
	return b.weight(name, true, nn.Normal(deviation), shape...)
}

// constant adds a vector of equal elements that does not decay.
func (b *builder[T]) constant(name string, x T, size int) *param.Param[T] {
	p := b.add(name, false, size)
	for i := range p.Data {
		p.Data[i] = x
	}
	return p
}

// deviation is that of the first weights over so many inputs.
func (b *builder[T]) deviation(in int) float64 {
	if b.c.Inputs > 0 {
		return 1 / math.Sqrt(3*float64(in))
	}
	return embedded
}

// entering is the deviation of what a row is the sum of when it enters: an
// embedding, or a projection of standardised numbers, and a place's own vector.
func (b *builder[T]) entering() float64 { return b.deviation(1) }

// linear adds a projection, whose first weights are share times as large as others.
func (b *builder[T]) linear(name string, share float64, out, in int) nn.Linear[T] {
	l := nn.Linear[T]{W: b.normal(name+".weight", share*b.deviation(in), out, in)}
	if b.c.Bias {
		l.B = b.constant(name+".bias", 0, out)
	}
	return l
}

// residual is the share of projections that add to the residual stream: of its
// 2·layers terms each has as much of the variance.
func (b *builder[T]) residual() float64 { return 1 / math.Sqrt(2*float64(b.c.Layers)) }

// decay is nil if there is none. A gate has a bias of its own.
func (b *builder[T]) decay(name string) *nn.Decay[T] {
	hkv := b.c.kvHeads()
	switch b.c.Decay {
	case FixedDecay:
		d := &nn.Decay[T]{Fixed: make([]T, hkv)}
		for h := range d.Fixed {
			d.Fixed[h] = T(nn.Retention(h))
		}
		return d
	case LearnedDecay:
		d := &nn.Decay[T]{Gate: nn.Linear[T]{W: b.normal(name+".weight", b.deviation(b.c.Width), hkv, b.c.Width), B: b.constant(name+".bias", 0, hkv)}}
		for h := range d.Gate.B.Data {
			d.Gate.B.Data[h] = T(nn.RetentionGate(h))
		}
		return d
	}
	return nil
}

// mixer makes the mixer of a block; causal says that it is.
func (b *builder[T]) mixer(name string, causal bool) nn.Mixer[T] {
	if b.c.Kind == Convolutional {
		return b.bareAttention(name)
	}
	row, owns := nn.LookupMixer(b.c.Mechanism)
	if !owns {
		return b.attention(name, causal)
	}
	m, err := nn.NewMixer(row, b.c.Width, b.c.options(), b.weights(name))
	if err != nil {
		b.err = err
	}
	return m
}

// weights makes the weights of a layer.
func (b *builder[T]) weights(layer string) *nn.Weights[T] {
	return &nn.Weights[T]{
		New: func(name string, decay bool, first nn.First, shape ...int) *param.Param[T] {
			return b.weight(layer+"."+name, decay, first, shape...)
		},
		Bias: b.c.Bias, Deviation: b.deviation, Residual: b.residual(),
	}
}

// mixerBlock makes the block of a mixer; causal says that the mixer is.
func (b *builder[T]) mixerBlock(name string, causal bool) block[T] {
	x := block[T]{norm: b.norm(name + "attn_norm"), conv: b.conv(name + "attn_conv"), residual: true}
	x.mixer = b.mixer(name+"attn", causal)
	x.branch = x.mixer
	return x
}

// innerBlock makes the block after the mixer: an MLP, or an ISTA step in its place.
func (b *builder[T]) innerBlock(name string) block[T] {
	x := block[T]{norm: b.norm(name + "mlp_norm"), conv: b.conv(name + "mlp_conv")}
	row, _ := nn.LookupMixer(b.c.Mechanism)
	if x.residual = !row.ISTA; x.residual {
		x.branch = b.mlp(name + "mlp")
		return x
	}
	ista, err := nn.NewISTA(row, b.c.Width, b.c.options(), b.weights(name+"mlp"))
	if err != nil {
		b.err = err
	}
	x.branch = ista
	return x
}

// attention makes a layer; causal says that it is self-attention which is.
func (b *builder[T]) attention(name string, causal bool) *nn.Attention[T] {
	w, d := b.c.Width, b.c.headWidth()
	a := &nn.Attention[T]{H: b.c.Heads, Hkv: b.c.kvHeads(), D: d}
	a.Q = b.linear(name+".q_proj", 1, w, w)
	a.K = b.linear(name+".k_proj", 1, a.Hkv*d, w)
	a.V = b.linear(name+".v_proj", 1, a.Hkv*d, w)
	a.O = b.linear(name+".o_proj", b.residual(), w, w)
	if causal {
		a.Decay = b.decay(name + ".decay")
	}
	b.mechanism(name, a)
	if causal && b.err == nil { // it generates from a state
		b.err = a.Mechanism.Plan(attention.Shape{B: 1, H: a.H, Hkv: a.Hkv, N: 1, M: 1, D: d, Dv: d, Causal: true}).Wide
	}
	return a
}

// mechanism gives a layer its mechanism.
func (b *builder[T]) mechanism(name string, a *nn.Attention[T]) {
	o := b.c.options()
	if b.key != nil {
		o.Seed = b.key.Fold(uint64(len(b.set.All()))).Uint64(0) // of the next weight
	}
	m, err := mechanism.New[T](b.c.Mechanism, o)
	if err != nil {
		b.err = err
		return
	}
	a.Mechanism = m
	if b.bare {
		b.size += float64(m.Params().Size())
		b.drawn += float64(m.Constants().Size())
		return
	}
	b.layers = append(b.layers, layer[T]{name, a})
	b.set.Join(name+".", m.Params())
	b.constants.Join(name+".", m.Constants())
}

// conv starts as the identity with noise: from the identity alone all channels
// take long to part. It is nil if there is none.
func (b *builder[T]) conv(name string) *nn.Conv[T] {
	if b.c.Conv == 0 {
		return nil
	}
	p := b.normal(name+".weight", convDeviation, b.c.Conv, b.c.Width)
	p.Decay = false
	for i := range min(b.c.Width, len(p.Data)) {
		p.Data[i]++
	}
	return &nn.Conv[T]{W: p}
}

// stack makes an encoder or a decoder; cross adds attention to a source.
func (b *builder[T]) stack(prefix string, vocab int, causal, cross bool) *stack[T] {
	c := b.c
	s := &stack[T]{width: c.Width, d: c.headWidth(), causal: causal, post: c.PostNorm}
	s.drop.Rate = c.AttentionDropout
	s.drop.Kind, _ = c.dropKind() // validated
	s.rate = c.Dropout
	if c.Inputs > 0 {
		s.entry.numbers = b.linear(prefix+"input", 1, c.Width, c.Inputs)
	} else {
		s.entry.embed.W = b.normal(prefix+"embed.weight", b.entering(), vocab, c.Width)
	}
	if c.front() > 0 {
		s.entry.front = b.normal(prefix+"cls.weight", b.entering(), c.Width)
		s.entry.front.Decay = false
	}
	positions := c.Context + c.front()
	switch c.Positions {
	case Learned:
		s.position = &nn.Learned[T]{W: b.normal(prefix+"position.weight", b.entering(), positions, c.Width)}
	case Sinusoidal:
		// Sines of this amplitude are as large as the first embeddings.
		s.position = nn.NewSinusoidal[T](c.Width, b.entering()*math.Sqrt2, min(positions, sinusoids/c.Width))
	case Rotary:
		s.theta = c.theta()
	}
	for i := range c.Layers {
		name := fmt.Sprintf("%slayers.%d.", prefix, i)
		s.blocks = append(s.blocks, b.mixerBlock(name, causal))
		if cross {
			s.blocks = append(s.blocks, block[T]{norm: b.norm(name + "cross_norm"), branch: nn.CrossAttention[T]{Layer: b.attention(name+"cross", false)}, residual: true})
		}
		s.blocks = append(s.blocks, b.innerBlock(name))
	}
	s.period = len(s.blocks) / c.Layers
	s.norm = b.norm(prefix + "norm")
	return s
}
