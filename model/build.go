package model

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

const (
	// embedded is the standard deviation of initial weights in models that embed tokens
	// (Radford et al. 2019, GPT-2). Models of numbers, whose inputs are about 1 in
	// size, start with the variance of PyTorch's linear layers, 1/(3·in).
	embedded = 0.02

	convDeviation = 0.3
	normEps       = 1e-5
	minNormEps    = 0x1p-126 // smaller numbers lose digits or are 0 in float32
	// attentionNormEps is far below the mean square of an average over many values.
	attentionNormEps = 1e-12
	sinusoids        = 1 << 22 // elements of their table at most
)

// builder makes the weights of a model. Weight i is drawn from the random stream of
// key.Fold(i). Without a key matrices stay 0.
type builder struct {
	c   Config
	key *rng.Key
	// undrawn leaves weights at 0. The key then serves only the random numbers of mechanisms.
	undrawn bool
	set     param.Set
	// seeds holds the seeds of layers whose mechanism draws random numbers while it
	// computes. Files contain them; without a key, the builder starts with those of a file.
	seeds map[string]uint64
	// constants holds the numbers that mechanisms draw and do not learn.
	constants param.Set
	layers    []layer             // layers of attention
	relative  attention.Mechanism // the mechanism of all layers; nil: each has its own
	err       error

	countsOnly   bool    // weights are only counted: they have no elements
	size         float64 // number of counted weights
	constantSize float64 // number of counted constants
}

// addWeight adds a weight and draws its elements with first.
func (b *builder) addWeight(name string, decay bool, first nn.Initializer, shape ...int) *param.Param {
	p := b.addParam(name, decay, shape...)
	if b.key == nil || b.undrawn || b.countsOnly {
		return p
	}
	key := b.key.Fold(uint64(len(b.set.All()) - 1))
	for i := range p.Data {
		p.Data[i] = float(first(key, uint64(i)))
	}
	return p
}

func (b *builder) addParam(name string, decay bool, shape ...int) *param.Param {
	if !b.countsOnly {
		return b.set.New(name, decay, shape...)
	}
	size := 1.0
	for _, n := range shape {
		size *= float64(n)
	}
	b.size += size
	return &param.Param{Name: name, Shape: shape}
}

// addNormal adds a weight from a normal distribution.
func (b *builder) addNormal(name string, deviation float64, shape ...int) *param.Param {
	return b.addWeight(name, true, nn.NormalInit(deviation), shape...)
}

// addConstant adds a vector of equal elements that does not decay.
func (b *builder) addConstant(name string, x float, size int) *param.Param {
	p := b.addParam(name, false, size)
	for i := range p.Data {
		p.Data[i] = x
	}
	return p
}

// initDeviation returns the standard deviation of initial weights of a layer with in
// inputs.
func (b *builder) initDeviation(in int) float64 {
	if b.c.Inputs > 0 {
		return 1 / math.Sqrt(3*float64(in))
	}
	return embedded
}

// entryDeviation returns the standard deviation of initial embeddings, of projections
// of standardised numbers, and of position vectors: the terms of the first residual
// stream.
func (b *builder) entryDeviation() float64 { return b.initDeviation(1) }

// newLinear adds a projection. Its initial weights are multiplied by share.
func (b *builder) newLinear(name string, share float64, out, in int, bias bool) nn.Linear {
	l := nn.Linear{W: b.addNormal(name+".weight", share*b.initDeviation(in), out, in)}
	if bias {
		l.B = b.addConstant(name+".bias", 0, out)
	}
	return l
}

// residualShare returns the factor of initial weights in projections that add to the
// residual stream. With it the sum of their 2·Layers terms has the variance of one term.
func (b *builder) residualShare() float64 { return 1 / math.Sqrt(2*float64(b.c.Layers)) }

// newDecay makes the log-decay of attention, nil if the configuration has none. A gate
// has a bias even without Config.Bias.
func (b *builder) newDecay(name string) *nn.Decay {
	hkv := b.c.kvHeads()
	switch b.c.Decay {
	case FixedDecay:
		d := &nn.Decay{LogDecays: make([]float, hkv)}
		for h := range d.LogDecays {
			d.LogDecays[h] = float(nn.Retention(h))
		}
		return d
	case LearnedDecay:
		d := &nn.Decay{Gate: nn.Linear{W: b.addNormal(name+".weight", b.initDeviation(b.c.Width), hkv, b.c.Width), B: b.addConstant(name+".bias", 0, hkv)}}
		for h := range d.Gate.B.Data {
			d.Gate.B.Data[h] = float(nn.RetentionGate(h))
		}
		return d
	}
	return nil
}

// newMixer makes the mixer of a block. causal selects causal self-attention. layer is the number
// of the layer, or noLayer for Config.Mechanism.
func (b *builder) newMixer(name string, causal bool, layer int) nn.Mixer {
	if b.c.Kind == Convolutional {
		return b.newBareAttention(name)
	}
	row, owns := nn.LookupMixer(b.c.Mechanism)
	if !owns {
		return b.newAttention(name, causal, layer)
	}
	m, err := nn.NewMixer(row, b.c.Width, b.c.mechanismOptions(), b.weightMaker(name))
	if err != nil {
		b.err = err
	}
	return m
}

// weightMaker returns the maker of a layer's weights. Their names begin with layer.
func (b *builder) weightMaker(layer string) *nn.WeightMaker {
	return &nn.WeightMaker{
		New: func(name string, decay bool, first nn.Initializer, shape ...int) *param.Param {
			return b.addWeight(layer+"."+name, decay, first, shape...)
		},
		Bias: b.c.Bias, Deviation: b.initDeviation, Residual: b.residualShare(),
	}
}

// newMixerBlock makes the block of the mixer of layer i. causal selects a causal mixer.
func (b *builder) newMixerBlock(name string, i int, causal bool) block {
	x := block{norm: identity{}, rotation: b.c.rotationKind(i), residual: true}
	if i > 0 || !b.c.NoFirstNorm {
		x.norm = b.newNorm(name+"attn_norm", b.c.Width)
	}
	x.conv = b.newConv(name + "attn_conv")
	x.mixer = b.newMixer(name+"attn", causal, i)
	if b.c.BranchNorm {
		x.out = b.newNorm(name+"attn_out_norm", b.c.Width)
	}
	x.branch = x.mixer
	return x
}

// newInnerBlock makes the block after the mixer: an MLP or an ISTA step.
func (b *builder) newInnerBlock(name string) block {
	x := block{parallel: b.c.ParallelBlocks != ""}
	if b.c.ParallelBlocks != ParallelOne {
		x.norm = b.newNorm(name+"mlp_norm", b.c.Width)
	}
	x.conv, x.byRow = b.newConv(name+"mlp_conv"), true
	row, _ := nn.LookupMixer(b.c.Mechanism)
	if x.residual = !row.ISTA; x.residual {
		x.branch = b.newMLP(name + "mlp")
		if b.c.BranchNorm {
			x.out = b.newNorm(name+"mlp_out_norm", b.c.Width)
		}
		return x
	}
	ista, err := nn.NewISTA(row, b.c.Width, b.c.mechanismOptions(), b.weightMaker(name+"mlp"))
	if err != nil {
		b.err = err
	}
	x.branch = ista
	return x
}

// newAttention makes a layer of attention. causal selects causal self-attention. layer is the
// number of the layer, or noLayer for Config.Mechanism.
func (b *builder) newAttention(name string, causal bool, layer int) *nn.Attention {
	w, d, bias := b.c.Width, b.c.headWidth(), b.c.biases()
	a := &nn.Attention{H: b.c.Heads, Hkv: b.c.kvHeads(), D: d}
	a.Q = b.newLinear(name+".q_proj", 1, a.H*d, w, bias.QKV)
	a.K = b.newLinear(name+".k_proj", 1, a.Hkv*d, w, bias.QKV)
	a.V = b.newLinear(name+".v_proj", 1, a.Hkv*d, w, bias.QKV)
	a.O = b.newLinear(name+".o_proj", b.residualShare(), w, a.H*d, bias.O)
	if b.c.QKNorm {
		a.QNorm, a.KNorm = b.newRMSNorm(name+".q_norm", d), b.newRMSNorm(name+".k_norm", d)
	}
	if b.c.AttentionNorm {
		a.ONorm = &nn.RMSNorm{Gain: b.addConstant(name+".o_norm.weight", 0, d), Eps: attentionNormEps, Residual: true}
	}
	if causal {
		a.Decay = b.newDecay(name + ".decay")
	}
	if b.c.RelativeBuckets > 0 {
		b.shareRelative(name, a)
	} else {
		b.setMechanism(name, a, layer)
	}
	if causal && b.err == nil { // it generates from a state
		b.err = a.Mechanism.Plan(attention.Shape{B: 1, H: a.H, Hkv: a.Hkv, N: 1, M: 1, D: d, Dv: d, Causal: true}).WidthError
	}
	return a
}

// setMechanism sets the mechanism of a to the mechanism of layer number, or for noLayer to
// Config.Mechanism.
func (b *builder) setMechanism(name string, a *nn.Attention, number int) {
	kind, o := b.c.layerMechanism(number)
	seed, isKnown := b.seeds[name]
	if o.Seed = seed; b.key != nil && !isKnown {
		o.Seed = b.key.Fold(uint64(len(b.set.All()))).Uint64(0) // of the next weight
	}
	m, err := newMechanism(&b.c, kind, o)
	if err != nil {
		b.err = err
		return
	}
	a.Mechanism = m
	if b.countsOnly {
		b.size += float64(m.Params().Size())
		b.constantSize += float64(m.Constants().Size())
		return
	}
	if b.key != nil && m.Params().Size()+m.Constants().Size() == 0 {
		seed := o.Seed
		o.Seed = 0
		if unseeded, err := newMechanism(&b.c, kind, o); err == nil && unseeded.Setting() != m.Setting() {
			b.seeds[name] = seed
		}
	}
	b.layers = append(b.layers, layer{name, number, a, m})
	b.set.AddPrefixed(name+".", m.Params())
	b.constants.AddPrefixed(name+".", m.Constants())
}

// shareRelative sets the mechanism of a to softmax with a bias by distance, which all layers
// of the model share.
func (b *builder) shareRelative(name string, a *nn.Attention) {
	if b.relative == nil {
		if b.relative, b.err = mechanism.NewRelativeSoftmax(b.c.Heads, b.c.RelativeBuckets); b.err != nil {
			return
		}
		if !b.countsOnly {
			b.set.AddPrefixed("relative.", b.relative.Params())
		}
	}
	a.Mechanism = b.relative
	if !b.countsOnly {
		b.layers = append(b.layers, layer{name, noLayer, a, b.relative})
	}
}

// newConv makes a convolution that starts as the identity plus noise, nil if the
// configuration has none. From the identity alone, channels take long to differ.
func (b *builder) newConv(name string) *nn.Conv {
	if b.c.Conv == 0 {
		return nil
	}
	p := b.addNormal(name+".weight", convDeviation, b.c.Conv, b.c.Width)
	p.Decay = false
	for i := range min(b.c.Width, len(p.Data)) {
		p.Data[i]++
	}
	return &nn.Conv{W: p}
}

// newStack makes an encoder or a decoder; cross adds attention to a source.
func (b *builder) newStack(prefix string, layers, vocab int, causal, cross bool) *stack {
	c := b.c
	s := &stack{width: c.Width, causal: causal, post: c.PostNorm, parallel: c.ParallelBlocks != "", turns: c.rotations()}
	s.entry.scale = float(orDefault(c.EntryScale, 1))
	s.drop.Rate = c.AttentionDropout
	s.drop.Kind, _ = c.dropKind() // validated
	s.rate = c.Dropout
	if c.Inputs > 0 {
		s.entry.numbers = b.newLinear(prefix+"input", 1, c.Width, c.Inputs, c.Bias)
	} else if !c.SharedEmbedding || cross {
		s.entry.embed.W = b.addNormal(prefix+"embed.weight", b.entryDeviation(), vocab, c.Width)
	}
	if c.frontPositions() > 0 {
		s.entry.front = b.addNormal(prefix+"cls.weight", b.entryDeviation(), c.Width)
		s.entry.front.Decay = false
	}
	switch c.Positions {
	case Learned:
		s.entry.position = &nn.Learned{W: b.addNormal(prefix+"position.weight", b.entryDeviation(), c.positionRows(), c.Width), Offset: c.PositionOffset}
	case Sinusoidal:
		// Sinusoids of this amplitude are as large as initial embeddings.
		s.entry.position = nn.NewSinusoidal(c.Width, b.entryDeviation()*math.Sqrt2, min(c.positionRows(), sinusoids/c.Width))
	}
	if c.TokenTypes > 0 {
		s.entry.types = &nn.Embedding{W: b.addNormal(prefix+"type.weight", b.entryDeviation(), c.TokenTypes, c.Width)}
	}
	if c.EntryNorm {
		s.entry.norm = b.newNorm(prefix+"entry_norm", c.Width)
	}
	for i := range layers {
		name := fmt.Sprintf("%slayers.%d.", prefix, i)
		s.blocks = append(s.blocks, b.newMixerBlock(name, i, causal))
		if cross {
			s.blocks = append(s.blocks, block{norm: b.newNorm(name+"cross_norm", c.Width), branch: nn.CrossAttention{Layer: b.newAttention(name+"cross", false, noLayer)}, residual: true})
		}
		s.blocks = append(s.blocks, b.newInnerBlock(name))
	}
	s.period = len(s.blocks) / layers
	if s.norm = (identity{}); !c.NoFinalNorm {
		s.norm = b.newNorm(prefix+"norm", c.Width)
	}
	return s
}
