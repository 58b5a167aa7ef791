package model

import (
	"cmp"
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
		return fieldErrorf("{Kind}: %s takes no fields of transformers beside {Heads} and {Mechanism}; leave out {HeadWidth}, {RopeFraction}, {RopeScaling}, {LayerWindows}, {LayerMechanisms}, {RelativeBuckets}, {QKNorm}, {AttentionNorm}, {NormEps}, {NormOffset}, {NoFirstNorm}, {NoFinalNorm}, {HeadNorm}, {BranchNorm}, {ParallelBlocks}, {EntryScale}, {EntryNorm}, {TokenTypes}, {PositionTable}, {PositionOffset} and {Biases}", c.Kind)
	case c.NormEps != 0 && !(c.NormEps >= minNormEps && c.NormEps <= 1):
		return fieldErrorf("{NormEps}: %g, needs to be 0, or from %g to 1", c.NormEps, minNormEps)
	case c.NormOffset && c.Norm != RMSNorm:
		return fieldErrorf("{NormOffset}: needs {Norm} %s, {Norm} is %q; set {Norm} to %s, or {NormOffset} to false", RMSNorm, c.Norm, RMSNorm)
	case c.NoFirstNorm && c.PostNorm:
		return fieldErrorf("{NoFirstNorm}: with {PostNorm} no norm comes before the first attention; set one of them to false")
	case c.ParallelBlocks != "" && c.ParallelBlocks != ParallelOne && c.ParallelBlocks != ParallelTwo:
		return fieldErrorf("{ParallelBlocks}: %q is none of %s, %s", c.ParallelBlocks, ParallelOne, ParallelTwo)
	case c.ParallelBlocks != "" && (c.PostNorm || c.Conv != 0 || c.Kind == EncoderDecoder):
		return fieldErrorf("{ParallelBlocks}: %s, but {Kind} is %s, {PostNorm} %t and {Conv} %d; set {Kind} to %s or %s, {PostNorm} to false and {Conv} to 0", c.ParallelBlocks, c.Kind, c.PostNorm, c.Conv, Decoder, Encoder)
	case c.BranchNorm && (c.PostNorm || c.ParallelBlocks != "" || c.Kind == EncoderDecoder):
		return fieldErrorf("{BranchNorm}: {Kind} is %s, {PostNorm} %t and {ParallelBlocks} %q; set {Kind} to %s or %s, {PostNorm} to false, and leave out {ParallelBlocks}", c.Kind, c.PostNorm, c.ParallelBlocks, Decoder, Encoder)
	case c.EntryScale != 0 && !(c.EntryScale >= 1e-6 && c.EntryScale <= 1e6):
		return fieldErrorf("{EntryScale}: %g, needs to be 0, or from 1e-6 to 1e6", c.EntryScale)
	case c.Inputs > 0 && (c.EntryScale != 0 || c.TokenTypes != 0):
		return fieldErrorf("{Inputs}: %d numbers have no embeddings, but {EntryScale} is %g and {TokenTypes} %d; set both to 0", c.Inputs, c.EntryScale, c.TokenTypes)
	case c.TokenTypes != 0 && (c.frontPositions() > 0 || c.Kind == EncoderDecoder):
		return fieldErrorf("{TokenTypes}: %d, but {Kind} is %s and {Pool} %q; set {Pool} to %s and {Kind} to %s or %s", c.TokenTypes, c.Kind, c.Pool, PoolFirst, Encoder, Decoder)
	case c.SourceLayers != 0 && c.Kind != EncoderDecoder:
		return fieldErrorf("{SourceLayers}: %d, but {Kind} %s has no source; set {Kind} to %s, or {SourceLayers} to 0", c.SourceLayers, c.Kind, EncoderDecoder)
	case c.SharedEmbedding && (c.Kind != EncoderDecoder || c.sourceVocab() != c.Vocab):
		return fieldErrorf("{SharedEmbedding}: {Kind} is %s, {Vocab} %d and {SourceVocab} %d; needs {Kind} %s and one vocabulary", c.Kind, c.Vocab, c.sourceVocab(), EncoderDecoder)
	case (c.PositionTable != 0 || c.PositionOffset != 0) && c.positions() != Learned:
		return fieldErrorf("{PositionTable}: %d and {PositionOffset}: %d, but {Positions} are %s; set {Positions} to %s, or both to 0", c.PositionTable, c.PositionOffset, c.Positions, Learned)
	case c.PositionTable != 0 && c.LearnedPositions() < 1:
		return fieldErrorf("{PositionTable}: %d rows, of which {PositionOffset} %d are before the first position; set {PositionTable} to more", c.PositionTable, c.PositionOffset)
	case c.PositionTable == 0 && c.PositionOffset != 0:
		return fieldErrorf("{PositionOffset}: %d, but {PositionTable} is 0; set {PositionTable} to the number of rows", c.PositionOffset)
	case (c.HeadActivation != "" || c.HeadNorm) && c.HeadHidden == 0:
		return fieldErrorf("{HeadHidden}: 0, but {HeadActivation} is %q and {HeadNorm} %t; set {HeadHidden} to 1 or more", c.HeadActivation, c.HeadNorm)
	}
	if _, known := headActivations[c.HeadActivation]; !known {
		return fieldErrorf("{HeadActivation}: %q is none of %s, %s, %s, %s", c.HeadActivation, ReLU, Tanh, GELU, TanhGELU)
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
		return fieldErrorf("{Positions}: %s, but {RopeFraction} is %g, {LocalRopeTheta} %g and {RopeScaling} set is %t; set {Positions} to %s, or leave them out", c.Positions, c.RopeFraction, c.LocalRopeTheta, c.RopeScaling != nil, Rotary)
	case c.Positions != Rotary:
		return nil
	case !(c.RopeFraction >= 0 && c.RopeFraction <= 1):
		return fieldErrorf("{RopeFraction}: %g, needs to be from 0 to 1", c.RopeFraction)
	case c.RopeFraction != 0 && (c.rotatedWidth() < 1 || 2*c.rotatedPairs() > c.headWidth()):
		return fieldErrorf("{RopeFraction}: %g of %d channels are %d, needs pairs of channels", c.RopeFraction, c.headWidth(), c.rotatedWidth())
	case !isRopeBase(c.LocalRopeTheta):
		return fieldErrorf("{LocalRopeTheta}: %g, needs to be 0, or from 1 to 1e30", c.LocalRopeTheta)
	case c.LocalRopeTheta != 0 && len(c.LayerWindows) == 0:
		return fieldErrorf("{LocalRopeTheta}: %g, but {LayerWindows} are empty; set {LayerWindows}, or {LocalRopeTheta} to 0", c.LocalRopeTheta)
	case c.RopeScaling == nil:
		return nil
	}
	return c.checkRopeScaling(c.RopeScaling)
}

// checkRopeScaling returns an error for an invalid field of r.
func (c validation) checkRopeScaling(r *RopeScaling) error {
	kinds := []ScalingKind{LinearScaling, Llama3Scaling, YarnScaling, LongScaling, DynamicScaling}
	if !slices.Contains(kinds, r.Kind) {
		return fieldErrorf("{RopeScaling}: {Kind} %q is none of %s, %s, %s, %s, %s", r.Kind, kinds[0], kinds[1], kinds[2], kinds[3], kinds[4])
	}
	if !(r.Factor >= 1 && r.Factor <= maxSize) {
		return fieldErrorf("{RopeScaling}: {Factor} %g, needs to be from 1 to %d", r.Factor, maxSize)
	}
	for _, x := range []struct {
		name  string
		value float64
		of    []ScalingKind
	}{
		{"{OriginalContext}", float64(r.OriginalContext), kinds[1:]},
		{"{LowFrequency}", r.LowFrequency, kinds[1:2]}, {"{HighFrequency}", r.HighFrequency, kinds[1:2]},
		{"{BetaFast}", r.BetaFast, kinds[2:3]}, {"{BetaSlow}", r.BetaSlow, kinds[2:3]}, {"{AttentionFactor}", r.AttentionFactor, kinds[2:4]},
	} {
		if x.value != 0 && !slices.Contains(x.of, r.Kind) {
			return fieldErrorf("{RopeScaling}: {Kind} %s has no "+x.name+", it is %g; set it to 0", r.Kind, x.value)
		}
	}
	switch {
	case r.followsLength() && c.Kind == EncoderDecoder:
		return fieldErrorf("{RopeScaling}: {Kind} %s, but {Kind} is %s; set {Kind} to %s or %s", r.Kind, c.Kind, Decoder, Encoder)
	case r.Kind != LongScaling && len(r.ShortFactors)+len(r.LongFactors) > 0:
		return fieldErrorf("{RopeScaling}: {Kind} %s has no {ShortFactors} and {LongFactors}, there are %d and %d; leave them out", r.Kind, len(r.ShortFactors), len(r.LongFactors))
	case r.Kind == LinearScaling:
		return nil
	case r.Kind == YarnScaling && !(c.ropeBase() > 1):
		return fieldErrorf("{RopeScaling}: {Kind} %s needs frequencies that fall, {RopeTheta} is %g; set {RopeTheta} above 1", r.Kind, c.ropeBase())
	case r.OriginalContext < 1 || r.OriginalContext > maxSize:
		return fieldErrorf("{RopeScaling}: {OriginalContext} %d, needs to be from 1 to %d", r.OriginalContext, maxSize)
	case r.Kind == Llama3Scaling && !(r.lowBound() >= leastTurns && r.lowBound() < r.highBound() && r.highBound() <= maxSize):
		return fieldErrorf("{RopeScaling}: {LowFrequency} %g and {HighFrequency} %g, needs %g ≤ low < high ≤ %d", r.lowBound(), r.highBound(), leastTurns, maxSize)
	case r.Kind == YarnScaling && !(r.slowBound() >= leastTurns && r.slowBound() <= r.fastBound() && r.fastBound() <= maxSize):
		return fieldErrorf("{RopeScaling}: {BetaSlow} %g and {BetaFast} %g, needs %g ≤ slow ≤ fast ≤ %d", r.slowBound(), r.fastBound(), leastTurns, maxSize)
	case r.AttentionFactor != 0 && !(r.AttentionFactor >= 1e-3 && r.AttentionFactor <= 1e3):
		return fieldErrorf("{RopeScaling}: {AttentionFactor} %g, needs to be 0, or from 0.001 to 1000", r.AttentionFactor)
	case r.Kind == DynamicScaling && c.rotatedWidth() < 3:
		return fieldErrorf("{RopeScaling}: {Kind} %s needs 3 rotated channels or more, there are %d", r.Kind, c.rotatedWidth())
	case r.Kind == LongScaling && r.AttentionFactor == 0 && r.Factor > 1 && r.OriginalContext == 1:
		return fieldErrorf("{RopeScaling}: {OriginalContext} 1 with {Kind} %s and {Factor} %g gives no {AttentionFactor}; set it", r.Kind, r.Factor)
	}
	for _, x := range []struct {
		name    string
		factors []float64
	}{{"{ShortFactors}", r.ShortFactors}, {"{LongFactors}", r.LongFactors}} {
		if r.Kind == LongScaling && len(x.factors) != c.rotatedPairs() {
			return fieldErrorf("{RopeScaling}: "+x.name+" has %d elements, %d pairs of channels are rotated", len(x.factors), c.rotatedPairs())
		}
		for i, f := range x.factors {
			if !(f >= 1e-6 && f <= 1e6) {
				return fieldErrorf("{RopeScaling}: element %d of "+x.name+" is %g, needs to be from 1e-6 to 1e6", i, f)
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
		return fieldErrorf("{BranchNorm}: the blocks of %s are no sums; set {BranchNorm} to false", c.Mechanism)
	}
	if _, owns := nn.LookupMixer(c.Mechanism); owns && (c.HeadWidth != 0 || c.LayerWindows != nil || c.hasLayerMechanisms() || c.RelativeBuckets != 0 || c.QKNorm || c.AttentionNorm || c.Biases != nil || c.RopeFraction != 0 || c.ParallelBlocks != "") {
		return fieldErrorf("{Mechanism}: %s owns its projections, and takes no {HeadWidth}, {LayerWindows}, {LayerMechanisms}, {RelativeBuckets}, {QKNorm}, {AttentionNorm}, {Biases}, {RopeFraction} or {ParallelBlocks}; leave them out, or set {Mechanism} to softmax", c.Mechanism)
	}
	if n := len(c.LayerWindows); n != 0 && n != c.Layers {
		return fieldErrorf("{LayerWindows}: has %d elements, {Layers} is %d", n, c.Layers)
	}
	for i, w := range c.LayerWindows {
		if w < 0 || w > maxSize {
			return fieldErrorf("{LayerWindows}: layer %d has %d, needs to be from 0 to %d", i, w, maxSize)
		}
	}
	if err := c.checkLayerNames(); err != nil {
		return err
	}
	switch {
	case c.LayerWindows != nil && (c.Kind == EncoderDecoder || c.hasDecay() || c.AttentionDropout > 0):
		return fieldErrorf("{LayerWindows}: {Kind} is %s, {Decay} %q and {AttentionDropout} %g; set {Kind} to %s or %s, and the others to none and 0", c.Kind, c.Decay, c.AttentionDropout, Decoder, Encoder)
	case c.QKNorm && c.Kind == EncoderDecoder:
		return fieldErrorf("{QKNorm}: {Kind} is %s; set {Kind} to %s or %s, or {QKNorm} to false", c.Kind, Decoder, Encoder)
	case c.AttentionNorm && c.Kind == EncoderDecoder:
		return fieldErrorf("{AttentionNorm}: {Kind} is %s; set {Kind} to %s or %s, or {AttentionNorm} to false", c.Kind, Decoder, Encoder)
	case c.RelativeBuckets != 0 && (c.Mechanism != "softmax" || len(c.Set) != 0 || c.Kind != Encoder || c.LayerWindows != nil || c.AttentionDropout > 0):
		return fieldErrorf("{RelativeBuckets}: %d, but {Mechanism} is %s with settings %v, {Kind} %s, {LayerWindows} %v and {AttentionDropout} %g; set {Mechanism} to softmax without settings, {Kind} to %s, and leave out the others", c.RelativeBuckets, c.Mechanism, c.Set, c.Kind, c.LayerWindows, c.AttentionDropout, Encoder)
	case c.RelativeBuckets != 0 && (c.RelativeBuckets < 4 || c.RelativeBuckets%2 != 0 || c.RelativeBuckets > 256):
		return fieldErrorf("{RelativeBuckets}: %d, needs an even number from 4 to 256", c.RelativeBuckets)
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
