package model

import (
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// Norm is a kind of norm. The zero value is LayerNorm.
type Norm string

// The kinds of norm.
const (
	LayerNorm Norm = "layer" // subtracts the mean, divides by the deviation
	RMSNorm   Norm = "rms"   // divides by the root mean square, without a bias
)

// Activation is an activation of an MLP or of the units before the head.
type Activation string

// The activations. The zero value of an MLP is TanhGELU, that of the units before the head
// is ReLU.
const (
	TanhGELU  Activation = "gelu-tanh"
	GELU      Activation = "gelu" // exact
	ReLU      Activation = "relu"
	SiLU      Activation = "silu"       // of an MLP alone
	SwiGLU    Activation = "swiglu"     // of an MLP alone: a SiLU gates a second projection
	GEGLU     Activation = "geglu"      // of an MLP alone: an exact GELU gates it
	TanhGEGLU Activation = "geglu-tanh" // of an MLP alone: a GELU in its tanh form gates it
	Tanh      Activation = "tanh"       // of the units before the head alone
)

// DropoutKind is what dropout of attention drops. The zero value is DropTokens.
type DropoutKind string

// The kinds of dropout of attention, which correspond to attention.DropKind.
const (
	DropTokens   DropoutKind = "1d"        // whole tokens
	DropElements DropoutKind = "standard"  // elements of queries and keys
	DropProducts DropoutKind = "quadratic" // products of channels
)

// norms and mlps list the kinds, the default first.
var (
	norms = []Norm{LayerNorm, RMSNorm}
	mlps  = []mlpKind{
		{TanhGELU, nn.TanhGELU, false}, {GELU, nn.GELU, false}, {ReLU, nn.ReLU, false}, {SiLU, nn.SiLU, false},
		{SwiGLU, nn.SiLU, true}, {GEGLU, nn.GELU, true}, {TanhGEGLU, nn.TanhGELU, true},
	}
)

// headActivations holds the activations of units before the head.
var headActivations = map[Activation]nn.Activation{"": nn.ReLU, ReLU: nn.ReLU, Tanh: nn.Tanh, GELU: nn.GELU, TanhGELU: nn.TanhGELU}

// mlpKind is a kind of MLP.
type mlpKind struct {
	name  Activation
	act   nn.Activation
	gated bool
}

// checkKinds returns an error if the norm or the activation is not listed.
func (c validation) checkKinds() error {
	if c.Norm != "" && !slices.Contains(norms, c.Norm) {
		return fieldErrorf("{Norm}: %q is none of %s", c.Norm, joinNames(norms))
	}
	var names []Activation
	for _, k := range mlps {
		names = append(names, k.name)
	}
	if c.Activation != "" && !slices.Contains(names, c.Activation) {
		return fieldErrorf("{Activation}: %q is none of %s", c.Activation, joinNames(names))
	}
	return nil
}

// joinNames returns the names with commas between them.
func joinNames[S ~string](names []S) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return strings.Join(list, ", ")
}

// mlpKind returns the kind of the MLP of a valid configuration.
func (c Config) mlpKind() mlpKind {
	for _, k := range mlps {
		if k.name == c.Activation {
			return k
		}
	}
	return mlps[0]
}

// newNorm makes a norm for rows of the given width.
func (b *builder) newNorm(name string, width int) nn.Norm {
	if b.c.Norm == RMSNorm {
		return b.newRMSNorm(name, width)
	}
	gain := b.addConstant(name+".weight", 1, width)
	var bias *param.Param
	if b.c.biases().Norm {
		bias = b.addConstant(name+".bias", 0, width)
	}
	return nn.NewLayerNorm(gain, bias, float(b.c.epsilon()))
}

// newRMSNorm makes an RMSNorm for rows of the given width.
func (b *builder) newRMSNorm(name string, width int) *nn.RMSNorm {
	gain := float(1)
	if b.c.NormOffset {
		gain = 0
	}
	return &nn.RMSNorm{Gain: b.addConstant(name+".weight", gain, width), Eps: float(b.c.epsilon()), Offset: b.c.NormOffset}
}

// identity is a norm that leaves rows unchanged.
type identity struct{}

// Forward copies x to y. Factors of rows are 1.
func (identity) Forward(y, x tensor.Mat, stats []tensor.Float) {
	for i := range x.Rows {
		copy(y.Row(i), x.Row(i))
		stats[2*i], stats[2*i+1] = 0, 1
	}
}

// Backward adds dy to dx.
func (identity) Backward(dx, dy, _ tensor.Mat, _ []tensor.Float) { nn.AddTo(dx, dy) }

// Affine returns no gain and no bias. A row keeps its mean.
func (identity) Affine() (gain, bias []tensor.Float, centred bool) { return nil, nil, false }

// newMLP makes an MLP.
func (b *builder) newMLP(name string) nn.Branch {
	kind, bias := b.c.mlpKind(), b.c.biases().MLP
	var gate nn.Linear
	if kind.gated {
		gate = b.newLinear(name+".gate_proj", 1, b.c.hiddenWidth(), b.c.Width, bias)
	}
	up := b.newLinear(name+".up_proj", 1, b.c.hiddenWidth(), b.c.Width, bias)
	down := b.newLinear(name+".down_proj", b.residualShare(), b.c.Width, b.c.hiddenWidth(), bias)
	if kind.gated {
		return nn.NewGatedMLP(gate, up, down, kind.act)
	}
	return nn.NewMLP(up, down, kind.act)
}
