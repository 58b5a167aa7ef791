package published

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func TestWriteGivesTheSameOutputs(t *testing.T) {
	t.Parallel()
	for name := range tinyConfigs {
		m := openTiny(t, name)
		to := t.TempDir()
		if err := Write(to, m.Model(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := Open(to)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		x, y := outputs(t, again), outputs(t, m)
		if again.plan.scores == m.plan.scores && !slices.Equal(x, y) {
			t.Errorf("%s: outputs differ", name)
		}
	}
}

func TestWriteExpressesModelsOfOurs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]model.Config{
		"gpt2":     {Kind: model.Decoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Learned, Mechanism: "softmax", Tied: true},
		"gpt_neox": {Kind: model.Decoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Rotary, Mechanism: "softmax", Bias: true, Biases: &model.Biases{QKV: true, MLP: true}},
		"llama":    {Kind: model.Decoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Rotary, Mechanism: "softmax", Norm: model.RMSNorm, Activation: model.SwiGLU},
		"bert":     {Kind: model.Encoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Learned, Mechanism: "softmax", PostNorm: true, EntryNorm: true, NoFinalNorm: true, TokenTypes: 1, Outputs: 3, Pool: model.PoolFirst, HeadHidden: 8, HeadActivation: model.Tanh, Bias: true},
	} {
		m, err := model.New(c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "new")
		if err := Write(dir, m, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := Open(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Family() != name {
			t.Errorf("family is %s, want %s", got.Family(), name)
		}
		in := tinyInput(got)
		x := outputs(t, got)
		y := make([]float32, len(x))
		if err := m.Logits(t.Context(), &model.Batch{B: 2, N: 6, Tokens: in.IDs, Lens: []int64{6, 4}}, y); err != nil {
			t.Fatal(err)
		}
		for i := range x {
			if d := x[i] - y[i]; x[i] != 0 && (d > 1e-6 || d < -1e-6) {
				t.Errorf("%s: element %d is %v, want %v", name, i, x[i], y[i])
				break
			}
		}
	}
}

func TestWriteNamesTheFieldThatNoFamilyHas(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]model.Config{
		`mechanism is "fastmax"`: {Kind: model.Decoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Rotary, Mechanism: "fastmax"},
		`attention_norm is true, all have false; mechanism is "fastmax", all have "softmax"`: {Kind: model.Decoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Rotary, Mechanism: "fastmax", Norm: model.RMSNorm, AttentionNorm: true},
		"conv is 4":      {Kind: model.Decoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Rotary, Mechanism: "softmax", Conv: 4},
		`pool is "mean"`: {Kind: model.Encoder, Vocab: 20, Width: 8, Heads: 2, Layers: 1, Context: 16, Positions: model.Learned, Mechanism: "softmax", PostNorm: true, EntryNorm: true, NoFinalNorm: true, TokenTypes: 1, Outputs: 3, Pool: model.PoolMean, HeadHidden: 8, HeadActivation: model.Tanh, Bias: true},
	} {
		m, err := model.New(c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(t.TempDir(), m, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
