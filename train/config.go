package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/task"
)

const configVersion = 1

// Config says everything that decides a run. Its JSON is the config.json of the
// run folder; the same Config and data give the same bits.
type Config struct {
	Version int    `json:"version"`
	Task    string `json:"task"`
	Data    string `json:"data"`  // file or folder; "": task.DefaultCorpus
	Vocab   string `json:"vocab"` // token.KindBytes or token.KindChars

	Model model.Config `json:"model"` // Vocab is that of the text

	Batch int `json:"batch"` // sequences of an update, each of Model.Context tokens
	// Sequences begin with FirstContext tokens and double until they have
	// Model.Context; an update begins with FirstBatch of them, and has half as
	// many each time, but not less than Batch. Each length gets the same number
	// of tokens to learn from. Attention
	// that is not sharp learns what is near sooner where there is less that is
	// far (staged training, Press et al. 2021, arXiv 2012.15832). 0: as at the end.
	FirstContext int `json:"first_context"`
	FirstBatch   int `json:"first_batch"`

	Steps   int     `json:"steps"` // updates
	Rate    float64 `json:"lr"`    // after WarmUp updates; then along a cosine to MinRate
	MinRate float64 `json:"min_lr"`
	WarmUp  int     `json:"warmup"`
	Decay   float64 `json:"weight_decay"` // of matrices
	Beta1   float64 `json:"beta1"`
	Beta2   float64 `json:"beta2"`
	Clip    float64 `json:"clip"` // norm that gradients are brought down to; 0: none
	Seed    uint64  `json:"seed"` // of the first weights and of the order of the data

	EvalEvery   int `json:"eval_every"`   // updates between two looks at the validation part; 0: none but the last
	EvalTokens  int `json:"eval_tokens"`  // of it at each look, in windows that are always the same
	ValidTokens int `json:"valid_tokens"` // of it at the end; 0: all
	SaveEvery   int `json:"save_every"`   // updates between two checkpoints; 0: none but the last
}

// ReadConfig reads a file of JSON over the fields of c, which may hold defaults.
// Fields that it does not know are refused.
func ReadConfig(path string, c Config) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return c, fmt.Errorf("%s: more follows the JSON object", path)
	}
	if c.Version != configVersion {
		return c, fmt.Errorf("%s: version is %d, this program reads %d", path, c.Version, configVersion)
	}
	return c, nil
}

// Open reads the data.
func (c Config) Open() (*task.Text, error) {
	row, err := task.Lookup(c.Task)
	if err != nil {
		return nil, err
	}
	return row.Open(task.Options{Data: c.Data, Vocab: c.Vocab})
}

// resolve fills in what the data and the mechanism decide, and reports the first
// field that is not possible.
func (c Config) resolve(text *task.Text) (Config, error) {
	c.Model.Vocab = text.Vocab.Size()
	if err := c.settle(); err != nil {
		return c, err
	}
	if err := c.Model.Validate(); err != nil {
		return c, fmt.Errorf("model: %w", err)
	}
	if c.Model.Kind != model.Decoder {
		return c, fmt.Errorf("model: kind %s cannot learn task %s, which needs a %s", c.Model.Kind, c.Task, model.Decoder)
	}
	for _, f := range []struct {
		name  string
		x     float64
		least float64
		most  float64
	}{
		{"batch", float64(c.Batch), 1, 1 << 20},
		{"first_context", float64(c.FirstContext), 0, 1 << 40},
		{"first_batch", float64(c.FirstBatch), 0, 1 << 20},
		{"steps", float64(c.Steps), 1, 1 << 40},
		{"lr", c.Rate, 0, 1e6},
		{"min_lr", c.MinRate, 0, 1e6},
		{"warmup", float64(c.WarmUp), 0, 1 << 40},
		{"weight_decay", c.Decay, 0, 1e6},
		{"beta1", c.Beta1, 0, 1 - 0x1p-24},
		{"beta2", c.Beta2, 0, 1 - 0x1p-24},
		{"clip", c.Clip, 0, math.MaxFloat32},
		{"eval_every", float64(c.EvalEvery), 0, 1 << 40},
		{"eval_tokens", float64(c.EvalTokens), 1, 1 << 40},
		{"valid_tokens", float64(c.ValidTokens), 0, 1 << 40},
		{"save_every", float64(c.SaveEvery), 0, 1 << 40},
	} {
		if !(f.x >= f.least && f.x <= f.most) {
			return c, fmt.Errorf("%s: %v is not from %v to %v", f.name, f.x, f.least, f.most)
		}
	}
	if n := len(text.Train); n <= c.Model.Context {
		return c, fmt.Errorf("context: %d tokens do not fit the %d that there are to learn from", c.Model.Context, n)
	}
	return c, nil
}

// SetMechanism makes the mechanism that of the name. Of another one it leaves out
// what was chosen for the one before: order and settings, and where it owns its
// projections rotations, a decay and shared key heads, which it has no place for.
func (c *Config) SetMechanism(name string) {
	m := &c.Model
	if name == m.Mechanism {
		return
	}
	m.Mechanism, m.Order, m.Set = name, 0, nil
	row, owns := nn.LookupMixer(name)
	if !owns {
		return
	}
	m.Decay, m.KVHeads = "", 0
	m.AttentionDropout, m.AttentionDropoutKind = 0, ""
	if m.Positions == model.Rotary && !row.Rope {
		m.Positions, m.RopeTheta = model.NoPosition, 0
	}
}

// shape returns how many sequences of how many tokens update step has, counted
// from 0.
func (c *Config) shape(step int) (batch, context int) {
	var updates float64 // for one token of each length
	for stage := range c.stages() {
		batch, context = c.stage(stage)
		updates += 1 / float64(batch*context)
	}
	var until float64
	for stage := range c.stages() {
		batch, context = c.stage(stage)
		until += 1 / float64(batch*context) / updates
		if float64(step) < until*float64(c.Steps) {
			break
		}
	}
	return batch, context
}

// stages returns the number of lengths that sequences have.
func (c *Config) stages() int {
	stages := 1
	for n := c.FirstContext; n > 0 && n < c.Model.Context; n *= 2 {
		stages++
	}
	return stages
}

func (c *Config) stage(i int) (batch, context int) {
	if i == c.stages()-1 {
		return c.Batch, c.Model.Context
	}
	return max(c.Batch, c.FirstBatch>>i), c.FirstContext << i
}

// settle gives the settings of the mechanism that are left open what trains
// well. As published, fastmax has no scale and taylorshift starts from τ = 1,
// and both then learn worse; the weights of an odd order can be negative and
// its denominators vanish unless scores are bounded.
func (c *Config) settle() error {
	if _, owns := nn.LookupMixer(c.Model.Mechanism); owns {
		return nil
	}
	row, err := mechanism.Lookup(c.Model.Mechanism)
	if err != nil {
		return err
	}
	if c.Model.Order == 0 {
		c.Model.Order = row.Order
	}
	set := map[string]string{}
	switch {
	case row.Name == "fastmax" && c.Model.Order%2 == 1:
		set["bounded"] = "true"
	case row.Name == "fastmax":
		set["scale"] = "1/sqrt(D)"
	case row.Name == "taylorshift":
		set["tau"] = "sqrt(D)"
	}
	maps.Copy(set, c.Model.Set)
	if len(set) > 0 {
		c.Model.Set = set
	}
	return nil
}
