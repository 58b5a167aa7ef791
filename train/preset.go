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
	{"default", "two minutes at most on two cores with AVX2", long(3, 128, 4096, 450)},
	{"small", "the same where there is no AVX2: a smaller model, shorter sequences", long(2, 64, 1024, 600)},
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
		Batch: batch, Steps: steps, Rate: 4e-3, MinRate: 4e-4, WarmUp: steps / 20,
		Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Clip: 1, Seed: 1,
		EvalEvery: 150, EvalTokens: 1 << 15, SaveEvery: 150,
	}
}

// long learns from one long sequence an update, in narrow heads, so that the
// linear form is what runs. Over a long context the weights of a polynomial of
// low order are spread thin: convolutions tell neighbours apart, and sequences
// begin short.
func long(layers, width, context, steps int) Config {
	c := standard(layers, width, width/16, context, 1, steps)
	c.Model.Conv = 4
	c.FirstContext, c.FirstBatch = 256, context/256
	c.Rate, c.MinRate = 6e-3, 6e-4
	c.ValidTokens = 1 << 18
	return c
}

// shakespeare is config/train_shakespeare_char.py of nanoGPT (Karpathy) with the
// changes that its README gives for the CPU.
func shakespeare() Config {
	c := standard(4, 128, 4, 64, 12, 2000)
	c.Vocab = token.KindChars
	c.Model.Mechanism = "softmax"
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
