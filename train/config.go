package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/task"
)

const configVersion = 2

// Config says everything that decides a run. Its JSON is the config.json of the
// run folder; the same Config and data give the same bits.
type Config struct {
	Version  int               `json:"version"`
	Task     string            `json:"task"`               // of package task
	TaskSet  map[string]string `json:"task_set,omitempty"` // its settings
	Folder   string            `json:"folder,omitempty"`   // of the data sets
	DataSeed uint64            `json:"data_seed"`          // of what the task draws or makes

	// Values of a task are given to the model less InputMean, in InputDeviation, of
	// each channel; with Standardise and none given they are those of the samples to
	// learn from.
	Standardise    bool      `json:"standardise"`
	InputMean      []float64 `json:"input_mean,omitempty"`
	InputDeviation []float64 `json:"input_deviation,omitempty"`
	// LRAQuirk has samples padded as task.Pad does, and nothing masked.
	LRAQuirk bool `json:"lra_quirk"`

	Model model.Config `json:"model"` // what the task decides is filled in

	Batch      int `json:"batch"`      // samples of a pass, of a text windows of Model.Context tokens
	Accumulate int `json:"accumulate"` // passes of an update, whose gradients add up to those of one
	// Windows of a text begin with FirstContext tokens and double until they have
	// Model.Context; a pass begins with FirstBatch of them, and has half as
	// many each time, but not less than Batch. Each length gets the same number
	// of tokens to learn from. Attention
	// that is not sharp learns what is near sooner where there is less that is
	// far (staged training, Press et al. 2021, arXiv 2012.15832). 0: as at the end.
	FirstContext int `json:"first_context"`
	FirstBatch   int `json:"first_batch"`

	// Segment is how many tokens of a window are in memory at a time: longer windows go
	// through the model in segments, with the gradient of the whole. 0: all of them.
	Segment int `json:"segment,omitempty"`

	Steps int `json:"steps"` // updates
	// Lengthened has the numbers of updates that the run was to make before: until each
	// of them, in ascending order, the schedule and the lengths of sequences are of a run
	// of that number.
	Lengthened []int `json:"lengthened,omitempty"`

	Optimizer string  `json:"optimizer"` // AdamW, Adam or RAdam
	Schedule  string  `json:"schedule"`  // Cosine, Linear or Constant
	Rate      float64 `json:"lr"`        // after WarmUp updates; then by the schedule to MinRate
	MinRate   float64 `json:"min_lr"`
	WarmUp    int     `json:"warmup"`
	Decay     float64 `json:"weight_decay"` // of matrices
	Beta1     float64 `json:"beta1"`
	Beta2     float64 `json:"beta2"`
	Clip      float64 `json:"clip"` // norm that gradients are brought down to; 0: none
	Seed      uint64  `json:"seed"` // of the first weights and of the order of the data

	EvalEvery    int `json:"eval_every"`    // updates between two looks at the validation part; 0: none but the last
	EvalSamples  int `json:"eval_samples"`  // of it at each look, always the same; 0: all
	FinalSamples int `json:"final_samples"` // of what the run is judged by at the end; 0: all
	Patience     int `json:"patience"`      // looks without a better score after which the run ends; 0: it makes all updates
	SaveEvery    int `json:"save_every"`    // updates between two checkpoints; 0: none but the last
}

// How a run may improve its weights.
const (
	AdamW = "adamw"
	Adam  = "adam"  // without weight decay
	RAdam = "radam" // rectified, as linear transformers were published with
)

// How the learning rate may fall.
const (
	CosineSchedule   = "cosine"
	LinearSchedule   = "linear"
	ConstantSchedule = "constant"
)

// ReadConfig reads a file of JSON over the fields of c, which may hold defaults.
// Fields that it does not know are refused.
func ReadConfig(path string, c Config) (Config, error) {
	text, err := infile.ReadFile(path)
	if err != nil {
		return c, err
	}
	// The version is held first: fields of another one are none of this one's.
	version := struct{ Version int }{c.Version}
	if err := json.Unmarshal(text, &version); err == nil && version.Version != configVersion {
		return c, fmt.Errorf("%s: version is %d, this program reads %d; train the model again, or use the program that wrote it", path, version.Version, configVersion)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return c, fmt.Errorf("%s: more follows the JSON object", path)
	}
	return c, nil
}

// OpenTask opens the task, and reads its data.
func (c Config) OpenTask() (task.Source, error) {
	return task.Open(c.Task, task.Options{Folder: c.Folder, Seed: c.DataSeed, Settings: c.TaskSet})
}

// PrepareTask returns src as the model sees it: in windows of its context,
// standardised, padded. The Config is complete with what the task and the mechanism
// decide. The first field that is not possible is an error.
func (c Config) PrepareTask(src task.Source) (Config, task.Source, error) {
	fail := func(err error) (Config, task.Source, error) { return c, nil, err }
	if w, ok := src.(task.WindowSource); ok {
		if _, ok := c.TaskSet["length"]; ok {
			return fail(errors.New("task_set: length is not for training: windows are as long as the model's context"))
		}
		if c.Model.Context < 1 {
			return fail(fmt.Errorf("context: %d tokens", c.Model.Context))
		}
		src = w.WithWindow(c.Model.Context)
	} else if c.FirstContext > 0 || c.FirstBatch > 0 {
		return fail(fmt.Errorf("first_context, first_batch: the samples of task %s are no windows and do not grow; leave out both", c.Task))
	}
	if err := c.adaptModelToTask(src.Spec()); err != nil {
		return fail(err)
	}
	if err := c.setPositions(src); err != nil {
		return fail(err)
	}
	if err := c.settle(); err != nil {
		return fail(err)
	}
	if err := c.Model.Validate(); err != nil {
		return fail(fmt.Errorf("model: %w", err))
	}
	if err := c.checkFields(src); err != nil {
		return fail(err)
	}
	var err error
	if c.Standardise {
		if src.Spec().Channels == 0 {
			return fail(fmt.Errorf("standardise: the positions of task %s hold tokens, which have no mean; leave out standardise", c.Task))
		}
		if c.InputMean == nil {
			if c.InputMean, c.InputDeviation, err = task.ChannelMoments(src); err != nil {
				return fail(fmt.Errorf("standardise: %w", err))
			}
		}
		if src, err = task.Standardise(src, c.InputMean, c.InputDeviation); err != nil {
			return fail(fmt.Errorf("standardise: %w", err))
		}
	}
	if c.LRAQuirk {
		src = task.Pad(src)
	}
	return c, src, nil
}

// checkFields reports the first field that is not possible.
func (c *Config) checkFields(src task.Source) error {
	for _, f := range []struct {
		name  string
		x     float64
		least float64
		most  float64
	}{
		{"batch", float64(c.Batch), 1, 1 << 20},
		{"accumulate", float64(c.Accumulate), 1, 1 << 20},
		{"first_context", float64(c.FirstContext), 0, 1 << 40},
		{"first_batch", float64(c.FirstBatch), 0, 1 << 20},
		{"segment", float64(c.Segment), 0, 1 << 40},
		{"steps", float64(c.Steps), 1, maxSteps},
		{"lr", c.Rate, 0, 1e6},
		{"min_lr", c.MinRate, 0, 1e6},
		{"warmup", float64(c.WarmUp), 0, 1 << 40},
		{"weight_decay", c.Decay, 0, 1e6},
		{"beta1", c.Beta1, 0, 1 - 0x1p-24},
		{"beta2", c.Beta2, 0, 1 - 0x1p-24},
		{"clip", c.Clip, 0, math.MaxFloat32},
		{"eval_every", float64(c.EvalEvery), 0, 1 << 40},
		{"eval_samples", float64(c.EvalSamples), 0, 1 << 40},
		{"final_samples", float64(c.FinalSamples), 0, 1 << 40},
		{"patience", float64(c.Patience), 0, 1 << 40},
		{"save_every", float64(c.SaveEvery), 0, 1 << 40},
	} {
		if !(f.x >= f.least && f.x <= f.most) {
			return fmt.Errorf("%s: %v is not from %v to %v", f.name, f.x, f.least, f.most)
		}
	}
	for i, n := range c.Lengthened {
		if n < 1 || n >= c.Steps || i > 0 && n <= c.Lengthened[i-1] {
			return fmt.Errorf("lengthened: %v do not ascend from 1 to less than the %d steps", c.Lengthened, c.Steps)
		}
	}
	switch c.Optimizer {
	case AdamW, RAdam:
	case Adam:
		if c.Decay != 0 {
			return fmt.Errorf("weight_decay: %v, but optimizer %s has none, %s does; set optimizer to %s, or weight_decay to 0", c.Decay, Adam, AdamW, AdamW)
		}
	default:
		return fmt.Errorf("optimizer: %q is none of %s, %s, %s", c.Optimizer, AdamW, Adam, RAdam)
	}
	if _, err := c.buildSchedule(); err != nil {
		return err
	}
	if text, ok := src.(*task.Text); ok {
		if n := text.Tokens(task.Train).Len(); n <= c.Model.Context {
			return fmt.Errorf("context: %d tokens do not fit the %d that there are to learn from", c.Model.Context, n)
		}
	}
	spec := src.Spec()
	if spec.Count[task.Train] == 0 || spec.Count[spec.JudgedSplit()] == 0 {
		return fmt.Errorf("task %s: %d samples to learn from and %d to be judged by are too few", spec.Name, spec.Count[task.Train], spec.Count[spec.JudgedSplit()])
	}
	if c.Patience > 0 && (c.EvalEvery == 0 || spec.Count[task.Valid] == 0) {
		return fmt.Errorf("patience: %d looks, but eval_every is %d and there are %d samples to look at", c.Patience, c.EvalEvery, spec.Count[task.Valid])
	}
	return nil
}

// maxSteps bounds the updates of a run.
const maxSteps = 1 << 40

// plannedSteps returns the number of updates that the run was to make when it made update step,
// counted from 0.
func (c *Config) plannedSteps(step int) int {
	for _, n := range c.Lengthened {
		if step < n {
			return n
		}
	}
	return c.Steps
}

// buildSchedule returns the learning rates.
func (c *Config) buildSchedule() (optim.Schedule, error) {
	var all scheduleList
	for _, n := range append(slices.Clone(c.Lengthened), c.Steps) {
		var s optim.Schedule
		switch c.Schedule {
		case CosineSchedule:
			s = optim.Cosine{Peak: c.Rate, Floor: c.MinRate, WarmUp: c.WarmUp, Steps: n}
		case LinearSchedule:
			s = optim.Linear{Peak: c.Rate, Floor: c.MinRate, WarmUp: c.WarmUp, Steps: n}
		case ConstantSchedule: // from the end of the warm-up on
			s = optim.Linear{Peak: c.Rate, Floor: c.Rate, WarmUp: c.WarmUp, Steps: n}
		default:
			return nil, fmt.Errorf("schedule: %q is none of %s, %s, %s", c.Schedule, CosineSchedule, LinearSchedule, ConstantSchedule)
		}
		all = append(all, boundedSchedule{n, s})
	}
	return all, nil
}

// scheduleList follow each other.
type scheduleList []boundedSchedule

// boundedSchedule is a schedule of the updates before steps that no schedule before it has.
type boundedSchedule struct {
	steps int
	optim.Schedule
}

func (s scheduleList) Rate(step int) float64 {
	for _, x := range s[:len(s)-1] {
		if step < x.steps {
			return x.Schedule.Rate(step)
		}
	}
	return s[len(s)-1].Schedule.Rate(step)
}

// needsBestWeights reports whether the weights that did best on the validation part are kept,
// and the run is judged by them: where that part is not what it is judged by, or
// where it may end early.
func (c *Config) needsBestWeights(spec task.Spec) bool {
	return spec.Count[task.Valid] != 0 && (spec.JudgedSplit() != task.Valid || c.Patience > 0)
}

// SetTask makes the task that of the name. Of another one it leaves out what was
// chosen for the one before: its settings, and what its samples decided. Texts are
// learned alike, whatever their tokens are.
func (c *Config) SetTask(name string) {
	before, was := task.Lookup(c.Task)
	row, is := task.Lookup(name)
	text := was == nil && is == nil && before.IsText() && row.IsText()
	c.Task = name
	if name == before.Name || text {
		return
	}
	c.TaskSet, c.InputMean, c.InputDeviation, c.Standardise = nil, nil, nil, false
	m := &c.Model
	m.Kind, m.Context, m.Pool, m.Tied = "", 0, "", false
	c.FirstContext, c.FirstBatch = 0, 0
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

// BatchShape returns how many sequences of how many tokens a pass of update step has,
// counted from 0, in a run on a text.
func (c *Config) BatchShape(step int) (batch, context int) {
	var updates float64 // for one token of each length
	for stage := range c.countStages() {
		batch, context = c.stageShape(stage)
		updates += 1 / float64(batch*context)
	}
	var until float64
	for stage := range c.countStages() {
		batch, context = c.stageShape(stage)
		until += 1 / float64(batch*context) / updates
		if float64(step) < until*float64(c.plannedSteps(step)) {
			break
		}
	}
	return batch, context
}

// countStages returns the number of lengths that sequences have.
func (c *Config) countStages() int {
	stages := 1
	for n := c.FirstContext; n > 0 && n < c.Model.Context; n *= 2 {
		stages++
	}
	return stages
}

func (c *Config) stageShape(i int) (batch, context int) {
	if i == c.countStages()-1 {
		return c.Batch, c.Model.Context
	}
	return max(c.Batch, c.FirstBatch>>i), c.FirstContext << i
}

// settle gives the settings of the mechanism that are left open what trains
// well. As published, fastmax has no scale and taylorshift starts from τ = 1,
// and both then learn worse; the weights of an odd order can be negative and
// its denominators vanish unless scores are bounded.
func (c *Config) settle() error {
	_, owns := nn.LookupMixer(c.Model.Mechanism)
	if owns || c.Model.Kind == model.Convolutional && c.Model.Mechanism == "" {
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
