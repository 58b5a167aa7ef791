package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/nn"
)

// ParallelBlocks selects the norms of layers whose attention and MLP read the same input. The
// zero value means that the MLP reads the sum after attention.
type ParallelBlocks string

// The parallel blocks.
const (
	ParallelOne ParallelBlocks = "one" // attention and MLP read the same norm
	ParallelTwo ParallelBlocks = "two" // each has its own norm
)

// ScalingKind is a kind of rope scaling.
type ScalingKind string

// The kinds of rope scaling.
const (
	LinearScaling ScalingKind = "linear" // all frequencies over Factor (Chen et al. 2023, arXiv 2306.15595)
	Llama3Scaling ScalingKind = "llama3" // low frequencies over Factor (Grattafiori et al. 2024, arXiv 2407.21783)
	YarnScaling   ScalingKind = "yarn"   // NTK by parts and a factor of the rotations (Peng et al. 2023, arXiv 2309.00071)
	// LongScaling divides each frequency by a factor of its own: one of ShortFactors in sequences of up
	// to OriginalContext tokens, one of LongFactors in longer ones (Ding et al. 2024, LongRoPE, arXiv
	// 2402.13753).
	LongScaling ScalingKind = "longrope"
	// DynamicScaling does not scale in sequences of up to OriginalContext tokens. In a longer sequence
	// of n tokens it multiplies the base by (Factor·n/OriginalContext - Factor + 1)^(d/(d-2)), for d
	// rotated channels (Peng et al. 2023, arXiv 2309.00071, section 3.1).
	DynamicScaling ScalingKind = "dynamic"
)

// RopeScaling describes scaled frequencies of rotations. A frequency f turns
// OriginalContext·f/2π times over the original context.
//
// With LongScaling and DynamicScaling the frequencies depend on the length of a sequence. All
// sequences of a batch need the same frequencies. Sequences of up to OriginalContext tokens share
// theirs. Longer sequences share theirs with LongScaling; with DynamicScaling they must have equal
// lengths.
//
// The logits of a session are those of a sequence that ends with its last token. When a session
// grows beyond OriginalContext, LongScaling recomputes its states once; DynamicScaling returns an
// error, because every further token would change all states.
type RopeScaling struct {
	Kind            ScalingKind `json:"kind"`
	Factor          float64     `json:"factor"`                     // divides scaled frequencies; 1 or more
	OriginalContext int         `json:"original_context,omitempty"` // tokens before scaling; all but linear need it

	// Llama3Scaling divides a frequency of fewer than LowFrequency turns by Factor, and leaves
	// one of more than HighFrequency turns as it is. Between them it interpolates. 0: 1 and 4.
	LowFrequency  float64 `json:"low_frequency,omitempty"`
	HighFrequency float64 `json:"high_frequency,omitempty"`

	// YarnScaling divides a frequency of fewer than BetaSlow turns by Factor, and leaves one of more
	// than BetaFast turns as it is. Between them it interpolates by the number of the pair. 0: 1 and 32.
	BetaFast float64 `json:"beta_fast,omitempty"`
	BetaSlow float64 `json:"beta_slow,omitempty"`
	// AttentionFactor multiplies sines and cosines with YarnScaling and LongScaling; 0: 1 + 0.1·ln(Factor),
	// with LongScaling √(1 + ln(Factor)/ln(OriginalContext)).
	AttentionFactor float64 `json:"attention_factor,omitempty"`

	// ShortFactors and LongFactors are for LongScaling: one element for each pair of channels.
	ShortFactors []float64 `json:"short_factors,omitempty"`
	LongFactors  []float64 `json:"long_factors,omitempty"`
}

// Biases selects which layers have a bias.
type Biases struct {
	QKV        bool `json:"qkv"` // projections to queries, keys and values
	O          bool `json:"o"`   // projections of attention's output
	MLP        bool `json:"mlp"`
	Norm       bool `json:"norm"`        // layer norms, with the norms of entry and head
	Head       bool `json:"head"`        // outputs
	HeadHidden bool `json:"head_hidden"` // units before the outputs
}

// biases returns which layers have a bias.
func (c Config) biases() Biases {
	if c.Biases != nil {
		return *c.Biases
	}
	return Biases{c.Bias, c.Bias, c.Bias, c.Bias, c.Bias, c.Bias}
}

// epsilon returns the Eps of norms.
func (c Config) epsilon() float64 {
	if c.NormEps == 0 {
		return normEps
	}
	return c.NormEps
}

// rotatedWidth returns the number of channels of a head that are rotated.
func (c Config) rotatedWidth() int {
	if c.RopeFraction == 0 {
		return c.headWidth()
	}
	return int(float64(c.headWidth()) * c.RopeFraction)
}

// rotatedPairs returns the number of pairs of channels that are rotated. An odd number of channels is
// rounded up.
func (c Config) rotatedPairs() int {
	if c.RopeFraction == 0 {
		return c.headWidth() / 2
	}
	return (c.rotatedWidth() + 1) / 2
}

// positions returns the position encoding, where it is left open its default.
func (c Config) positions() Positions {
	if c.Positions == "" && c.Kind == Convolutional {
		return NoPosition
	}
	return cmp.Or(c.Positions, Learned)
}

// positionRows returns the number of rows of learned positions.
func (c Config) positionRows() int {
	if c.PositionTable == 0 {
		return c.Context + c.frontPositions()
	}
	return c.PositionTable
}

// LearnedPositions returns the number of positions of a sequence for which the table of learned
// positions has rows.
func (c Config) LearnedPositions() int {
	return c.positionRows() - c.PositionOffset - c.frontPositions()
}

// TrainedContext returns the number of tokens of the sequences that the model was trained on:
// Context, or the positions of the learned table if these are fewer.
func (c Config) TrainedContext() int {
	if c.positions() == Learned {
		return min(c.Context, c.LearnedPositions())
	}
	return c.Context
}

// ContextWindow returns the number of tokens of the windows in which a longer text is best read:
// TrainedContext, or 0 if the model predicts as well beyond it in one session, because all layers
// forget: mamba-2 and retnet by their decay, local by its window. docs/command.md has figures.
func (c Config) ContextWindow() int {
	forgets := func(name string) bool { return name == "mamba-2" || name == "retnet" || name == "local" }
	holds := c.Kind == Decoder && forgets(c.Mechanism) && c.positions() != Learned && len(c.LayerWindows) == 0
	for _, x := range c.LayerMechanisms {
		holds = holds && (x.Mechanism == "" || forgets(x.Mechanism))
	}
	if holds {
		return 0
	}
	return c.TrainedContext()
}

func (c Config) sourceLayers() int {
	if c.SourceLayers == 0 {
		return c.Layers
	}
	return c.SourceLayers
}

// layerWindow returns the span of the window of layer i; 0: none.
func (c Config) layerWindow(i int) int {
	if len(c.LayerWindows) == 0 {
		return 0
	}
	return c.LayerWindows[i]
}

// checkVariants returns an error for an invalid field that describes a variant of the transformer.
func (c validation) checkVariants() error {
	switch {
	case c.Kind == Convolutional && c.hasVariants():
		return fmt.Errorf("kind: %s takes no fields of transformers beside heads and mechanism; leave out head_width, rope_fraction, rope_scaling, layer_windows, layer_mechanisms, relative_buckets, qk_norm, attention_norm, norm_*, no_*_norm, branch_norm, parallel_blocks, entry_*, token_types, position_* and biases", c.Kind)
	case c.NormEps != 0 && !(c.NormEps >= minNormEps && c.NormEps <= 1):
		return fmt.Errorf("norm_eps: %g, needs to be 0, or from %g to 1", c.NormEps, minNormEps)
	case c.NormOffset && c.Norm != RMSNorm:
		return fmt.Errorf("norm_offset: needs norm %s, norm is %q; set norm to %s, or norm_offset to false", RMSNorm, c.Norm, RMSNorm)
	case c.NoFirstNorm && c.PostNorm:
		return fmt.Errorf("no_first_norm: with post_norm no norm comes before the first attention; set one of them to false")
	case c.ParallelBlocks != "" && c.ParallelBlocks != ParallelOne && c.ParallelBlocks != ParallelTwo:
		return fmt.Errorf("parallel_blocks: %q is none of %s, %s", c.ParallelBlocks, ParallelOne, ParallelTwo)
	case c.ParallelBlocks != "" && (c.PostNorm || c.Conv != 0 || c.Kind == EncoderDecoder):
		return fmt.Errorf("parallel_blocks: %s, but kind is %s, post_norm %t and conv %d; set kind to %s or %s, post_norm to false and conv to 0", c.ParallelBlocks, c.Kind, c.PostNorm, c.Conv, Decoder, Encoder)
	case c.BranchNorm && (c.PostNorm || c.ParallelBlocks != "" || c.Kind == EncoderDecoder):
		return fmt.Errorf("branch_norm: kind is %s, post_norm %t and parallel_blocks %q; set kind to %s or %s, post_norm to false, and leave out parallel_blocks", c.Kind, c.PostNorm, c.ParallelBlocks, Decoder, Encoder)
	case c.EntryScale != 0 && !(c.EntryScale >= 1e-6 && c.EntryScale <= 1e6):
		return fmt.Errorf("entry_scale: %g, needs to be 0, or from 1e-6 to 1e6", c.EntryScale)
	case c.Inputs > 0 && (c.EntryScale != 0 || c.TokenTypes != 0):
		return fmt.Errorf("inputs: %d numbers have no embeddings, but entry_scale is %g and token_types %d; set both to 0", c.Inputs, c.EntryScale, c.TokenTypes)
	case c.TokenTypes != 0 && (c.frontPositions() > 0 || c.Kind == EncoderDecoder):
		return fmt.Errorf("token_types: %d, but kind is %s and pool %q; set pool to %s and kind to %s or %s", c.TokenTypes, c.Kind, c.Pool, PoolFirst, Encoder, Decoder)
	case c.SourceLayers != 0 && c.Kind != EncoderDecoder:
		return fmt.Errorf("source_layers: %d, but kind %s has no source; set kind to %s, or source_layers to 0", c.SourceLayers, c.Kind, EncoderDecoder)
	case c.SharedEmbedding && (c.Kind != EncoderDecoder || c.sourceVocab() != c.Vocab):
		return fmt.Errorf("shared_embedding: kind is %s, vocab %d and source_vocab %d; needs kind %s and one vocabulary", c.Kind, c.Vocab, c.sourceVocab(), EncoderDecoder)
	case (c.PositionTable != 0 || c.PositionOffset != 0) && c.positions() != Learned:
		return fmt.Errorf("position_table: %d and position_offset: %d, but positions are %s; set positions to %s, or both to 0", c.PositionTable, c.PositionOffset, c.Positions, Learned)
	case c.PositionTable != 0 && c.LearnedPositions() < 1:
		return fmt.Errorf("position_table: %d rows, of which position_offset %d are before the first position; set position_table to more", c.PositionTable, c.PositionOffset)
	case c.PositionTable == 0 && c.PositionOffset != 0:
		return fmt.Errorf("position_offset: %d, but position_table is 0; set position_table to the number of rows", c.PositionOffset)
	case (c.HeadActivation != "" || c.HeadNorm) && c.HeadHidden == 0:
		return fmt.Errorf("head_hidden: 0, but head_activation is %q and head_norm %t; set head_hidden to 1 or more", c.HeadActivation, c.HeadNorm)
	}
	if _, known := headActivations[c.HeadActivation]; !known {
		return fmt.Errorf("head_activation: %q is none of %s, %s, %s, %s", c.HeadActivation, ReLU, Tanh, GELU, TanhGELU)
	}
	if err := c.checkRope(); err != nil || c.Heads == 0 {
		return err
	}
	return c.checkAttentionVariants()
}

// hasVariants reports whether a field is set that convolutional nets do not take.
func (c Config) hasVariants() bool {
	return c.HeadWidth != 0 || c.RopeFraction != 0 || c.RopeScaling != nil || c.LocalRopeTheta != 0 || c.LayerWindows != nil || c.hasLayerMechanisms() ||
		c.RelativeBuckets != 0 || c.QKNorm || c.AttentionNorm || c.NormEps != 0 || c.NormOffset || c.NoFirstNorm || c.NoFinalNorm || c.BranchNorm || c.ParallelBlocks != "" ||
		c.EntryScale != 0 || c.TokenTypes != 0 || c.EntryNorm || c.PositionTable != 0 || c.PositionOffset != 0 || c.Biases != nil || c.HeadNorm
}

// checkRope returns an error for an invalid field of the rotations.
func (c validation) checkRope() error {
	switch {
	case c.Positions != Rotary && (c.RopeFraction != 0 || c.RopeScaling != nil || c.LocalRopeTheta != 0):
		return fmt.Errorf("positions: %s, but rope_fraction is %g, local_rope_theta %g and rope_scaling set is %t; set positions to %s, or leave them out", c.Positions, c.RopeFraction, c.LocalRopeTheta, c.RopeScaling != nil, Rotary)
	case c.Positions != Rotary:
		return nil
	case !(c.RopeFraction >= 0 && c.RopeFraction <= 1):
		return fmt.Errorf("rope_fraction: %g, needs to be from 0 to 1", c.RopeFraction)
	case c.RopeFraction != 0 && (c.rotatedWidth() < 1 || 2*c.rotatedPairs() > c.headWidth()):
		return fmt.Errorf("rope_fraction: %g of %d channels are %d, needs pairs of channels", c.RopeFraction, c.headWidth(), c.rotatedWidth())
	case !isRopeBase(c.LocalRopeTheta):
		return fmt.Errorf("local_rope_theta: %g, needs to be 0, or from 1 to 1e30", c.LocalRopeTheta)
	case c.LocalRopeTheta != 0 && len(c.LayerWindows) == 0:
		return fmt.Errorf("local_rope_theta: %g, but layer_windows are empty; set layer_windows, or local_rope_theta to 0", c.LocalRopeTheta)
	case c.RopeScaling == nil:
		return nil
	}
	return c.checkRopeScaling(c.RopeScaling)
}

// checkRopeScaling returns an error for an invalid field of r.
func (c validation) checkRopeScaling(r *RopeScaling) error {
	kinds := []ScalingKind{LinearScaling, Llama3Scaling, YarnScaling, LongScaling, DynamicScaling}
	if !slices.Contains(kinds, r.Kind) {
		return fmt.Errorf("rope_scaling: kind %q is none of %s, %s, %s, %s, %s", r.Kind, kinds[0], kinds[1], kinds[2], kinds[3], kinds[4])
	}
	if !(r.Factor >= 1 && r.Factor <= maxSize) {
		return fmt.Errorf("rope_scaling: factor %g, needs to be from 1 to %d", r.Factor, maxSize)
	}
	for _, x := range []struct {
		name  string
		value float64
		of    []ScalingKind
	}{
		{"original_context", float64(r.OriginalContext), kinds[1:]},
		{"low_frequency", r.LowFrequency, kinds[1:2]}, {"high_frequency", r.HighFrequency, kinds[1:2]},
		{"beta_fast", r.BetaFast, kinds[2:3]}, {"beta_slow", r.BetaSlow, kinds[2:3]}, {"attention_factor", r.AttentionFactor, kinds[2:4]},
	} {
		if x.value != 0 && !slices.Contains(x.of, r.Kind) {
			return fmt.Errorf("rope_scaling: kind %s has no %s, it is %g; set it to 0", r.Kind, x.name, x.value)
		}
	}
	switch {
	case r.followsLength() && c.Kind == EncoderDecoder:
		return fmt.Errorf("rope_scaling: kind %s, but kind is %s; set kind to %s or %s", r.Kind, c.Kind, Decoder, Encoder)
	case r.Kind != LongScaling && len(r.ShortFactors)+len(r.LongFactors) > 0:
		return fmt.Errorf("rope_scaling: kind %s has no short_factors and long_factors, there are %d and %d; leave them out", r.Kind, len(r.ShortFactors), len(r.LongFactors))
	case r.Kind == LinearScaling:
		return nil
	case r.Kind == YarnScaling && !(c.ropeBase() > 1):
		return fmt.Errorf("rope_scaling: kind %s needs frequencies that fall, rope_theta is %g; set rope_theta above 1", r.Kind, c.ropeBase())
	case r.OriginalContext < 1 || r.OriginalContext > maxSize:
		return fmt.Errorf("rope_scaling: original_context %d, needs to be from 1 to %d", r.OriginalContext, maxSize)
	case r.Kind == Llama3Scaling && !(r.lowBound() >= leastTurns && r.lowBound() < r.highBound() && r.highBound() <= maxSize):
		return fmt.Errorf("rope_scaling: low_frequency %g and high_frequency %g, needs %g ≤ low < high ≤ %d", r.lowBound(), r.highBound(), leastTurns, maxSize)
	case r.Kind == YarnScaling && !(r.slowBound() >= leastTurns && r.slowBound() <= r.fastBound() && r.fastBound() <= maxSize):
		return fmt.Errorf("rope_scaling: beta_slow %g and beta_fast %g, needs %g ≤ slow ≤ fast ≤ %d", r.slowBound(), r.fastBound(), leastTurns, maxSize)
	case r.AttentionFactor != 0 && !(r.AttentionFactor >= 1e-3 && r.AttentionFactor <= 1e3):
		return fmt.Errorf("rope_scaling: attention_factor %g, needs to be 0, or from 0.001 to 1000", r.AttentionFactor)
	case r.Kind == DynamicScaling && c.rotatedWidth() < 3:
		return fmt.Errorf("rope_scaling: kind %s needs 3 rotated channels or more, there are %d", r.Kind, c.rotatedWidth())
	case r.Kind == LongScaling && r.AttentionFactor == 0 && r.Factor > 1 && r.OriginalContext == 1:
		return fmt.Errorf("rope_scaling: original_context 1 with kind %s and factor %g gives no attention_factor; set it", r.Kind, r.Factor)
	}
	for _, x := range []struct {
		name    string
		factors []float64
	}{{"short_factors", r.ShortFactors}, {"long_factors", r.LongFactors}} {
		if r.Kind == LongScaling && len(x.factors) != c.rotatedPairs() {
			return fmt.Errorf("rope_scaling: %s has %d elements, %d pairs of channels are rotated", x.name, len(x.factors), c.rotatedPairs())
		}
		for i, f := range x.factors {
			if !(f >= 1e-6 && f <= 1e6) {
				return fmt.Errorf("rope_scaling: element %d of %s is %g, needs to be from 1e-6 to 1e6", i, x.name, f)
			}
		}
	}
	return nil
}

// leastTurns is the least number of turns over the original context that bounds scaling.
const leastTurns = 1e-6

func (r *RopeScaling) lowBound() float64  { return orDefault(r.LowFrequency, 1) }
func (r *RopeScaling) highBound() float64 { return orDefault(r.HighFrequency, 4) }
func (r *RopeScaling) slowBound() float64 { return orDefault(r.BetaSlow, 1) }
func (r *RopeScaling) fastBound() float64 { return orDefault(r.BetaFast, 32) }

// orDefault returns x, or the default if x is 0.
func orDefault(x, byDefault float64) float64 {
	if x == 0 {
		return byDefault
	}
	return x
}

// checkAttentionVariants returns an error for an invalid field of attention.
func (c validation) checkAttentionVariants() error {
	if row, owns := nn.LookupMixer(c.Mechanism); owns && row.ISTA && c.BranchNorm {
		return fmt.Errorf("branch_norm: the blocks of %s are no sums; set branch_norm to false", c.Mechanism)
	}
	if _, owns := nn.LookupMixer(c.Mechanism); owns && (c.HeadWidth != 0 || c.LayerWindows != nil || c.hasLayerMechanisms() || c.RelativeBuckets != 0 || c.QKNorm || c.AttentionNorm || c.Biases != nil || c.RopeFraction != 0 || c.ParallelBlocks != "") {
		return fmt.Errorf("mechanism: %s owns its projections, and takes no head_width, layer_windows, layer_mechanisms, relative_buckets, qk_norm, attention_norm, biases, rope_fraction or parallel_blocks; leave them out, or set mechanism to softmax", c.Mechanism)
	}
	if n := len(c.LayerWindows); n != 0 && n != c.Layers {
		return fmt.Errorf("layer_windows: has %d elements, layers is %d", n, c.Layers)
	}
	for i, w := range c.LayerWindows {
		if w < 0 || w > maxSize {
			return fmt.Errorf("layer_windows: layer %d has %d, needs to be from 0 to %d", i, w, maxSize)
		}
	}
	if err := c.checkLayerNames(); err != nil {
		return err
	}
	switch {
	case c.LayerWindows != nil && (c.Kind == EncoderDecoder || c.hasDecay() || c.AttentionDropout > 0):
		return fmt.Errorf("layer_windows: kind is %s, decay %q and attention_dropout %g; set kind to %s or %s, and the others to none and 0", c.Kind, c.Decay, c.AttentionDropout, Decoder, Encoder)
	case c.QKNorm && c.Kind == EncoderDecoder:
		return fmt.Errorf("qk_norm: kind is %s; set kind to %s or %s, or qk_norm to false", c.Kind, Decoder, Encoder)
	case c.AttentionNorm && c.Kind == EncoderDecoder:
		return fmt.Errorf("attention_norm: kind is %s; set kind to %s or %s, or attention_norm to false", c.Kind, Decoder, Encoder)
	case c.RelativeBuckets != 0 && (c.Mechanism != "softmax" || len(c.Set) != 0 || c.Kind != Encoder || c.LayerWindows != nil || c.AttentionDropout > 0):
		return fmt.Errorf("relative_buckets: %d, but mechanism is %s with settings %v, kind %s, layer_windows %v and attention_dropout %g; set mechanism to softmax without settings, kind to %s, and leave out the others", c.RelativeBuckets, c.Mechanism, c.Set, c.Kind, c.LayerWindows, c.AttentionDropout, Encoder)
	case c.RelativeBuckets != 0 && (c.RelativeBuckets < 4 || c.RelativeBuckets%2 != 0 || c.RelativeBuckets > 256):
		return fmt.Errorf("relative_buckets: %d, needs an even number from 4 to 256", c.RelativeBuckets)
	}
	return nil
}

// noLayer stands for a layer that is not self-attention of the main stack. It has Config.Mechanism.
const noLayer = -1

// layerMechanism returns the mechanism of layer i and its options.
func (c Config) layerMechanism(i int) (name string, o mechanism.Options) {
	o = c.mechanismOptions()
	if i == noLayer {
		return c.Mechanism, o
	}
	if i < len(c.LayerMechanisms) && c.LayerMechanisms[i].Mechanism != "" {
		x := c.LayerMechanisms[i]
		o.Order, o.Set = x.Order, x.Set
		return x.Mechanism, o
	}
	window := c.layerWindow(i)
	if window == 0 {
		return c.Mechanism, o
	}
	set := map[string]string{"span": strconv.Itoa(window)}
	for _, name := range []string{"scale", "cap"} {
		if value, given := c.Set[name]; given && c.Mechanism == "softmax" {
			set[name] = value
		}
	}
	o.Order, o.Set = 0, set
	return "local", o
}
