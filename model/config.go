package model

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
)

// Kind is the kind of a model.
type Kind string

// The kinds of a model.
const (
	Decoder        Kind = "decoder"         // causal: predicts the next token
	Encoder        Kind = "encoder"         // sees all: an output for every token
	EncoderDecoder Kind = "encoder-decoder" // a decoder that sees an encoded source
	Convolutional  Kind = "convolutional"   // convolutions with ReLU, and attention in the middle
)

// Positions is a position encoding.
type Positions string

// The position encodings.
const (
	Learned    Positions = "learned"    // a trained table, added to the embeddings
	Sinusoidal Positions = "sinusoidal" // sines and cosines, added to the embeddings
	Rotary     Positions = "rope"       // queries and keys are rotated, in self-attention
	NoPosition Positions = "none"
)

// Decay is the log-decay of causal self-attention. The zero value is NoDecay.
type Decay string

// The kinds of log-decay.
const (
	NoDecay      Decay = "none"
	FixedDecay   Decay = "fixed"   // nn.Retention of the key head, the same for all tokens
	LearnedDecay Decay = "learned" // computed by a gate from each token; it starts as FixedDecay
)

// Config describes a model. Its JSON with a version is config.json, which Load reads.
type Config struct {
	Kind        Kind `json:"kind"`
	Vocab       int  `json:"vocab"`                  // number of different tokens
	SourceVocab int  `json:"source_vocab,omitempty"` // of an encoder-decoder's source; 0: Vocab

	// Inputs is the number of numbers at a position. A linear layer reads them in place
	// of token embeddings, and Vocab is 0. 0: the model reads tokens.
	Inputs int `json:"inputs,omitempty"`
	// Outputs is the number of outputs of the head; 0: Vocab.
	Outputs int `json:"outputs,omitempty"`
	// Pool reduces the positions of a sequence to one; "": the head reads every position. A decoder has no
	// PoolCLS, because its first position sees only itself; its PoolLast has seen all
	// positions.
	Pool Pool `json:"pool,omitempty"`
	// Parts is 2 if sequences 2i and 2i+1 of a batch are a pair. Their pooled x and y
	// are read as [x, y, x∘y, x-y]. 0 and 1: there are no pairs.
	Parts int `json:"parts,omitempty"`
	// HeadHidden is the number of units between pooling and outputs; 0: none.
	HeadHidden int `json:"head_hidden,omitempty"`
	// HeadActivation is the activation of HeadHidden: ReLU, Tanh, GELU or TanhGELU; "": ReLU.
	HeadActivation Activation `json:"head_activation,omitempty"`
	// HeadNorm places a norm between the units of HeadHidden and the outputs.
	HeadNorm bool `json:"head_norm,omitempty"`
	// LogitCap c makes the logits z of the head c·tanh(z/c) (Gemma Team 2024, arXiv 2408.00118, section
	// 2); 0: they stay.
	LogitCap float64 `json:"logit_cap,omitempty"`
	// Loss is the loss that Forward returns. Logistics has three Outputs for each part of the mixture:
	// first the logits of all parts, then their means, then the logarithms of their scales (Salimans
	// et al. 2017, arXiv 1701.05517).
	Loss Loss `json:"loss,omitempty"`

	// Layers is the number of layers, in an encoder-decoder the number of the decoder. In a convolutional
	// net it is the number of convolutions, with the head.
	Layers int `json:"layers"`
	// SourceLayers is the number of layers of an encoder-decoder's encoder; 0: Layers.
	SourceLayers int `json:"source_layers,omitempty"`
	Heads        int `json:"heads"`
	KVHeads      int `json:"kv_heads,omitempty"` // key heads, each shared by Heads/KVHeads query heads; 0: Heads
	// HeadWidth is the width D of an attention head; 0: Width/Heads.
	HeadWidth int `json:"head_width,omitempty"`
	Width     int `json:"width"`            // of the rows between layers
	Hidden    int `json:"hidden,omitempty"` // units of the MLP; 0: 4·Width
	Context   int `json:"context"`          // tokens that the model is trained on at once

	// Conv is the number of tokens that a convolution sees. In a decoder it is the short convolution
	// before attention and before the MLP; 0: none. In a convolutional net it is each convolution.
	Conv int `json:"conv"`

	Positions Positions `json:"positions"`            // "": Learned, of a convolutional net NoPosition
	RopeTheta float64   `json:"rope_theta,omitempty"` // base of the rotations' frequencies, 1 or more; 0: 10000
	// RopeFraction is the fraction of a head's channels that are rotated: the first
	// ⌊D·RopeFraction⌋, or one more if that is odd. Channel j forms a pair with channel j plus half
	// their number. 0: 1.
	RopeFraction float64 `json:"rope_fraction,omitempty"`
	// RopeScaling scales the frequencies of RopeTheta; nil: no scaling.
	RopeScaling *RopeScaling `json:"rope_scaling,omitempty"`
	// LocalRopeTheta is the base in layers with a window, without RopeScaling; 0: these
	// layers rotate as the others.
	LocalRopeTheta float64 `json:"local_rope_theta,omitempty"`
	// PositionTable is the number of rows of learned positions; 0: Context, and one
	// more with PoolCLS.
	PositionTable int `json:"position_table,omitempty"`
	// PositionOffset is the row of the first position in the table of learned positions.
	PositionOffset int `json:"position_offset,omitempty"`

	// LayerWindows [Layers] is the span w of each layer's self-attention. A query at
	// place p sees keys j with |p-j| < w, by mechanism local with span=w. 0: the layer
	// has Mechanism. nil: all layers have Mechanism.
	LayerWindows []int `json:"layer_windows,omitempty"`
	// RelativeBuckets is the number of rows of a table that adds to the scores of
	// softmax by head and distance, shared by all layers (Raffel et al. 2020, arXiv
	// 1910.10683, section 2.1). Half of the rows are for keys after the query. Distances
	// are logarithmic up to 128. 0: none.
	RelativeBuckets int `json:"relative_buckets,omitempty"`
	// QKNorm normalises each head's queries and keys by RMSNorm before their rotation.
	QKNorm bool `json:"qk_norm,omitempty"`
	// AttentionNorm adds to each head's output its RMSNorm, before the output projection.
	// The gain [D] starts from 0, where nothing is added. The output of a query that
	// weighs many keys is small, and its norm does not depend on their number.
	AttentionNorm bool `json:"attention_norm,omitempty"`

	// Mechanism names a row of package mechanism, one of Factories, or a mixer of package nn. A mixer
	// replaces attention and interprets Heads itself. A convolutional net may be
	// without mechanism, and then has 0 Heads. Order and settings that are left out are those of
	// mechanism.New: fastmax has no window then. Training fills them in by the row before it makes
	// the model, such as a window of exact softmax for fastmax, so the default of farfield train
	// is another function; Config of train.Trainer returns what it has set.
	Mechanism string            `json:"mechanism"`
	Order     int               `json:"order,omitempty"` // 0: the mechanism's default
	Set       map[string]string `json:"set,omitempty"`

	// Factories holds mechanisms of your own, by the names that Mechanism and LayerMechanisms
	// use for them. A factory gets Order and Set. Files hold only the names and settings:
	// LoadWith takes the factories.
	Factories map[string]Factory `json:"-"`

	// LayerMechanisms [Layers] holds the mechanism of each layer's self-attention, which
	// replaces Mechanism and LayerWindows. An element without a name replaces nothing; nil: no
	// layer has one. Exchanged sets it.
	LayerMechanisms []LayerMechanism `json:"layer_mechanisms,omitempty"`

	// Dropout is the rate at which Forward drops elements of embeddings and of branch
	// outputs. Losses, Logits and sessions drop nothing.
	Dropout float64 `json:"dropout,omitempty"`

	// AttentionDropout is the rate at which Forward drops parts of queries and keys,
	// AttentionDropoutKind selects the parts; "": DropTokens. Losses, Logits and sessions
	// drop nothing.
	AttentionDropout     float64     `json:"attention_dropout,omitempty"`
	AttentionDropoutKind DropoutKind `json:"attention_dropout_kind,omitempty"`

	// Decay is the log-decay; "": none. Every key head has its own factors.
	Decay Decay `json:"decay,omitempty"`

	// Activation is the activation of the MLP and Norm is the kind of norm; "": TanhGELU
	// and LayerNorm.
	Activation Activation `json:"activation,omitempty"`
	Norm       Norm       `json:"norm,omitempty"`
	// PostNorm places the norm after the sum, norm(x + f(x)), as in the first
	// transformer.
	PostNorm bool `json:"post_norm,omitempty"`

	NormEps    float64 `json:"norm_eps,omitempty"`    // added to the variance or mean square in norms; 0: 1e-5
	NormOffset bool    `json:"norm_offset,omitempty"` // the gain of RMSNorm is 1 plus the weight
	// NoFirstNorm omits the norm of the first layer's attention. NoFinalNorm omits the
	// norm after the last layer. Both apply to each stack.
	NoFirstNorm bool `json:"no_first_norm,omitempty"`
	NoFinalNorm bool `json:"no_final_norm,omitempty"`
	// BranchNorm normalises the output of attention and of the MLP before it is added: x + norm(f(norm(x))).
	BranchNorm bool `json:"branch_norm,omitempty"`
	// ParallelBlocks gives attention and MLP of a layer the same input, x + f(norm(x)) +
	// g(norm(x)): ParallelOne with one norm, ParallelTwo with a norm each; "": the MLP
	// reads the sum.
	ParallelBlocks ParallelBlocks `json:"parallel_blocks,omitempty"`

	// EntryScale multiplies the embeddings of tokens before positions are added; 0: 1.
	EntryScale float64 `json:"entry_scale,omitempty"`
	// TokenTypes is the number of rows of a table of token types (Batch.Types), which are
	// added to the embeddings; 0: no table.
	TokenTypes int `json:"token_types,omitempty"`
	// EntryNorm normalises the sum of embeddings, types and positions.
	EntryNorm bool `json:"entry_norm,omitempty"`

	Bias bool `json:"bias"` // of projections and norms
	// Biases selects which layers have a bias and overrides Bias; nil: Bias holds for all.
	Biases *Biases `json:"biases,omitempty"`
	Tied   bool    `json:"tied"` // the head is the embedding
	// SharedEmbedding gives the encoder of an encoder-decoder the embedding of the
	// decoder.
	SharedEmbedding bool `json:"shared_embedding,omitempty"`
}

// Clone returns c with maps, slices and pointers of its own.
func (c Config) Clone() Config {
	c.Factories = maps.Clone(c.Factories)
	c.Set, c.LayerWindows, c.LayerMechanisms = maps.Clone(c.Set), slices.Clone(c.LayerWindows), slices.Clone(c.LayerMechanisms)
	for i := range c.LayerMechanisms {
		c.LayerMechanisms[i].Set = maps.Clone(c.LayerMechanisms[i].Set)
	}
	if c.RopeScaling != nil {
		scaling := *c.RopeScaling
		scaling.ShortFactors, scaling.LongFactors = slices.Clone(scaling.ShortFactors), slices.Clone(scaling.LongFactors)
		c.RopeScaling = &scaling
	}
	if c.Biases != nil {
		biases := *c.Biases
		c.Biases = &biases
	}
	return c
}

// maxSize bounds every size of a Config. maxWeights bounds the number of weights.
const (
	maxSize    = 1 << 24
	maxWeights = 1 << 40
	maxConv    = 64
)

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	c.Positions = c.positions()
	return validation{c}.check()
}

// fieldErrorf returns an error that names fields of a Config.
func fieldErrorf(format string, args ...any) error { return fault.Fieldf[Config](format, args...) }

// validation checks the fields of a configuration.
type validation struct{ Config }

// check returns an error that names the first invalid field.
func (c validation) check() error {
	switch c.Kind {
	case Decoder, Encoder, EncoderDecoder, Convolutional:
	default:
		return fieldErrorf("{Kind}: %q is none of %s, %s, %s, %s", c.Kind, Decoder, Encoder, EncoderDecoder, Convolutional)
	}
	switch c.Positions {
	case Learned, Sinusoidal, Rotary, NoPosition:
	default:
		return fieldErrorf("{Positions}: %q is none of %s, %s, %s, %s", c.Positions, Learned, Sinusoidal, Rotary, NoPosition)
	}
	if err := c.checkKinds(); err != nil {
		return err
	}
	switch c.Decay {
	case "", NoDecay, FixedDecay, LearnedDecay:
	default:
		return fieldErrorf("{Decay}: %q is none of %s, %s, %s", c.Decay, NoDecay, FixedDecay, LearnedDecay)
	}
	if err := c.checkEnds(); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		n    int
		zero bool
	}{
		{"{Inputs}", c.Inputs, true}, {"{Vocab}", c.Vocab, c.Inputs > 0}, {"{SourceVocab}", c.SourceVocab, true},
		{"{Outputs}", c.Outputs, c.Vocab > 0}, {"{HeadHidden}", c.HeadHidden, true}, {"{Layers}", c.Layers, false},
		{"{Heads}", c.Heads, c.Kind == Convolutional && c.Mechanism == ""}, {"{KVHeads}", c.KVHeads, true}, {"{Width}", c.Width, false},
		{"{Hidden}", c.Hidden, true}, {"{Context}", c.Context, false}, {"{HeadWidth}", c.HeadWidth, true},
		{"{SourceLayers}", c.SourceLayers, true}, {"{TokenTypes}", c.TokenTypes, true},
		{"{PositionTable}", c.PositionTable, true}, {"{PositionOffset}", c.PositionOffset, true}, {"{RelativeBuckets}", c.RelativeBuckets, true},
	} {
		if f.n < 0 || f.n == 0 && !f.zero || f.n > maxSize {
			return fieldErrorf(f.name+": %d, needs to be from 1 to %d", f.n, maxSize)
		}
	}
	switch {
	case c.Heads == 0: // of a net without attention
	case c.HeadWidth == 0 && c.Width%c.Heads != 0:
		return fieldErrorf("{Heads}: %d do not divide {Width} %d; set {Heads} to %d, or {Width} to %d", c.Heads, c.Width, largestDivisor(c.Width, c.Heads), (c.Width+c.Heads-1)/c.Heads*c.Heads)
	case c.Heads%c.kvHeads() != 0:
		return fieldErrorf("{KVHeads}: %d do not divide {Heads} %d; set {KVHeads} to %d", c.KVHeads, c.Heads, largestDivisor(c.Heads, c.KVHeads))
	}
	switch {
	case c.Conv != 0 && c.Kind != Decoder && c.Kind != Convolutional:
		return fieldErrorf("{Conv}: %d, but {Kind} %s is not a %s; set {Kind} to %s, or {Conv} to 0", c.Conv, c.Kind, Decoder, Decoder)
	case c.Conv < 0 || c.Conv > maxConv:
		return fieldErrorf("{Conv}: %d, needs to be from 0 to %d", c.Conv, maxConv)
	case c.SourceVocab != 0 && c.Kind != EncoderDecoder:
		return fieldErrorf("{SourceVocab}: %d, but {Kind} %s has no source; set {Kind} to %s, or {SourceVocab} to 0", c.SourceVocab, c.Kind, EncoderDecoder)
	case !isRopeBase(c.RopeTheta):
		return fieldErrorf("{RopeTheta}: %g, needs to be 0, or from 1 to 1e30", c.RopeTheta)
	case c.RopeTheta != 0 && c.Positions != Rotary:
		return fieldErrorf("{RopeTheta}: %g, but {Positions} are %s; set {Positions} to %s, or {RopeTheta} to 0", c.RopeTheta, c.Positions, Rotary)
	case !(c.AttentionDropout >= 0 && c.AttentionDropout < 1):
		return fieldErrorf("{AttentionDropout}: %g, needs 0 ≤ rate < 1", c.AttentionDropout)
	case !(c.Dropout >= 0 && c.Dropout < 1):
		return fieldErrorf("{Dropout}: %g, needs 0 ≤ rate < 1", c.Dropout)
	case c.AttentionDropoutKind != "" && c.AttentionDropout == 0:
		return fieldErrorf("{AttentionDropoutKind}: %q, but {AttentionDropout} is 0; set {AttentionDropout} above 0, or leave out the kind", c.AttentionDropoutKind)
	case c.hasDecay() && !c.IsCausal():
		return fieldErrorf("{Decay}: %s, but {Kind} %s has no causal attention; set {Kind} to %s, or {Decay} to %s", c.Decay, c.Kind, Decoder, NoDecay)
	case c.Heads > 0 && c.Positions == Rotary && c.headWidth() == 1:
		return fieldErrorf("{Positions}: %s needs heads of width 2 or more, {Width} %d over {Heads} %d is 1; set {Heads} to fewer, or {Positions} to %s", Rotary, c.Width, c.Heads, Learned)
	}
	if err := c.checkVariants(); err != nil {
		return err
	}
	if c.Kind == Convolutional {
		if err := c.checkConvolutional(); err != nil {
			return err
		}
	}
	if err := c.checkSize(0); err != nil || c.Heads == 0 {
		return err
	}
	if err := c.checkOwner(); err != nil {
		return err
	}
	if err := c.checkFactories(); err != nil {
		return err
	}
	m, size, err := bareMixer(c.Config, c.IsCausal(), noLayer)
	if err != nil {
		return err
	}
	if err := c.checkSize(size); err != nil {
		return err
	}
	if err := c.checkTraits(m.Traits()); err != nil {
		return err
	}
	return c.checkLayerMechanisms()
}

// isRopeBase reports whether theta is 0, the default, or a base whose frequencies are at most
// 1 and above 0. With higher frequencies the angles of late positions leave the range in which
// they are exact.
func isRopeBase(theta float64) bool { return theta == 0 || theta >= 1 && theta <= 1e30 }

// largestDivisor returns the largest divisor of n that is at most most, or 1.
func largestDivisor(n, most int) int {
	for most = min(most, n); most > 1 && n%most != 0; most-- {
	}
	return max(most, 1)
}

// checkEnds returns an error if the inputs, the outputs or the loss are invalid.
func (c validation) checkEnds() error {
	switch c.Pool {
	case "", PoolMean, PoolLast, PoolFirst, PoolCLS:
	default:
		return fieldErrorf("{Pool}: %q is none of %s, %s, %s, %s", c.Pool, PoolMean, PoolLast, PoolFirst, PoolCLS)
	}
	switch c.Loss {
	case CrossEntropy, Squared, Logistics:
	default:
		return fieldErrorf("{Loss}: %q is none of %s, %s", c.Loss, Squared, Logistics)
	}
	switch {
	case c.Inputs > 0 && c.Vocab != 0:
		return fieldErrorf("{Inputs}: %d numbers take the place of tokens, but {Vocab} is %d; set one of them to 0", c.Inputs, c.Vocab)
	case c.Inputs > 0 && c.Kind == EncoderDecoder:
		return fieldErrorf("{Inputs}: %d, but {Kind} %s reads tokens; set {Kind} to %s or %s", c.Inputs, c.Kind, Encoder, Decoder)
	case c.Pool == PoolCLS && c.IsCausal():
		return fieldErrorf("{Pool}: %s sees nothing in front of {Kind} %s, %s has seen all; set {Pool} to %s, or {Kind} to %s", PoolCLS, c.Kind, PoolLast, PoolLast, Encoder)
	case c.Parts < 0 || c.Parts > 2:
		return fieldErrorf("{Parts}: %d, needs to be 1 or 2", c.Parts)
	case c.Parts == 2 && c.Pool == "":
		return fieldErrorf("{Parts}: 2 need to be pooled; set {Pool} to %s, %s or %s", PoolMean, PoolLast, PoolCLS)
	case c.LogitCap != 0 && !(c.LogitCap >= 1e-3 && c.LogitCap <= 1e6):
		return fieldErrorf("{LogitCap}: %g, needs to be 0, or from 0.001 to 1e6", c.LogitCap)
	case c.LogitCap != 0 && c.Loss != CrossEntropy:
		return fieldErrorf("{LogitCap}: %g, but {Loss} is %s, whose numbers are no logits; set {LogitCap} to 0", c.LogitCap, c.Loss)
	case c.Loss != CrossEntropy && c.Outputs == 0:
		return fieldErrorf("{Loss}: %s needs outputs; set {Outputs} to 1 or more", c.Loss)
	case c.Loss == Logistics && c.Outputs%3 != 0:
		return fieldErrorf("{Outputs}: %d, but {Loss} %s has 3 for each part of the mixture; set {Outputs} to a multiple of 3", c.Outputs, c.Loss)
	case c.Tied && (c.Inputs > 0 || c.Outputs != 0 || c.HeadHidden == 0 && c.Parts == 2 || c.HeadHidden != 0 && c.HeadHidden != c.Width):
		return fieldErrorf("{Tied}: the head is the embedding, which {Inputs}, {Outputs}, {Parts} and {HeadHidden} have to leave as it is; set {Tied} to false")
	}
	return nil
}

// checkSize returns an error if the model has more than maxWeights weights. mixer is
// the number of weights of a mixer.
func (c validation) checkSize(mixer float64) error {
	if n := cost(c).weightSize(mixer); n > maxWeights {
		return fieldErrorf("{Layers}: %d of {Width} %d with {Vocab} %d have %.3g weights, at most %.3g are possible", c.Layers, c.Width, c.Vocab, n, float64(maxWeights))
	}
	return nil
}

// checkOwner returns an error if a field is set that a mixer with its own projections
// does not support.
func (c validation) checkOwner() error {
	row, owns := nn.LookupMixer(c.Mechanism)
	switch {
	case !owns:
	case c.Kind == EncoderDecoder:
		return fieldErrorf("{Kind}: %s, but %s owns its projections and has no cross-attention; set {Kind} to %s or %s, or {Mechanism} to an attention function such as softmax", c.Kind, row.Name, Decoder, Encoder)
	case c.Positions == Rotary && !row.Rope:
		return fieldErrorf("{Positions}: %s, but %s owns its projections and takes no rotations; set {Positions} to %s or %s", Rotary, row.Name, Learned, NoPosition)
	case c.Hidden != 0 && row.ISTA:
		return fieldErrorf("{Hidden}: %d, but %s has a step as wide as the model in place of the MLP; set {Hidden} to 0", c.Hidden, row.Name)
	case c.Activation != "" && row.ISTA:
		return fieldErrorf("{Activation}: %s, but %s has a step that thresholds in place of the MLP; leave out {Activation}", c.Activation, row.Name)
	case c.PostNorm && row.ISTA:
		return fieldErrorf("{PostNorm}: %s has a step without a residual in place of the MLP, which needs its norm before it; set {PostNorm} to false", row.Name)
	case c.kvHeads() != c.Heads:
		return fieldErrorf("{KVHeads}: %d, but %s owns its projections and has no key heads to share; set {KVHeads} to 0", c.KVHeads, row.Name)
	}
	return nil
}

// checkTraits returns an error if a field is set that a mechanism with the traits x
// does not support.
func (c validation) checkTraits(x attention.Traits) error {
	kind, err := c.dropKind()
	switch {
	case err != nil:
		return fieldErrorf("{AttentionDropoutKind}: %w", err)
	case c.AttentionDropout > 0 && !x.Dropout:
		return fieldErrorf("{AttentionDropout}: %g, which %s does not take; set {AttentionDropout} to 0, or {Dropout} in its place", c.AttentionDropout, c.Mechanism)
	case c.AttentionDropout > 0 && kind == attention.ProductDrop && !x.Products:
		return fieldErrorf("{AttentionDropoutKind}: %s with these settings has no %v; set {AttentionDropoutKind} to %v or %v", c.Mechanism, kind, attention.TokenDrop, attention.ElementDrop)
	case c.hasDecay() && !x.Decay:
		return fieldErrorf("{Decay}: %s, which %s with these settings does not take; set {Decay} to %s, or {Mechanism} to another one such as softmax", c.Decay, c.Mechanism, NoDecay)
	case c.Kind != Decoder && x.CausalOnly:
		return fieldErrorf("{Mechanism}: %s with these settings is causal alone, {Kind} %s is not; set {Kind} to %s, or {Mechanism} to another one such as softmax", c.Mechanism, c.Kind, Decoder)
	case c.Kind == EncoderDecoder && x.Banded:
		return fieldErrorf("{Mechanism}: %s with a window has no cross-attention to a source, which {Kind} %s needs; set {Kind} to %s or %s, or the setting window to 0", c.Mechanism, c.Kind, Decoder, Encoder)
	case c.IsCausal() && !x.Causal:
		return fieldErrorf("{Mechanism}: %s with these settings is not causal, which {Kind} %s needs: %s; set {Kind} to %s, or {Mechanism} to another one such as softmax", c.Mechanism, c.Kind, x.NoCausal, Encoder)
	case c.Kind == EncoderDecoder && x.MixedQueries:
		return fieldErrorf("{Mechanism}: %s with these settings answers a query with the others, so cross-attention of {Kind} %s sees later tokens; set {Kind} to %s or %s, or {Mechanism} to another one such as softmax", c.Mechanism, c.Kind, Decoder, Encoder)
	}
	return nil
}

func (c Config) dropKind() (attention.DropKind, error) {
	if c.AttentionDropoutKind == "" {
		return attention.TokenDrop, nil
	}
	return attention.ParseDropKind(string(c.AttentionDropoutKind))
}

// Rows returns the number of rows of outputs for a batch of b sequences with n positions: one for
// each position, or with Pool for each sequence, or with two Parts for each pair.
func (c Config) Rows(b, n int) int {
	switch {
	case c.Pool == "":
		return b * n
	case c.Parts == 2:
		return b / 2
	}
	return b
}

// Numbers returns how many numbers the target of a row has (Batch.Numbers), 0 if it is a class.
func (c Config) Numbers() int {
	switch c.Loss {
	case Squared:
		return c.Outputs
	case Logistics:
		return 1
	}
	return 0
}

func (c Config) outputSize() int {
	if c.Outputs == 0 {
		return c.Vocab
	}
	return c.Outputs
}

// frontPositions returns the number of positions that are put before each sequence.
func (c Config) frontPositions() int {
	if c.Pool == PoolCLS {
		return 1
	}
	return 0
}

// pooledWidth returns the number of pooled elements that the head, or the units before
// it, read for an output.
func (c Config) pooledWidth() int {
	w := c.Width
	if c.Kind == Convolutional {
		w *= c.Conv
	}
	if c.Parts == 2 {
		w *= 4
	}
	return w
}

// IsCausal reports whether a position sees no later positions.
func (c Config) IsCausal() bool { return c.Kind == Decoder || c.Kind == EncoderDecoder }

func (c Config) hasDecay() bool { return c.Decay == FixedDecay || c.Decay == LearnedDecay }

func (c Config) kvHeads() int {
	if c.KVHeads == 0 {
		return c.Heads
	}
	return c.KVHeads
}

func (c Config) hiddenWidth() int {
	if c.Hidden == 0 {
		return 4 * c.Width
	}
	return c.Hidden
}

func (c Config) sourceVocab() int {
	if c.SourceVocab == 0 {
		return c.Vocab
	}
	return c.SourceVocab
}

func (c Config) ropeBase() float64 {
	if c.RopeTheta == 0 {
		return 10000
	}
	return c.RopeTheta
}

// headWidth returns the width D of an attention head.
func (c Config) headWidth() int {
	if c.HeadWidth == 0 {
		return c.Width / c.Heads
	}
	return c.HeadWidth
}

func (c Config) mechanismOptions() mechanism.Options {
	return mechanism.Options{Order: c.Order, Heads: c.Heads, KeyHeads: c.KVHeads, Width: c.headWidth(), Length: c.Context + c.frontPositions(), Set: c.Set}
}

// elementType returns the name of the element type in safetensors.
func elementType() string { return fmt.Sprint("F", 8*unsafe.Sizeof(float(0))) }
