package model

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Rows between layers are the rows that the head reads in the end, and are as many.
func TestVisitLayersSeesEveryLayer(t *testing.T) {
	for _, name := range []string{"bert", "modernbert", "phi", "bart", "vit", "decoder softmax"} {
		c := cases()[name]
		m, b := made[float64](t, c), batch(c, 1, 2, 5, true)
		var places [2][]int
		var last []float64
		err := m.VisitLayers(t.Context(), b, func(source bool, layer int, rows tensor.Mat[float64]) error {
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
		m, b := made[float64](t, c), batch(c, 1, 2, 5, true)
		want := logits(t, m, b)
		got, last := make([]float64, len(want)), 0
		err := m.VisitLogits(t.Context(), b, got, func(_ bool, layer int, _ tensor.Mat[float64]) error {
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

// The gradient from logits is the gradient of their weighted sum.
func TestGradientsFromLogits(t *testing.T) {
	for _, name := range []string{"bert", "bert classifier", "modernbert mean", "gemma", "bart", "vit"} {
		c := cases()[name]
		m, b := made[float64](t, c), batch(c, 1, 2, 5, true)
		dlogits := make([]float64, c.Rows(b.B, b.N)*c.outputSize())
		for i := range dlogits {
			dlogits[i] = rng.New(7).Normal(uint64(i))
		}
		if err := m.BackwardLogits(dlogits, 1); err == nil {
			t.Errorf("%s: BackwardLogits is accepted without Outputs", name)
		}
		if _, err := m.Outputs(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := m.BackwardLogits(dlogits, 1); err != nil {
			t.Fatal(err)
		}
		for i, p := range m.Params().All() {
			start, direction := slices.Clone(p.Data), make([]float64, len(p.Data))
			for j := range direction {
				direction[j] = rng.New(8).Fold(uint64(i)).Normal(uint64(j)) / float64(len(direction))
			}
			at := func(x float64) float64 {
				for j, d := range direction {
					p.Data[j] = start[j] + x*d
				}
				return dot(logits(t, m, b), dlogits)
			}
			const h = 1e-3
			want := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			copy(p.Data, start)
			if got := dot(p.Grad, direction); !(math.Abs(got-want) <= 1e-6*(1+math.Abs(want))) {
				t.Errorf("%s %s: slope is %v, want %v", name, p.Name, got, want)
			}
		}
	}
}

// A mask of keys at the end is the same as lengths; masked positions change nothing.
func TestKeyMaskIsNotSeen(t *testing.T) {
	for _, name := range []string{"bert", "bert classifier", "modernbert", "modernbert mean", "mpnet", "vit", "mistral", "llama"} {
		c := cases()[name]
		m, b := made[float64](t, c), batch(c, 1, 3, 6, true)
		masked := *b
		masked.Lens = nil
		for i := range b.B {
			for j := range b.N {
				masked.KeyMask = append(masked.KeyMask, int64(j) < b.Lens[i])
			}
		}
		if got, want := loss(t, m, &masked), loss(t, m, b); !(math.Abs(got-want) <= 1e-13*want) {
			t.Errorf("%s: loss is %v with a mask, %v with lengths", name, got, want)
		}
		masked.KeyMask[b.N+1] = false // in the middle of row 1
		againstSlopes(t, m, &masked)
		want := loss(t, m, &masked)
		if c.Inputs > 0 {
			masked.Values = slices.Clone(b.Values)
			masked.Values[(b.N+1)*c.Inputs]++
		} else {
			masked.Tokens = slices.Clone(b.Tokens)
			masked.Tokens[b.N+1] = (b.Tokens[b.N+1] + 1) % int32(c.Vocab)
		}
		if got := loss(t, m, &masked); got != want {
			t.Errorf("%s: a masked token changes the loss from %v to %v", name, want, got)
		}
	}
}

// Positions in order are the default, and others choose rows of the table.
func TestPositionsChooseRows(t *testing.T) {
	c := cases()["roberta"]
	m, b := made[float64](t, c), batch(c, 1, 2, 5, false)
	want := loss(t, m, b)
	b.Positions = []int32{2, 3, 4, 5, 6, 2, 3, 4, 5, 6}
	if got := loss(t, m, b); got != want {
		t.Errorf("loss is %v, want %v", got, want)
	}
	b.Positions = []int32{9, 1, 1, 0, 3, 7, 7, 2, 4, 5}
	if got := loss(t, m, b); got == want {
		t.Error("positions change nothing")
	}
	againstSlopes(t, m, b)
	b.Positions[3] = 10
	if _, err := m.Forward(t.Context(), b); err == nil || err.Error() != "positions: row 0, position 3 is 10, the learned table has 10" {
		t.Errorf("error is %v", err)
	}
	b = batch(c, 1, 1, 9, false)
	if _, err := m.Forward(t.Context(), b); err == nil || err.Error() != "positions: 9 are needed, the learned table has 8" {
		t.Errorf("error is %v", err)
	}
}

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
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// A pass without a gradient takes rows of MLPs in parts, with the bits of all rows.
func TestPartsOfRowsHaveTheBitsOfAll(t *testing.T) {
	for _, name := range []string{"bert", "modernbert", "phi", "gpt-neox", "crate encoder"} {
		c := with(cases()[name], func(c *Config) { c.Context, c.PositionTable = partRows+50, 0 })
		m, b := made[float32](t, c), batch(c, 1, 1, partRows+50, false)
		y, err := m.Outputs(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.VisitLayers(t.Context(), b, func(_ bool, layer int, rows tensor.Mat[float32]) error {
			if layer == c.Layers+1 && !slices.Equal(rows.Data, y.Data) {
				t.Errorf("%s: rows in parts have other bits", name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
