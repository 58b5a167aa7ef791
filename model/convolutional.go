package model

import (
	"fmt"
	"strings"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// convNet is a one-dimensional convolutional net (Fleuret). Each convolution over windows of
// positions is followed by a ReLU. Attention without a residual stands in the middle. The
// last convolution is the head, which reads windows.
type convNet struct {
	width, window int
	layers        []nn.Linear   // of windows [width,window·channels]
	attn          *nn.Attention // nil: none
}

// convTrace holds the intermediate results of forward that backward reads.
type convTrace struct {
	layers []struct{ windows, act []float } // [b·n,window·channels] and [b·n,width] after ReLU
	mixed  []float                          // [b·n,width] after attention
	attn   nn.AttentionTrace
	y      []float // [b·n,window·width]
}

// forward returns windows [b·n,window·width] of the last outputs. They lie in tr.
func (c *convNet) forward(in *input, tr *convTrace, keep bool) (tensor.Mat, error) {
	if tr.layers == nil {
		tr.layers = make([]struct{ windows, act []float }, len(c.layers))
	}
	x := in.values
	for i := range c.layers {
		if err := in.contextErr(); err != nil {
			return x, err
		}
		t := &tr.layers[i]
		windows, act := resizeMatrix(&t.windows, x.Rows, c.window*x.Cols), resizeMatrix(&t.act, x.Rows, c.width)
		windowRows(windows, x, in.b, in.lens)
		c.layers[i].Forward(act, windows, false)
		nn.Activate(nn.ReLU, act, act)
		x = act
		if c.isAttentionAfter(i) {
			mixed := resizeMatrix(&tr.mixed, x.Rows, c.width)
			clear(mixed.Data)
			if err := c.attn.Forward(mixed, mixed, x, nn.Scope{B: in.b, KeyLens: in.lens}, &tr.attn, keep); err != nil {
				return x, err
			}
			x = mixed
		}
	}
	y := resizeMatrix(&tr.y, x.Rows, c.window*c.width)
	windowRows(y, x, in.b, in.lens)
	return y, nil
}

// isAttentionAfter reports whether attention follows layer i. Half of the convolutions,
// counting the head, lie before the attention.
func (c *convNet) isAttentionAfter(i int) bool { return c.attn != nil && i == (len(c.layers)+1)/2-1 }

// backward adds to the gradients of the weights, from dy [b·n,window·width].
func (c *convNet) backward(dy tensor.Mat, in *input, tr *convTrace, sc *scratch) error {
	rows := dy.Rows
	dx, dz := resizeMatrix(&sc.dx, rows, c.width), resizeMatrix(&sc.dz, rows, c.width)
	windowRowsGrad(dx, dy, in.b, in.lens)
	for i := len(c.layers) - 1; i >= 0; i-- {
		if err := in.contextErr(); err != nil {
			return err
		}
		l, t := &c.layers[i], &tr.layers[i]
		act := resizeMatrix(&t.act, rows, c.width)
		if c.isAttentionAfter(i) {
			if err := c.attn.Backward(dz, dx, act, &tr.attn, &sc.branch); err != nil {
				return err
			}
			dx, dz = dz, dx
		}
		nn.ActivateGrad(nn.ReLU, dx, dx, act)
		windows := resizeMatrix(&t.windows, rows, l.W.Shape[1])
		if i == 0 {
			l.BackwardWeights(dx, windows)
			break
		}
		dwindows := resizeMatrix(&sc.dspread, rows, windows.Cols)
		l.Backward(dwindows, dx, windows, false)
		windowRowsGrad(dx, dwindows, in.b, in.lens)
	}
	return nil
}

// newConvNet makes a net without its head. buildModel makes the head, as for other kinds.
func (b *builder) newConvNet() *convNet {
	c := &convNet{width: b.c.Width, window: b.c.Conv}
	channels := b.c.Inputs
	for i := range b.c.Layers - 1 {
		c.layers = append(c.layers, b.uniformLinear(fmt.Sprintf("layers.%d", i), b.c.Width, b.c.Conv*channels, b.c.Bias))
		channels = b.c.Width
	}
	if b.c.Mechanism != "" {
		c.attn = b.newBareAttention("attn")
	}
	return c
}

// uniformLinear makes a layer with initial weights uniform within ±1/√in, as in
// PyTorch.
func (b *builder) uniformLinear(name string, out, in int, bias bool) nn.Linear {
	l := nn.Linear{W: b.addWeight(name+".weight", true, nn.FanInInit(in), out, in)}
	if bias {
		l.B = b.addWeight(name+".bias", false, nn.FanInInit(in), out)
	}
	return l
}

// newBareAttention makes attention without biases and without an output projection.
func (b *builder) newBareAttention(name string) *nn.Attention {
	w, d := b.c.Width, b.c.headWidth()
	a := &nn.Attention{H: b.c.Heads, Hkv: b.c.kvHeads(), D: d}
	a.Q = b.uniformLinear(name+".q_proj", w, w, false)
	a.K = b.uniformLinear(name+".k_proj", a.Hkv*d, w, false)
	a.V = b.uniformLinear(name+".v_proj", a.Hkv*d, w, false)
	b.setMechanism(name, a, noLayer)
	return a
}

// checkConvolutional returns an error if fields are set that a convolutional net does
// not support.
func (c validation) checkConvolutional() error {
	if c.Vocab != 0 {
		return fieldErrorf("{Vocab}: {Kind} %s has none, it reads numbers and not %d tokens; set {Kind} to %s or %s", c.Kind, c.Vocab, Encoder, Decoder)
	}
	// The error names all such fields, because setting only the kind
	// leaves several of them.
	var names, ways []string
	for _, f := range []struct {
		name string
		set  bool
		way  string
	}{
		{"{Hidden}", c.Hidden != 0, "{Hidden} to 0"}, {"{Decay}", c.hasDecay(), "{Decay} to " + string(NoDecay)}, {"{Activation}", c.Activation != "", "{Activation} to nothing"},
		{"{Norm}", c.Norm != "", "{Norm} to nothing"},
		{"{PostNorm}", c.PostNorm, "{PostNorm} to false"}, {"{Tied}", c.Tied, "{Tied} to false"}, {"{Dropout}", c.Dropout != 0, "{Dropout} to 0"},
		{"{AttentionDropout}", c.AttentionDropout != 0, "{AttentionDropout} to 0"}, {"{Positions}", c.Positions != NoPosition, "{Positions} to " + string(NoPosition)},
		{"{Pool}", c.Pool == PoolCLS, "{Pool} to " + string(PoolMean)}, {"{Heads}", c.Mechanism == "" && c.Heads != 0, "{Heads} to 0"},
		{"{KVHeads}", c.Mechanism == "" && c.KVHeads != 0, "{KVHeads} to 0"}, {"{Order}", c.Mechanism == "" && c.Order != 0, "{Order} to 0"},
		{"{Set}", c.Mechanism == "" && len(c.Set) > 0, "{Set} to nothing"},
	} {
		if f.set {
			names, ways = append(names, f.name), append(ways, f.way)
		}
	}
	if names != nil {
		return fieldErrorf(strings.Join(names, ", ")+": {Kind} %s has none with these settings; set "+strings.Join(ways, ", "), c.Kind)
	}
	_, owns := nn.LookupMixer(c.Mechanism)
	switch {
	case owns:
		return fieldErrorf("{Mechanism}: %s owns its projections, and so does {Kind} %s; set {Kind} to %s, or {Mechanism} to an attention function such as softmax", c.Mechanism, c.Kind, Decoder)
	case c.Inputs == 0:
		return fieldErrorf("{Inputs}: {Kind} %s reads numbers, needs 1 or more at each position; set {Inputs}, or {Kind} to %s or %s", c.Kind, Encoder, Decoder)
	case c.Layers < 2:
		return fieldErrorf("{Layers}: %d, {Kind} %s needs 2 convolutions or more, the head among them; set {Layers} to 2", c.Layers, c.Kind)
	case c.Conv%2 == 0:
		return fieldErrorf("{Conv}: %d, {Kind} %s needs windows of an odd number of positions; set {Conv} to %d", c.Conv, c.Kind, c.Conv+1)
	}
	return nil
}
