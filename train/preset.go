package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
)

// Preset is a named Config.
type Preset struct {
	Name, Description string
	Config            Config
}

// presets lists presets of texts, of every task by its name, and of published models.
var presets = []Preset{
	{"default", "a text, two minutes at most on two cores with AVX2", longContextPreset(3, 128, 4096, 450)},
	{"small", "the same where there is no AVX2: a smaller model, shorter sequences", longContextPreset(2, 64, 1024, 600)},
	{"tiny", "seconds: shows that everything works, learns little", standardPreset(2, 32, 2, 64, 4, 100)},
	{"shakespeare-cpu", "nanoGPT's configuration for the CPU, at the level of characters", shakespearePreset()},

	{"shapes", "convolutions and attention as published, 10 epochs", shapesPreset()},
	{"listops", "expressions that grow to 100 to 500 tokens", samplePreset("listops", 32, 3000, "above", "100", "below", "500").growing(32, 512)},
	{"listops6", "expressions that grow to 100 to 400 tokens", samplePreset("listops6", 32, 3000, "min", "100", "max", "400").growing(25, 512)},
	{"copy", "31 symbols", copyPreset()},
	{"induction", "30 tokens of 20 symbols", recallPreset("induction", 3000)},
	{"mqar", "8 pairs of 256 tokens in 128", recallPreset("mqar", 3000, "vocab", "256", "length", "128", "pairs", "8")},
	{"needle", "windows of 256 to 4096 bytes, convolutions over 8", needlePreset()},
	{"pathfinder", "as published", samplePreset("pathfinder", 32, 2000)},
	{"mnist", "patches of 4 by 4", patchesPreset()},
	{"image", "as published, 2000 updates", samplePreset("image", 32, 2000)},
	{"mnist-gen", "half the published layers and width, convolutions over 4 levels, 3750 updates", imagePreset("mnist-gen", 4, 128, 4, 3750)},
	{"cifar-gen", "the same, 300 updates", imagePreset("cifar-gen", 4, 128, 4, 300)},
	{"text", "the first 1000 bytes", samplePreset("text", 32, 2000, "length", "1000")},
	{"retrieval", "the first 1000 bytes of each", samplePreset("retrieval", 16, 2000, "length", "1000")},
	{"films", "the first 1000 bytes of each", samplePreset("films", 16, 2000, "length", "1000")},
	{"genome", "windows of 1024 bases", samplePreset("genome", 32, 1000)},
	{"pairs", "the first 767 bytes of a source, 256 of a target", pairsPreset()},
	{"series", "the first 1024 rows", seriesPreset()},
	{"forecast", "12 rows from 48", samplePreset("forecast", 32, 1000)},
	{"fasta", "the first 1024 letters of each record", samplePreset("fasta", 32, 1000)},
	{"wav", "the first 4000 samples", samplePreset("wav", 16, 1000, "length", "4000")},
	{"picture", "patches of 4 by 4 of 32 by 32", samplePreset("picture", 32, 1000, "as", "patches")},
	{"file", "words of the texts", samplePreset("file", 32, 400, "vocabulary", "bpe")},

	{"linear-mnist", "linear transformers' drawing of digits, as published", imagePreset("mnist-gen", 8, 256, 10, 250*6000)},
	{"linear-cifar", "the same of CIFAR-10, 50 epochs", imagePreset("cifar-gen", 16, 256, 4, 50*12500)},
	{"lra-listops", "Long Range Arena, the small family", lraPreset("listops", 32, 1000, 5000)},
	{"lra-text", "the same", lraPreset("text", 32, 8000, 20000)},
	{"lra-retrieval", "the same", lraPreset("retrieval", 32, 800, 30000)},
	{"lra-image", "the same", lraPreset("image", 256, 175, 35000)},
	{"lra-pathfinder", "the same", lraPreset("pathfinder", 256, 312, 62400)},
}

// standardPreset returns a decoder over bytes with Fastmax attention and rotated
// positions.
func standardPreset(layers, width, heads, context, batch, steps int) Config {
	return Config{
		Version: configVersion, Task: task.ByteLM, DataSeed: 1,
		Model: model.Config{
			Kind: model.Decoder, Layers: layers, Heads: heads, Width: width, Context: context,
			Positions: model.Rotary, Mechanism: "fastmax", Tied: true,
		},
		Batch: batch, Accumulate: 1, Steps: steps, Rate: 4e-3, MinRate: 4e-4, WarmUp: steps / 20,
		Optimizer: AdamW, Schedule: CosineSchedule, Decay: 0.1, Beta1: 0.9, Beta2: 0.99, Clip: 1, Seed: 1,
		EvalEvery: 150, EvalSamples: (1 << 15) / context, SaveEvery: 150,
	}
}

// longContextPreset trains on one long sequence per update, in narrow heads, so that
// attention runs in its linear form. The weights of a polynomial of low degree are smooth
// over a long context. So convolutions separate neighbours, and sequences begin short.
func longContextPreset(layers, width, context, steps int) Config {
	c := standardPreset(layers, width, width/16, context, 1, steps)
	c.Model.Conv = 4
	c.FirstContext, c.FirstBatch = 256, context/256
	c.Rate, c.MinRate = 6e-3, 6e-4
	c.FinalSamples = (1 << 18) / context
	return c
}

// shakespearePreset is config/train_shakespeare_char.py of nanoGPT (Karpathy) with the
// changes for the CPU in its README.
func shakespearePreset() Config {
	c := standardPreset(4, 128, 4, 64, 12, 2000)
	c.Task = task.CharLM
	c.Model.Mechanism = "softmax"
	c.Model.Positions = model.Learned
	c.Rate, c.MinRate, c.WarmUp = 1e-3, 1e-4, 100
	return c
}

// samplePreset trains a small model on a task of samples, with narrow heads that suit the
// linear form. set lists names and values of task settings in turn.
func samplePreset(name string, batch, steps int, set ...string) Config {
	c := standardPreset(2, 64, 4, 1, batch, steps)
	c.SetTask(name)
	c.setTaskSettings(set...)
	m := &c.Model
	m.Hidden, m.Positions, m.Bias = 128, model.Learned, true
	c.Rate, c.MinRate, c.Decay = 1e-3, 1e-4, 0.01
	c.Standardise = standardisedTasks[name]
	c.EvalEvery, c.SaveEvery = 100, 100
	c.EvalSamples, c.FinalSamples = 500, 0
	return c
}

// growing returns c with samples that begin short: the mean over hundreds of positions
// hides the few that matter from a new model.
func (c Config) growing(context, batch int) Config {
	c.FirstContext, c.FirstBatch = context, batch
	return c
}

// standardisedTasks are the tasks with numeric inputs.
var standardisedTasks = map[string]bool{
	"shapes": true, "mnist": true, "wav": true, "picture": true, "series": true, "forecast": true,
}

// pairsPreset tells places by their distance: what is written goes on from where it stands in the source.
func pairsPreset() Config {
	c := samplePreset(task.PairsName, 16, 1500)
	c.Model.Positions, c.Model.Conv, c.Model.Tied = model.Rotary, 4, true
	c.Rate, c.MinRate = 3e-3, 3e-4
	return c
}

// seriesPreset leaves the kind of positions to the task.
func seriesPreset() Config {
	c := samplePreset("series", 32, 600)
	c.Model.Positions = ""
	c.Rate = 3e-3
	return c
}

// setTaskSettings changes settings of the task. set lists names and values in turn.
func (c *Config) setTaskSettings(set ...string) {
	c.TaskSet = maps.Clone(c.TaskSet)
	for pair := range slices.Chunk(set, 2) {
		if c.TaskSet == nil {
			c.TaskSet = map[string]string{}
		}
		c.TaskSet[pair[0]] = pair[1]
	}
}

// patchesPreset reads digits as patches of 16 levels.
func patchesPreset() Config {
	c := samplePreset("mnist", 64, 1000, "as", "patches")
	c.Rate = 3e-3
	return c
}

// copyPreset is the copy task of Katharopoulos et al. (2020, section 4.1), smaller.
func copyPreset() Config {
	c := samplePreset("copy", 64, 2000, "length", "31")
	c.Model.Heads = 8
	c.Optimizer, c.Decay, c.Beta2 = RAdam, 0, 0.999
	return c
}

// recallPreset puts a short convolution before attention, which joins a key with its
// value (Arora et al. 2023).
func recallPreset(name string, steps int, set ...string) Config {
	c := samplePreset(name, 64, steps, set...)
	c.Model.Conv = 3
	c.Rate, c.MinRate = 3e-3, 3e-4
	return c
}

// needlePreset has convolutions that reach from a value to its key. Without positions a model
// can be asked at longer contexts. Windows begin short, where lines are dense.
func needlePreset() Config {
	c := recallPreset("needle", 3000)
	m := &c.Model
	m.Conv, m.Positions, m.Context = 8, model.NoPosition, 4096
	c.Batch, c.FirstContext, c.FirstBatch = 4, 256, 16
	c.EvalSamples, c.FinalSamples = 16, 64
	return c
}

// shapesPreset is the network and training of Fleuret's script, with shuffled samples.
func shapesPreset() Config {
	c := samplePreset("shapes", 100, 2500)
	c.Model = model.Config{
		Kind: model.Convolutional, Layers: 4, Heads: 1, Width: 64, Conv: 5,
		Positions: model.NoPosition, Mechanism: "softmax", Set: map[string]string{"scale": "1"}, Bias: true,
	}
	c.Optimizer, c.Schedule, c.Decay, c.Beta2, c.Clip = Adam, ConstantSchedule, 0, 0.999, 0
	c.Rate, c.MinRate, c.WarmUp = 1e-3, 1e-3, 0
	return c
}

// lraPreset is the model and training of the Long Range Arena in PyTorch (Xiong et al.
// 2021, Nyströmformer): two layers of width 64 with two heads. It has no attention
// dropout, which not every mechanism supports.
func lraPreset(name string, batch, warmUp, steps int) Config {
	c := samplePreset(name, batch, steps)
	m := &c.Model
	m.Heads, m.Activation, m.Dropout, m.HeadHidden = 2, model.GELU, 0.1, 128
	m.Mechanism = "softmax"
	c.Optimizer, c.Schedule, c.Decay, c.Beta2, c.Clip = Adam, LinearSchedule, 0, 0.999, 0
	c.Rate, c.MinRate, c.WarmUp = 1e-4, 0, warmUp
	c.EvalEvery, c.SaveEvery, c.EvalSamples = 200, 200, 0
	return c
}

// imagePreset is the model and optimiser of Katharopoulos et al. (2020, arXiv 2006.16236,
// section 4.2), which learns images level by level.
func imagePreset(name string, layers, width, batch, steps int) Config {
	c := samplePreset(name, batch, steps)
	m := &c.Model
	m.Kind, m.Layers, m.Width, m.Heads, m.Hidden, m.Mechanism = model.Decoder, layers, width, width/32, 4*width, "linear"
	c.Optimizer, c.Schedule, c.Decay, c.Beta2 = RAdam, ConstantSchedule, 0, 0.999
	c.Rate, c.MinRate, c.WarmUp = 1e-4, 1e-4, 0
	if width < 256 {
		c.Model.Conv, c.Schedule, c.Rate, c.WarmUp = 4, CosineSchedule, 3e-3, 100
	}
	c.EvalSamples, c.FinalSamples = 100, 500
	return c
}

// LookupPreset returns the preset name. "" means "default", or "small" where only the
// generic kernels run. It returns an error that lists all names if there is no such preset.
func LookupPreset(name string) (Preset, error) {
	if name == "" {
		name = "default"
		if cpu.ActiveSet() == cpu.Generic {
			name = "small"
		}
	}
	var names []string
	for _, p := range presets {
		if p.Name == name {
			p.Config = p.Config.clone()
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("preset %q: unknown; there are: %s", name, strings.Join(names, ", "))
}

// Presets returns all presets.
func Presets() []Preset {
	list := slices.Clone(presets)
	for i := range list {
		list[i].Config = list[i].Config.clone()
	}
	return list
}
