package model

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
)

// bert is the smallest BERT: post-norm, a norm and types at the entry, no last norm, and the
// head of masked words.
func bert() Config {
	return Config{
		Kind: Encoder, Vocab: 11, Layers: 2, Heads: 3, Width: 12, Hidden: 17, Context: 7,
		Positions: Learned, PositionTable: 9, Mechanism: "softmax", Activation: GELU, PostNorm: true,
		EntryNorm: true, TokenTypes: 2, NoFinalNorm: true, NormEps: 1e-12,
		HeadHidden: 12, HeadActivation: GELU, HeadNorm: true, Bias: true, Tied: true,
	}
}

// variants are the smallest configurations of published families.
func variants() map[string]Config {
	b, l := bert(), llama()
	modernBERT := with(l, func(c *Config) {
		c.Kind, c.Norm, c.Activation, c.KVHeads = Encoder, LayerNorm, GEGLU, 0
		c.Layers, c.LayerWindows, c.LocalRopeTheta, c.RopeTheta = 3, []int{0, 2, 0}, 50, 900
		c.NoFirstNorm, c.EntryNorm, c.Tied = true, true, true
		c.Biases = &Biases{Head: true}
	})
	neox := with(tiny(Decoder, "softmax"), func(c *Config) {
		c.Positions, c.RopeFraction, c.ParallelBlocks, c.Width, c.Heads, c.Tied = Rotary, 0.5, ParallelTwo, 24, 3, false
		c.Biases = &Biases{QKV: true, O: true, MLP: true, Norm: true}
	})
	all := map[string]Config{
		"bert": b,
		"bert classifier": with(b, func(c *Config) {
			c.Tied, c.Pool, c.HeadActivation, c.HeadNorm, c.Outputs = false, PoolFirst, Tanh, false, 3
		}),
		"bert tokens": with(b, func(c *Config) {
			c.Tied, c.HeadHidden, c.HeadActivation, c.HeadNorm, c.Outputs = false, 0, "", false, 5
		}),
		"roberta": with(b, func(c *Config) { c.PositionTable, c.PositionOffset, c.TokenTypes = 10, 2, 1 }),
		"distilbert": with(b, func(c *Config) {
			c.TokenTypes, c.Tied, c.Pool, c.HeadActivation, c.HeadNorm, c.Outputs = 0, false, PoolFirst, ReLU, false, 2
		}),
		"mpnet":      with(b, func(c *Config) { c.TokenTypes, c.RelativeBuckets = 0, 8 }),
		"modernbert": modernBERT,
		"modernbert mean": with(modernBERT, func(c *Config) {
			c.Pool, c.HeadHidden, c.HeadActivation, c.HeadNorm, c.Tied, c.Outputs = PoolMean, 12, GELU, true, false, 4
		}),
		"gpt-2":           with(tiny(Decoder, "softmax"), func(c *Config) { c.Biases = &Biases{QKV: true, O: true, MLP: true, Norm: true} }),
		"gpt-neox":        neox,
		"phi":             with(neox, func(c *Config) { c.ParallelBlocks, c.Biases = ParallelOne, nil }),
		"parallel linear": with(neox, func(c *Config) { c.Mechanism, c.RopeFraction, c.Dropout = "linear", 0, 0 }),
		"llama linear":    with(l, func(c *Config) { c.RopeScaling = &RopeScaling{Kind: LinearScaling, Factor: 3} }),
		"llama 3": with(l, func(c *Config) {
			c.HeadWidth, c.RopeScaling = 6, &RopeScaling{Kind: Llama3Scaling, Factor: 8, OriginalContext: 20}
		}),
		"yarn": with(l, func(c *Config) {
			c.HeadWidth, c.RopeScaling = 10, &RopeScaling{Kind: YarnScaling, Factor: 4, OriginalContext: 300}
		}),
		"longrope": with(l, func(c *Config) {
			c.HeadWidth = 4
			c.RopeScaling = &RopeScaling{Kind: LongScaling, Factor: 4, OriginalContext: 300, ShortFactors: []float64{1, 1.25}, LongFactors: []float64{2, 3}}
		}),
		"dynamic": with(l, func(c *Config) {
			c.HeadWidth, c.RopeScaling = 6, &RopeScaling{Kind: DynamicScaling, Factor: 4, OriginalContext: 300}
		}),
		"phi odd": with(neox, func(c *Config) { c.RopeFraction = 0.625 }),
		"mistral": with(l, func(c *Config) { c.LayerWindows = []int{3, 3} }),
		"qwen 2":  with(l, func(c *Config) { c.Biases = &Biases{QKV: true} }),
		"qwen 3":  with(l, func(c *Config) { c.QKNorm, c.HeadWidth, c.NormEps = true, 5, 1e-6 }),
		"attention norm": with(l, func(c *Config) {
			c.AttentionNorm, c.Mechanism, c.Set = true, "fastmax", map[string]string{"window": "3", "tau": "1"}
		}),
		"attention norm encoder": with(tiny(Encoder, "softmax"), func(c *Config) { c.AttentionNorm, c.Norm, c.NormOffset = true, RMSNorm, true }),
		"gemma": with(l, func(c *Config) {
			c.NormOffset, c.EntryScale, c.Activation, c.Tied, c.HeadWidth = true, 3.4641016, TanhGEGLU, true, 4
		}),
		"gemma 2": with(l, func(c *Config) {
			c.NormOffset, c.EntryScale, c.Activation, c.Tied, c.HeadWidth, c.BranchNorm = true, 3.4641016, TanhGEGLU, true, 4, true
			c.LayerWindows, c.Set, c.LogitCap = []int{3, 0}, map[string]string{"scale": "0.3", "cap": "0.5"}, 0.75
		}),
		"gemma 3": with(l, func(c *Config) {
			c.NormOffset, c.EntryScale, c.Activation, c.Tied, c.QKNorm, c.BranchNorm = true, 3.4641016, TanhGEGLU, true, true, true
			c.LayerWindows, c.LocalRopeTheta, c.RopeScaling = []int{3, 0}, 50, &RopeScaling{Kind: LinearScaling, Factor: 8}
		}),
		"branch norm mixer": with(tiny(Decoder, "mamba-2"), func(c *Config) {
			c.BranchNorm, c.Positions, c.Conv, c.Set = true, NoPosition, 2, map[string]string{"state": "3"}
		}),
		"branch norm encoder": with(tiny(Encoder, "linear"), func(c *Config) { c.BranchNorm, c.LogitCap = true, 2 }),
		"qk-norm offset":      with(l, func(c *Config) { c.QKNorm, c.NormOffset = true, true }),
		"bart": with(tiny(EncoderDecoder, "softmax"), func(c *Config) {
			c.PostNorm, c.EntryNorm, c.NoFinalNorm, c.PositionTable, c.PositionOffset = true, true, true, 12, 2
			c.SharedEmbedding, c.SourceLayers, c.EntryScale, c.Biases = true, 1, 2, &Biases{QKV: true, O: true, MLP: true, Norm: true, Head: true}
		}),
		"vit": with(tiny(Encoder, "softmax"), func(c *Config) {
			c.Vocab, c.Inputs, c.Outputs, c.Tied, c.Pool, c.HeadHidden, c.HeadActivation = 0, 6, 4, false, PoolCLS, 12, Tanh
		}),
	}
	return all
}

func TestConfigOfAModelIsItsOwn(t *testing.T) {
	all := func() Config {
		return with(llama(), func(c *Config) {
			c.LayerWindows, c.Biases, c.Set = []int{3, 3}, &Biases{QKV: true}, map[string]string{"scale": "1"}
			c.RopeScaling = &RopeScaling{Kind: LongScaling, Factor: 3, OriginalContext: 5, ShortFactors: []float64{1}, LongFactors: []float64{2}}
		})
	}
	c := all()
	m := made(t, c)
	for _, c := range []Config{c, m.Config()} {
		c.LayerWindows[0], c.Biases.QKV, c.Set["scale"], c.RopeScaling.Factor = 2, false, "2", 2
		c.RopeScaling.LongFactors[0] = 7
	}
	if got, want := m.Config(), all(); !reflect.DeepEqual(got, want) {
		t.Errorf("config is %+v, want %+v", got, want)
	}
}

func TestEpsilonBelowFloat32IsRefused(t *testing.T) {
	c := llama()
	for _, c.NormEps = range []float64{1e-46, 1e-39, -1, 2, math.NaN()} {
		if err := c.Validate(); err == nil || !strings.Contains(fault.InFile(err).Error(), "norm_eps: ") {
			t.Errorf("norm_eps %g: error is %v", c.NormEps, err)
		}
	}
}

// A layer with a window has none of the weights and constants of Mechanism.
func TestLayersWithAWindowCountTheirOwnWeights(t *testing.T) {
	for _, mechanism := range []string{"transformer-xl", "primal", "rfa", "performer", "fastmax"} {
		for _, windows := range [][]int{{2, 3}, {0, 3}} {
			c := Config{
				Kind: Decoder, Vocab: 5, Layers: 2, Heads: 1, Width: 4, Context: 200, Positions: NoPosition,
				Mechanism: mechanism, LayerWindows: windows,
			}
			m := made(t, c)
			if got, want := c.Params(), m.Params().Size(); got != want {
				t.Errorf("%s, windows %v: %d weights are counted, there are %d", mechanism, windows, got, want)
			}
			dir := t.TempDir()
			if err := m.Save(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); err != nil {
				t.Errorf("%s, windows %v: %v", mechanism, windows, err)
			}
		}
	}
}

// Only models whose layers all forget read on beyond their context without windows.
func TestContextWindow(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   int
	}{
		"mamba-2":           {func(c *Config) { c.Mechanism, c.Positions = "mamba-2", NoPosition }, 0},
		"retnet":            {func(c *Config) { c.Mechanism, c.Positions = "retnet", NoPosition }, 0},
		"local":             {func(c *Config) { c.Mechanism, c.Positions = "local", Rotary }, 0},
		"learned positions": {func(c *Config) { c.Mechanism, c.Positions = "local", Learned }, 7},
		"an encoder":        {func(c *Config) { c.Kind, c.Mechanism, c.Positions = Encoder, "local", Rotary }, 7},
		"fastmax":           {func(c *Config) { c.Mechanism, c.Positions = "fastmax", Rotary }, 7},
		"a layer of softmax": {func(c *Config) {
			c.Mechanism, c.Positions, c.LayerMechanisms = "local", Rotary, []LayerMechanism{{}, {Mechanism: "softmax"}}
		}, 7},
	} {
		if got := with(tiny(Decoder, "softmax"), c.change).ContextWindow(); got != c.want {
			t.Errorf("%s: windows of %d tokens, want %d", name, got, c.want)
		}
	}
}
