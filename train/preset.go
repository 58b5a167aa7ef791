package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/token"
)

// Preset is a named Config.
type Preset struct {
	Name, Doc string
	Config    Config
}

var presets = []Preset{
	{"default", "two minutes at most on two cores with AVX2", standard(4, 96, 3, 256, 4, 2000)},
	{"small", "the same where there is no AVX2: a smaller model, fewer updates", small()},
	{"tiny", "seconds: shows that everything works, learns little", standard(2, 32, 2, 64, 4, 100)},
	{"shakespeare-cpu", "nanoGPT's configuration for the CPU, at the level of characters", shakespeare()},
}

// standard is a decoder over bytes with Fastmax attention and rotated positions.
func standard(layers, width, heads, context, batch, steps int) Config {
	return Config{
		Version: configVersion, Task: "text", Vocab: token.KindBytes,
		Model: model.Config{
			Kind: model.Decoder, Layers: layers, Heads: heads, Width: width, Context: context,
			Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
		},
		Batch: batch, FirstContext: 64, FirstBatch: 16, Steps: steps, Rate: 4e-3, MinRate: 4e-4, WarmUp: steps / 20,
		Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Clip: 1, Seed: 1,
		EvalEvery: 250, EvalTokens: 1 << 15, SaveEvery: 250,
	}
}

// small validates on a part of the text only: without AVX2 that takes long, too.
func small() Config {
	c := standard(2, 64, 2, 128, 4, 1200)
	c.ValidTokens = 1 << 18
	return c
}

// shakespeare is config/train_shakespeare_char.py of nanoGPT (Karpathy) with the
// changes that its README gives for the CPU.
func shakespeare() Config {
	c := standard(4, 128, 4, 64, 12, 2000)
	c.Vocab = token.KindChars
	c.Model.Mechanism = "softmax"
	c.FirstContext, c.FirstBatch = 0, 0
	c.Model.Positions = model.Learned
	c.Rate, c.MinRate, c.WarmUp = 1e-3, 1e-4, 100
	return c
}

// LookupPreset returns the preset of that name; "" is "default", or "small" on
// a machine without AVX2. The error for a name that is not there lists those
// that are.
func LookupPreset(name string) (Preset, error) {
	if name == "" {
		name = "default"
		if cpu.Chosen() == cpu.Generic {
			name = "small"
		}
	}
	for _, p := range presets {
		if p.Name == name {
			return p, nil
		}
	}
	var names []string
	for _, p := range presets {
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("preset %q: unknown; there are: %s", name, strings.Join(names, ", "))
}

// Presets returns all presets.
func Presets() []Preset { return slices.Clone(presets) }
