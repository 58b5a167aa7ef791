package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/task"
)

// Preset is a named Config.
type Preset struct {
	Name, Doc string
	Config    Config
}

// presets are of texts, then of every task under its name, then of what was
// published.
var presets = []Preset{
	{"default", "a text, two minutes at most on two cores with AVX2", long(3, 128, 4096, 450)},
	{"small", "the same where there is no AVX2: a smaller model, shorter sequences", long(2, 64, 1024, 600)},
	{"tiny", "seconds: shows that everything works, learns little", standard(2, 32, 2, 64, 4, 100)},
	{"shakespeare-cpu", "nanoGPT's configuration for the CPU, at the level of characters", shakespeare()},

	{"shapes", "convolutions and attention as published, 10 epochs", shapes()},
	{"listops", "expressions of 100 to 500 tokens", sampled("listops", 32, 3000, "above", "100", "below", "500")},
	{"listops6", "expressions of 100 to 400 tokens", sampled("listops6", 32, 3000, "min", "100", "max", "400")},
	{"copy", "31 symbols", copying()},
	{"induction", "30 tokens of 20 symbols", recalling("induction", 3000)},
	{"mqar", "8 pairs of 256 tokens in 128", recalling("mqar", 3000, "vocab", "256", "length", "128", "pairs", "8")},
	{"pathfinder", "as published", sampled("pathfinder", 32, 2000)},
	{"mnist", "patches of 4 by 4", patches()},
	{"image", "as published, 2000 updates", sampled("image", 32, 2000)},
	{"mnist-gen", "half the published layers and width, convolutions over 4 levels, 3750 updates", drawing("mnist-gen", 4, 128, 4, 3750)},
	{"cifar-gen", "the same, 300 updates", drawing("cifar-gen", 4, 128, 4, 300)},
	{"text", "the first 1000 bytes", sampled("text", 32, 2000, "length", "1000")},
	{"retrieval", "the first 1000 bytes of each", sampled("retrieval", 16, 2000, "length", "1000")},
	{"films", "the first 1000 bytes of each", sampled("films", 16, 2000, "length", "1000")},
	{"genome", "windows of 1024 bases", sampled("genome", 32, 1000)},
	{"ecg", "windows of 1024 samples", sampled("ecg", 16, 1000, "length", "1024")},
	{"ett", "96 hours from 96", sampled("ett", 32, 2000)},
	{"acsf1", "as it is", sampled("acsf1", 20, 500)},
	{"series", "the first 1024 rows", series()},
	{"fasta", "the first 1024 letters of each record", sampled("fasta", 32, 1000)},
	{"wav", "the first 4000 samples", sampled("wav", 16, 1000, "length", "4000")},
	{"picture", "patches of 4 by 4 of 32 by 32", sampled("picture", 32, 1000, "as", "patches")},
	{"file", "the first 1000 bytes", sampled("file", 32, 1000, "length", "1000")},

	{"linear-mnist", "linear transformers' drawing of digits, as published", drawing("mnist-gen", 8, 256, 10, 250*6000)},
	{"linear-cifar", "the same of CIFAR-10, 50 epochs", drawing("cifar-gen", 16, 256, 4, 50*12500)},
	{"lra-listops", "Long Range Arena, the small family", arena("listops", 32, 1000, 5000)},
	{"lra-text", "the same", arena("text", 32, 8000, 20000)},
	{"lra-retrieval", "the same", arena("retrieval", 32, 800, 30000)},
	{"lra-image", "the same", arena("image", 256, 175, 35000)},
	{"lra-pathfinder", "the same", arena("pathfinder", 256, 312, 62400)},
}

// standard is a decoder over bytes with Fastmax attention and rotated positions.
func standard(layers, width, heads, context, batch, steps int) Config {
	return Config{
		Version: configVersion, Task: task.ByteLM, DataSeed: 1,
		Model: model.Config{
			Kind: model.Decoder, Layers: layers, Heads: heads, Width: width, Context: context,
			Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
		},
		Batch: batch, Accumulate: 1, Steps: steps, Rate: 4e-3, MinRate: 4e-4, WarmUp: steps / 20,
		Optimizer: AdamW, Schedule: Cosine, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Clip: 1, Seed: 1,
		EvalEvery: 150, EvalSamples: (1 << 15) / context, SaveEvery: 150,
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
	c.FinalSamples = (1 << 18) / context
	return c
}

// shakespeare is config/train_shakespeare_char.py of nanoGPT (Karpathy) with the
// changes that its README gives for the CPU.
func shakespeare() Config {
	c := standard(4, 128, 4, 64, 12, 2000)
	c.Task = task.CharLM
	c.Model.Mechanism = "softmax"
	c.Model.Positions = model.Learned
	c.Rate, c.MinRate, c.WarmUp = 1e-3, 1e-4, 100
	return c
}

// sampled learns a task of samples with a small model whose narrow heads suit the
// linear form. set are the task's settings.
func sampled(name string, batch, steps int, set ...string) Config {
	c := standard(2, 64, 4, 1, batch, steps)
	c.SetTask(name)
	c.set(set...)
	m := &c.Model
	m.Hidden, m.Positions, m.Bias = 128, model.Learned, true
	c.Rate, c.MinRate, c.Decay = 1e-3, 1e-4, 0.01
	c.Standardise = numeric[name]
	c.EvalEvery, c.SaveEvery = 100, 100
	c.EvalSamples, c.FinalSamples = 500, 0
	return c
}

// numeric are the tasks of numbers, as the presets set them.
var numeric = map[string]bool{
	"shapes": true, "mnist": true, "ecg": true, "ett": true, "acsf1": true, "wav": true, "picture": true, "series": true,
}

// series leaves it to the task whether its rows have positions.
func series() Config {
	c := sampled("series", 32, 600)
	c.Model.Positions = ""
	c.Rate = 3e-3
	return c
}

// set changes settings of the task, given as names and values in turn.
func (c *Config) set(set ...string) {
	c.TaskSet = maps.Clone(c.TaskSet)
	for pair := range slices.Chunk(set, 2) {
		if c.TaskSet == nil {
			c.TaskSet = map[string]string{}
		}
		c.TaskSet[pair[0]] = pair[1]
	}
}

// patches are digits, 16 levels a token.
func patches() Config {
	c := sampled("mnist", 64, 1000, "as", "patches")
	c.Rate = 3e-3
	return c
}

// copying is the copy task of Katharopoulos et al. (2020, section 4.1), smaller.
func copying() Config {
	c := sampled("copy", 64, 2000, "length", "31")
	c.Model.Heads = 8
	c.Optimizer, c.Decay, c.Beta2 = RAdam, 0, 0.999
	return c
}

// recalling has a short convolution, which puts a key beside its value, in front of
// attention (Arora et al. 2023).
func recalling(name string, steps int, set ...string) Config {
	c := sampled(name, 64, steps, set...)
	c.Model.Conv = 3
	c.Rate, c.MinRate = 3e-3, 3e-4
	return c
}

// shapes is the net of Fleuret's script with its training, shuffled.
func shapes() Config {
	c := sampled("shapes", 100, 2500)
	c.Model = model.Config{
		Kind: model.Convolutional, Layers: 4, Heads: 1, Width: 64, Conv: 5,
		Positions: model.NoPosition, Mechanism: "softmax", Set: map[string]string{"scale": "1"}, Bias: true,
	}
	c.Optimizer, c.Schedule, c.Decay, c.Beta2, c.Clip = Adam, Constant, 0, 0.999, 0
	c.Rate, c.MinRate, c.WarmUp = 1e-3, 1e-3, 0
	return c
}

// arena is the model of the Long Range Arena in the PyTorch family of programs
// (Xiong et al. 2021, Nyströmformer), whose training it has too: two layers of
// width 64 with two heads, but no dropout of attention's weights, which the
// mechanisms do not share.
func arena(name string, batch, warmUp, steps int) Config {
	c := sampled(name, batch, steps)
	m := &c.Model
	m.Heads, m.Activation, m.Dropout, m.HeadHidden = 2, model.GELU, 0.1, 128
	m.Mechanism = "softmax"
	c.Optimizer, c.Schedule, c.Decay, c.Beta2, c.Clip = Adam, Linear, 0, 0.999, 0
	c.Rate, c.MinRate, c.WarmUp = 1e-4, 0, warmUp
	c.EvalEvery, c.SaveEvery, c.EvalSamples = 200, 200, 0
	return c
}

// drawing is the model of Katharopoulos et al. (2020, arXiv 2006.16236, section 4.2),
// with its optimizer, which learns images level by level.
func drawing(name string, layers, width, batch, steps int) Config {
	c := sampled(name, batch, steps)
	m := &c.Model
	m.Kind, m.Layers, m.Width, m.Heads, m.Hidden, m.Mechanism = model.Decoder, layers, width, width/32, 4*width, "linear"
	c.Optimizer, c.Schedule, c.Decay, c.Beta2 = RAdam, Constant, 0, 0.999
	c.Rate, c.MinRate, c.WarmUp = 1e-4, 1e-4, 0
	if width < 256 {
		c.Model.Conv, c.Schedule, c.Rate, c.WarmUp = 4, Cosine, 3e-3, 100
	}
	c.EvalSamples, c.FinalSamples = 100, 500
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
	var names []string
	for _, p := range presets {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("preset %q: unknown; there are: %s", name, strings.Join(names, ", "))
}

// Presets returns all presets.
func Presets() []Preset { return slices.Clone(presets) }
