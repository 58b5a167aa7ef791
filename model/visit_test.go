package model

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/tensor"
)

// Frequencies follow the papers: whole and unscaled at the ends, between them interpolated.
func TestRopeScaling(t *testing.T) {
	const d, theta = 64, 1e4
	plain := attention.NewFrequencies(d, theta).Pairs
	for _, r := range []RopeScaling{
		{Kind: LinearScaling, Factor: 4},
		{Kind: Llama3Scaling, Factor: 8, OriginalContext: 512},
		{Kind: YarnScaling, Factor: 16, OriginalContext: 4096},
	} {
		f := attention.NewFrequencies(d, theta)
		r.scale(&f, &rotations{width: d, pairs: d / 2, theta: theta}, 1)
		between := 0
		for j, got := range f.Pairs {
			turns := float64(r.OriginalContext) * plain[j] / (2 * math.Pi)
			low, high := 1.0, 4.0
			if r.Kind == YarnScaling {
				high = 32
			}
			switch ratio := got / plain[j]; {
			case r.Kind == LinearScaling || turns < low/1.4:
				if math.Abs(ratio*r.Factor-1) > 1e-14 {
					t.Errorf("%s: pair %d has %v of its frequency, want 1/%v", r.Kind, j, ratio, r.Factor)
				}
			case turns > high*1.4:
				if ratio != 1 {
					t.Errorf("%s: pair %d has %v of its frequency, want 1", r.Kind, j, ratio)
				}
			case ratio <= 1 && ratio*r.Factor > 1-1e-14:
				between++
			default:
				t.Errorf("%s: pair %d has %v of its frequency", r.Kind, j, ratio)
			}
		}
		if want := map[ScalingKind]float64{YarnScaling: 1 + 0.1*math.Log(16)}[r.Kind]; f.Factor != want || r.Kind != LinearScaling && between < 3 {
			t.Errorf("%s: the factor is %v, want %v; %d pairs are between", r.Kind, f.Factor, want, between)
		}
	}
}

func TestVariantsAreChecked(t *testing.T) {
	for want, c := range map[string]Config{
		"rope_fraction: 0.2 of 4 channels are 0":            with(cases()["phi"], func(c *Config) { c.Width, c.RopeFraction = 12, 0.2 }),
		"rope_fraction: 1 of 3 channels are 3":              with(cases()["phi"], func(c *Config) { c.Width, c.RopeFraction = 9, 1 }),
		"rope_scaling: kind \"ntk\" is none of":             with(llama(), func(c *Config) { c.RopeScaling = &RopeScaling{Kind: "ntk", Factor: 2} }),
		"rope_scaling: kind dynamic has no beta_fast":       with(llama(), func(c *Config) { c.RopeScaling = &RopeScaling{Kind: DynamicScaling, Factor: 2, BetaFast: 3} }),
		"rope_scaling: kind linear has no original_context": with(llama(), func(c *Config) { c.RopeScaling = &RopeScaling{Kind: LinearScaling, Factor: 2, OriginalContext: 3} }),
		"rope_scaling: short_factors has 1 elements, 2":     with(longRope(), func(c *Config) { c.RopeScaling.ShortFactors = []float64{1} }),
		"rope_scaling: element 1 of long_factors is 0":      with(longRope(), func(c *Config) { c.RopeScaling.LongFactors = []float64{1, 0} }),
		"rope_scaling: kind dynamic needs 3 rotated": with(llama(), func(c *Config) {
			c.HeadWidth, c.RopeScaling = 2, &RopeScaling{Kind: DynamicScaling, Factor: 2, OriginalContext: 9}
		}),
		"rope_scaling: kind longrope, but kind is encoder-d": with(longRope(), func(c *Config) { c.Kind = EncoderDecoder }),
		"rope_scaling: original_context 0":                   with(llama(), func(c *Config) { c.RopeScaling = &RopeScaling{Kind: YarnScaling, Factor: 2} }),
		"layer_windows: has 1 elements, layers is 2":         with(llama(), func(c *Config) { c.LayerWindows = []int{3} }),
		"layer_windows: layer 1 has -1":                      with(llama(), func(c *Config) { c.LayerWindows = []int{3, -1} }),
		"local_rope_theta: 50, but layer_windows are empty":  with(llama(), func(c *Config) { c.LocalRopeTheta = 50 }),
		"no_first_norm: with post_norm":                      with(bert(), func(c *Config) { c.NoFirstNorm = true }),
		"norm_offset: needs norm rms, norm is \"\"":          with(bert(), func(c *Config) { c.NormOffset = true }),
		"parallel_blocks: \"three\" is none of":              with(llama(), func(c *Config) { c.ParallelBlocks = "three" }),
		"branch_norm: kind is decoder, post_norm true":       with(llama(), func(c *Config) { c.BranchNorm, c.PostNorm = true, true }),
		"branch_norm: the blocks of crate are no sums":       with(cases()["crate"], func(c *Config) { c.BranchNorm = true }),
		"logit_cap: -1, needs to be 0, or":                   with(llama(), func(c *Config) { c.LogitCap = -1 }),
		"logit_cap: 2, but loss is squared":                  with(cases()["squared"], func(c *Config) { c.LogitCap = 2 }),
		"position_table: 3 rows, of which position_offset 3": with(bert(), func(c *Config) { c.PositionTable, c.PositionOffset = 3, 3 }),
		"position_offset: 3, but position_table is 0":        with(bert(), func(c *Config) { c.PositionTable, c.PositionOffset = 0, 3 }),
		"relative_buckets: 8, but mechanism is softmax":      with(llama(), func(c *Config) { c.RelativeBuckets = 8 }),
		"head_activation: \"silu\" is none of":               with(bert(), func(c *Config) { c.HeadActivation = SiLU }),
		"head_hidden: 0, but head_activation":                with(llama(), func(c *Config) { c.HeadActivation = ReLU }),
		"token_types: 2, but kind is encoder and pool":       with(bert(), func(c *Config) { c.Tied, c.Pool = false, PoolCLS }),
		"shared_embedding: kind is encoder":                  with(bert(), func(c *Config) { c.SharedEmbedding = true }),
		"mechanism: crate owns its projections":              with(tiny(Decoder, "crate"), func(c *Config) { c.Hidden, c.HeadWidth = 0, 3 }),
		"attention_norm: kind is encoder-decoder":            with(tiny(EncoderDecoder, "softmax"), func(c *Config) { c.AttentionNorm = true }),
		"kind: convolutional takes no fields":                with(cases()["net"], func(c *Config) { c.EntryNorm = true }),
	} {
		if err := c.Validate(); err == nil || !strings.HasPrefix(fault.InFile(err).Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// A pass without a gradient takes rows of MLPs in parts, with the bits of all rows.
func TestPartsOfRowsHaveTheBitsOfAll(t *testing.T) {
	for _, name := range []string{"bert", "modernbert", "phi", "gpt-neox", "crate encoder"} {
		c := with(cases()[name], func(c *Config) { c.Context, c.PositionTable = partRows+50, 0 })
		m, b := made(t, c), batch(c, 1, 1, partRows+50, false)
		y, err := m.Outputs(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.VisitLayers(t.Context(), b, func(_ bool, layer int, rows tensor.Mat) error {
			if layer == c.Layers+1 && !slices.Equal(rows.Data, y.Data) {
				t.Errorf("%s: rows in parts have other bits", name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Rows between layers are the rows that the head reads in the end, and are as many.
func TestVisitLayersSeesEveryLayer(t *testing.T) {
	for _, name := range []string{"bert", "modernbert", "phi", "bart", "vit", "decoder softmax"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, true)
		var places [2][]int
		var last []float
		err := m.VisitLayers(t.Context(), b, func(source bool, layer int, rows tensor.Mat) error {
			if source {
				places[1] = append(places[1], layer)
			} else {
				places[0], last = append(places[0], layer), slices.Clone(rows.Data)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		y, err := m.Outputs(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(last, y.Data) {
			t.Errorf("%s: the last rows are not the outputs", name)
		}
		for i, layers := range []int{c.Layers, c.sourceLayers()} {
			for j, place := range places[i] {
				if place != j || len(places[i]) != layers+2 {
					t.Errorf("%s: places are %v, there are %d layers", name, places[i], layers)
				}
			}
		}
	}
}

func TestVisitLogitsAreLogits(t *testing.T) {
	for _, name := range []string{"bert", "modernbert mean", "phi", "bart", "vit"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, true)
		want := logits(t, m, b)
		got, last := make([]float, len(want)), 0
		err := m.VisitLogits(t.Context(), b, got, func(_ bool, layer int, _ tensor.Mat) error {
			last = layer
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || last != c.Layers+1 {
			t.Errorf("%s: logits differ, or the last place is %d and not %d", name, last, c.Layers+1)
		}
		if err := m.VisitLogits(t.Context(), b, got[1:], nil); err == nil {
			t.Errorf("%s: a short destination is accepted", name)
		}
	}
}
