package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/strict"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train/data"
)

const configVersion = 2

// Config is the complete configuration of a run. Its JSON is config.json in the run
// folder. The same Config and data give the same bits.
type Config struct {
	Version  int               `json:"version"`            // of the fields; 0: the version that New writes
	Task     string            `json:"task"`               // a task of docs/train.md, or the name of your own data
	TaskSet  map[string]string `json:"task_set,omitempty"` // settings of the task
	Folder   string            `json:"folder,omitempty"`   // folder of the data sets
	DataSeed uint64            `json:"data_seed"`          // seed with which samples are generated

	// Stratified holds out a tenth of each class of the user's own data. If it is false, each item
	// is held out by chance, whatever its class.
	Stratified bool `json:"stratified,omitempty"`
	// Freeze keeps the weights of the model of Init and fits a linear head to its vectors (see
	// FreezeHead).
	Freeze bool `json:"freeze,omitempty"`

	// Standardise standardises input values per channel by InputMean and InputDeviation. If these
	// are nil, they are computed from the training samples.
	Standardise    bool      `json:"standardise"`
	InputMean      []float64 `json:"input_mean,omitempty"`
	InputDeviation []float64 `json:"input_deviation,omitempty"`
	// LRAQuirk pads samples to one length with zeros and masks nothing, so that attention and
	// pooling see the padding, as in the kernel models of the Long Range Arena.
	LRAQuirk bool `json:"lra_quirk"`

	Model model.Config `json:"model"` // inputs and outputs are set by the task
	// FarEvery sets Model.LayerWindows: layers whose index is a multiple of FarEvery attend to all
	// keys, the others to the near field alone. 0 leaves LayerWindows as it is.
	FarEvery int `json:"far_every,omitempty"`

	// Init is the folder of the run or checkpoint whose weights the run starts from; "":
	// weights are drawn.
	Init string `json:"init,omitempty"`
	// CutsStart cuts long texts at their beginning, so that the model of Init reads their end.
	CutsStart bool `json:"cuts_start,omitempty"`
	// Adapters is the rank of low-rank adapters (Hu et al. 2021, arXiv 2106.09685), which
	// are trained in place of the model's matrices; 0: all weights are trained.
	Adapters int `json:"adapters,omitempty"`
	// GroupLengths fills each batch with samples of similar length, if the source knows the
	// lengths.
	GroupLengths bool `json:"group_lengths,omitempty"`

	Batch      int `json:"batch"`      // samples (or windows of Model.Context tokens) in a pass
	Accumulate int `json:"accumulate"` // passes in an update, whose gradients are added; 0: 1
	// FirstContext is the length of the first windows of a text, or of another task that can draw
	// samples of a given length (data.WindowDrawer). The length doubles until it is Model.Context.
	// A pass begins with FirstBatch windows, and with each doubling their number halves, down to
	// Batch. Each length trains on the same number of tokens. Short windows teach attention with
	// smooth weights about near tokens sooner (staged training, Press et al. 2021, arXiv
	// 2012.15832). 0 means Model.Context and Batch from the start.
	FirstContext int `json:"first_context"`
	FirstBatch   int `json:"first_batch"`

	// Segment is the number of tokens of a window held in memory at a time. Longer
	// windows pass through the model in segments, with the gradient of the whole. 0
	// holds all tokens.
	Segment int `json:"segment,omitempty"`

	Steps int `json:"steps"` // updates
	// Epochs is the number of passes over the training samples; PrepareTask converts it to Steps.
	// 0: Steps is used as it is.
	Epochs int `json:"epochs,omitempty"`
	// Lengthened holds earlier values of Steps, in ascending order. Until each of them,
	// the schedule and the lengths of windows follow a run of that many steps.
	Lengthened []int `json:"lengthened,omitempty"`

	Optimizer Optimizer `json:"optimizer"` // "": AdamW
	Schedule  Schedule  `json:"schedule"`  // "": ConstantSchedule
	Rate      float64   `json:"lr"`        // peak rate, reached after WarmUp updates
	MinRate   float64   `json:"min_lr"`    // last rate; ConstantSchedule ignores it
	WarmUp    int       `json:"warmup"`
	Decay     float64   `json:"weight_decay"` // weight decay of matrices
	Beta1     float64   `json:"beta1"`
	Beta2     float64   `json:"beta2"` // Beta1 and Beta2 both 0: 0.9 and 0.99
	Clip      float64   `json:"clip"`  // maximum norm of the gradient; 0: none
	Seed      uint64    `json:"seed"`  // seed of the initial weights and of the order of the data

	EvalEvery    int `json:"eval_every"`    // updates between validations; 0: only at the end
	EvalSamples  int `json:"eval_samples"`  // validation samples, always the same; 0: all; -1 with Init: as many as a text of that context needs
	FinalSamples int `json:"final_samples"` // samples of the final evaluation; 0 and -1 as in EvalSamples
	Patience     int `json:"patience"`      // early-stopping patience, in validations; 0: off
	SaveEvery    int `json:"save_every"`    // updates between checkpoints; 0: only the best and the last

	complete string       // the mechanism whose settings are filled in; "": none
	tokens   *task.Tokens // tokens of the model of Init; nil: the task has its own

	isUnordered bool // the positions of samples have no order
}

// Optimizer is the rule by which gradients change weights.
type Optimizer string

// The optimisers.
const (
	AdamW Optimizer = "adamw"
	Adam  Optimizer = "adam"  // without weight decay
	RAdam Optimizer = "radam" // rectified Adam (Liu et al. 2019, arXiv 1908.03265)
)

// Schedule is the course of the learning rate after the warm-up.
type Schedule string

// The schedules.
const (
	CosineSchedule   Schedule = "cosine"   // from Rate to MinRate along half a cosine
	LinearSchedule   Schedule = "linear"   // from Rate to MinRate along a line
	ConstantSchedule Schedule = "constant" // stays at Rate
)

// ReadConfig returns c with the fields that the JSON file at path sets; the other fields keep the
// values of c. It returns an error for unknown fields, another version or trailing data, and for a
// damaged vocabulary of a run that starts from a model.
func ReadConfig(path string, c Config) (Config, error) {
	text, err := infile.ReadFile(path)
	if err != nil {
		return c, err
	}
	// The version is checked first: other versions have other fields.
	version := struct{ Version int }{c.Version}
	if isModelConfig(text) {
		return c, modelAloneError(path)
	}
	if err := json.Unmarshal(text, &version); err == nil && version.Version != configVersion {
		return c, fmt.Errorf("%s: version is %d, this program reads %d; train the model again, or use the program that wrote it", path, version.Version, configVersion)
	}
	c = c.clone() // the decoder writes into maps, slices and pointers that are there
	if err := strict.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if c.keepsTokens() {
		if c.tokens, err = loadTokens(filepath.Dir(path), c.Model.Vocab); err != nil {
			return c, err
		}
	}
	// A run keeps the settings that were the default when it began.
	if c.Model.Order != 0 && len(c.Model.Set) > 0 {
		c.complete = c.Model.Mechanism
	}
	return c, nil
}

// isModelConfig reports whether text is the configuration of a model that model.Save wrote: it has
// the fields of a model at the top, and no task.
func isModelConfig(text []byte) bool {
	var fields struct {
		Kind, Mechanism *string
		Layers          *int
		Task, Model     json.RawMessage
	}
	err := json.Unmarshal(text, &fields)
	return err == nil && fields.Task == nil && fields.Model == nil && fields.Kind != nil && fields.Mechanism != nil && fields.Layers != nil
}

func modelAloneError(path string) error {
	return fmt.Errorf("%s: describes a model alone, as Save of package model writes it, without the task, tokens and classes of a run; read it with model.Load, or name the folder of a run", path)
}

// keepsTokens reports whether the tokens of the model lie beside the configuration of a run.
func (c *Config) keepsTokens() bool {
	row, err := task.Lookup(c.Task)
	return c.Init != "" || err == nil && !row.IsText() && c.TaskSet["vocabulary"] != ""
}

// clone returns c with maps, slices and pointers of its own.
func (c Config) clone() Config {
	c.Model, c.TaskSet = c.Model.Clone(), maps.Clone(c.TaskSet)
	c.InputMean, c.InputDeviation, c.Lengthened = slices.Clone(c.InputMean), slices.Clone(c.InputDeviation), slices.Clone(c.Lengthened)
	return c
}

// OpenTask opens the task and reads its data. It returns an error if the task is unknown
// or its data is missing or damaged.
func (c Config) OpenTask() (data.Source, error) {
	return task.Open(c.Task, c.taskOptions())
}

// taskOptions returns the options of the task.
func (c *Config) taskOptions() task.Options {
	return task.Options{Folder: c.Folder, Seed: c.DataSeed, Settings: c.TaskSet, Tokens: c.startTokens(), Context: c.startContext(), DrawnSplits: !c.Stratified}
}

// PrepareTask returns src as the model reads it: in windows, standardised, padded. The
// returned Config has all defaults of task and mechanism filled in. It returns an error
// for the first invalid field.
func (c Config) PrepareTask(src data.Source) (Config, data.Source, error) {
	fail := func(err error) (Config, data.Source, error) { return c, nil, err }
	c.setDefaults()
	if c.Version != configVersion {
		return fail(fieldErrorf("{Version}: is %d, needs %d, or 0 for it", c.Version, configVersion))
	}
	if src == nil {
		return fail(errors.New("source: is nil"))
	}
	if spec := src.Spec(); tokensAreBytes(src) && spec.Vocab != byteVocab {
		return fail(fieldErrorf("task %s: {Vocab} is %d, but its tokens are bytes, which are %d", spec.Name, spec.Vocab, byteVocab))
	}
	if w, ok := src.(data.WindowSource); ok {
		if _, ok := c.TaskSet["length"]; ok {
			return fail(fieldErrorf("{TaskSet}: length is not for training: windows are as long as the model's context"))
		}
		if c.Model.Context < 1 {
			return fail(fieldErrorf("{Model.Context}: %d tokens", c.Model.Context))
		}
		src = w.WithWindow(c.Model.Context)
	}
	spec := src.Spec()
	if err := spec.Check(); err != nil {
		return fail(err)
	}
	if reporter, ok := src.(task.TokenReporter); ok && reporter.Tokens() != nil {
		c.tokens = reporter.Tokens()
		if c.TaskSet["length"] == "" { // other data may have other lengths
			c.setTaskSettings("length", fmt.Sprint(src.Spec().Length))
		}
	}
	if err := c.adaptModelToTask(spec); err != nil {
		return fail(err)
	}
	if c.Init != "" {
		c.setTuneBatch(src)
	}
	if err := c.setEpochs(src); err != nil {
		return fail(err)
	}
	if c.Init != "" {
		c.setTuning(src)
	}
	if err := c.setPositions(src); err != nil {
		return fail(err)
	}
	if err := c.settle(); err != nil {
		return fail(err)
	}
	if err := c.spreadFarField(); err != nil {
		return fail(err)
	}
	if err := c.Model.Validate(); err != nil {
		return fail(fieldErrorf("{Model}: %w", err))
	}
	if err := c.checkFields(src); err != nil {
		return fail(err)
	}
	if err := c.checkFreeze(src.Spec()); err != nil {
		return fail(err)
	}
	var err error
	if c.Standardise {
		if src.Spec().Channels == 0 {
			return fail(fieldErrorf("{Standardise}: the positions of task %s hold tokens, which have no mean; leave out {Standardise}", c.Task))
		}
		if c.InputMean == nil {
			if c.InputMean, c.InputDeviation, err = task.ChannelMoments(src); err != nil {
				return fail(fieldErrorf("{Standardise}: %w", err))
			}
		}
		if src, err = task.Standardise(src, c.InputMean, c.InputDeviation); err != nil {
			return fail(fieldErrorf("{Standardise}: %w", err))
		}
	}
	if c.LRAQuirk {
		if _, ok := src.(data.WindowSource); ok {
			return fail(fieldErrorf("{LRAQuirk}: the windows of task %s have no padding; leave it out", c.Task))
		}
		src = task.Pad(src)
	}
	drawer, grows := src.(data.WindowDrawer)
	if !grows && (c.FirstContext > 0 || c.FirstBatch > 0) {
		return fail(fieldErrorf("{FirstContext}, {FirstBatch}: the samples of task %s are no windows and do not grow; leave out both", c.Task))
	}
	if grows && c.FirstContext > 0 && c.FirstContext < c.Model.Context {
		if err := drawer.DrawWindow(new(data.Sample), c.FirstContext, rng.New(c.Seed), 0); err != nil {
			return fail(fieldErrorf("{FirstContext}: %w", err))
		}
	}
	return c, src, nil
}

// setDefaults sets the fields whose zero value stands for another.
func (c *Config) setDefaults() {
	c.Version = cmp.Or(c.Version, configVersion)
	c.Accumulate, c.Optimizer, c.Schedule = cmp.Or(c.Accumulate, 1), cmp.Or(c.Optimizer, AdamW), cmp.Or(c.Schedule, ConstantSchedule)
	if c.Beta1 == 0 && c.Beta2 == 0 {
		c.Beta1, c.Beta2 = 0.9, 0.99
	}
}

// setEpochs replaces Epochs by Steps. It returns an error if samples have no end, or there
// are too many updates.
func (c *Config) setEpochs(src data.Source) error {
	if c.Epochs == 0 {
		return nil
	}
	if _, ok := src.(data.WindowSource); !ok && c.FirstContext > 0 {
		return fieldErrorf("{Epochs}: is %d, but {FirstContext} is %d: samples that grow are drawn at random; set {Steps}", c.Epochs, c.FirstContext)
	}
	epoch, ends := c.epochUpdates(src)
	if !ends {
		return fieldErrorf("{Epochs}: is %d, but task %s draws samples without end; set {Steps}", c.Epochs, c.Task)
	}
	if most := maxSteps / epoch; c.Epochs < 0 || c.Epochs > most {
		return fieldErrorf("{Epochs}: is %d, needs 1 to %d", c.Epochs, most)
	}
	c.Steps, c.Epochs = c.Epochs*epoch, 0
	return nil
}

// epochUpdates returns the number of updates of a pass over the training samples, and
// whether these end.
func (c *Config) epochUpdates(src data.Source) (updates int, ends bool) {
	n, size := src.Spec().Count[data.Train], max(c.Batch*c.Accumulate, 1)
	return max((n+size-1)/size, 1), n != data.Endless
}

// fieldErrorf returns an error that names fields of a Config.
func fieldErrorf(format string, args ...any) error { return fault.Fieldf[Config](format, args...) }

// checkFields returns an error for the first invalid field.
func (c *Config) checkFields(src data.Source) error {
	for _, f := range []struct {
		name  string
		x     float64
		least float64
		most  float64
	}{
		{"{Adapters}", float64(c.Adapters), 0, 1 << 12},
		{"{Batch}", float64(c.Batch), 1, 1 << 20},
		{"{Accumulate}", float64(c.Accumulate), 1, 1 << 20},
		{"{FirstContext}", float64(c.FirstContext), 0, 1 << 40},
		{"{FirstBatch}", float64(c.FirstBatch), 0, 1 << 20},
		{"{Segment}", float64(c.Segment), 0, 1 << 40},
		{"{Steps}", float64(c.Steps), 1, maxSteps},
		{"{Rate}", c.Rate, 0, 1e6},
		{"{MinRate}", c.MinRate, 0, 1e6},
		{"{WarmUp}", float64(c.WarmUp), 0, 1 << 40},
		{"{Decay}", c.Decay, 0, 1e6},
		{"{Beta1}", c.Beta1, 0, 1 - 0x1p-24},
		{"{Beta2}", c.Beta2, 0, 1 - 0x1p-24},
		{"{Clip}", c.Clip, 0, math.MaxFloat32},
		{"{EvalEvery}", float64(c.EvalEvery), 0, 1 << 40},
		{"{EvalSamples}", float64(c.EvalSamples), 0, 1 << 40},
		{"{FinalSamples}", float64(c.FinalSamples), 0, 1 << 40},
		{"{Patience}", float64(c.Patience), 0, 1 << 40},
		{"{SaveEvery}", float64(c.SaveEvery), 0, 1 << 40},
	} {
		if !(f.x >= f.least && f.x <= f.most) {
			return fieldErrorf(f.name+": %s is not from %s to %s", formatLimit(f.x), formatLimit(f.least), formatLimit(f.most))
		}
	}
	for i, n := range c.Lengthened {
		if n < 1 || n >= c.Steps || i > 0 && n <= c.Lengthened[i-1] {
			return fieldErrorf("{Lengthened}: %v do not ascend from 1 to less than the %d steps", c.Lengthened, c.Steps)
		}
	}
	switch c.Optimizer {
	case AdamW, RAdam:
	case Adam:
		if c.Decay != 0 {
			return fieldErrorf("{Decay}: %v, but {Optimizer} %s has none, %s does; set {Optimizer} to %s, or {Decay} to 0", c.Decay, Adam, AdamW, AdamW)
		}
	default:
		return fieldErrorf("{Optimizer}: %q is none of %s, %s, %s", c.Optimizer, AdamW, Adam, RAdam)
	}
	if _, err := c.buildSchedule(); err != nil {
		return err
	}
	if text, ok := src.(*task.Text); ok {
		if n := text.Tokens(data.Train).Len(); n <= c.Model.Context {
			return fieldErrorf("{Model.Context}: %d tokens do not fit the %d that there are to learn from", c.Model.Context, n)
		}
	}
	spec := src.Spec()
	if spec.Count[data.Train] == 0 || spec.Count[spec.JudgedSplit()] == 0 {
		return fmt.Errorf("task %s: %d samples to learn from and %d to be judged by are too few", spec.Name, spec.Count[data.Train], spec.Count[spec.JudgedSplit()])
	}
	if _, ok := src.(data.WindowSource); ok { // each split needs to be longer than a window
		for split, n := range spec.Count {
			if n == 0 {
				continue
			}
			if err := src.Sample(new(data.Sample), data.Split(split), 0); err != nil {
				return err
			}
		}
	}
	if c.Patience > 0 && (c.EvalEvery == 0 || spec.Count[data.Valid] == 0) {
		return fieldErrorf("{Patience}: %d looks, but {EvalEvery} is %d and there are %d samples to look at", c.Patience, c.EvalEvery, spec.Count[data.Valid])
	}
	return nil
}

// formatLimit returns whole numbers without an exponent.
func formatLimit(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// maxSteps bounds the updates of a run; an int has 32 bits on some processors.
const maxSteps = min(1<<40, math.MaxInt)

// plannedSteps returns the number of updates planned when update step was made. step
// counts from 0; the number differs from Steps for lengthened runs.
func (c *Config) plannedSteps(step int) int {
	for _, n := range c.Lengthened {
		if step < n {
			return n
		}
	}
	return c.Steps
}

// buildSchedule returns the learning-rate schedule, a sequence of them for lengthened
// runs.
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
			return nil, fieldErrorf("{Schedule}: %q is none of %s, %s, %s", c.Schedule, CosineSchedule, LinearSchedule, ConstantSchedule)
		}
		all = append(all, boundedSchedule{n, s})
	}
	return all, nil
}

// scheduleList is a sequence of schedules, each until its number of steps.
type scheduleList []boundedSchedule

// boundedSchedule is a schedule for the updates before steps.
type boundedSchedule struct {
	steps int
	optim.Schedule
}

// Rate returns the learning rate of update step, counted from 0.
func (s scheduleList) Rate(step int) float64 {
	for _, x := range s[:len(s)-1] {
		if step < x.steps {
			return x.Schedule.Rate(step)
		}
	}
	return s[len(s)-1].Schedule.Rate(step)
}

// needsBestWeights reports whether the run is scored with the weights of the best
// validation. They are kept if the final score is on another split, or if the run may
// stop early.
func (c *Config) needsBestWeights(spec data.Spec) bool {
	return !c.Freeze && spec.Count[data.Valid] != 0 && (spec.JudgedSplit() != data.Valid || c.Patience > 0)
}

// SetTask selects the task name. For another task it clears the settings, the input
// statistics and the learned tokens of the former task. Texts share their settings,
// whatever their tokens are.
func (c *Config) SetTask(name string) {
	before, was := task.Lookup(c.Task)
	row, is := task.Lookup(name)
	text := was == nil && is == nil && before.IsText() && row.IsText()
	c.Task = name
	if name == before.Name || text {
		return
	}
	c.TaskSet, c.InputMean, c.InputDeviation, c.Standardise = nil, nil, nil, false
	c.Stratified = is == nil && row.HasOwnClasses()
	if c.Init == "" {
		c.tokens = nil
	}
	m := &c.Model
	m.Kind, m.Context, m.Pool, m.Tied = "", 0, "", false
	c.FirstContext, c.FirstBatch = 0, 0
}

// SetVocabulary sets the setting vocabulary of the task. For labelled texts without Init it also
// drops the tokens that ReadConfig has read, and the length and the context of the run, which are
// counted in those tokens. PrepareTask derives all of them from the data.
func (c *Config) SetVocabulary(name string) {
	isOther := name != c.TaskSet["vocabulary"]
	c.setTaskSettings("vocabulary", name)
	if row, err := task.Lookup(c.Task); c.Init != "" || err != nil || row.IsText() {
		return
	}
	if c.tokens != nil || isOther && c.Model.Context > 0 {
		c.tokens, c.Model.Context = nil, 0
		delete(c.TaskSet, "length")
	}
}

// SetDataSeed sets the seed of generated and drawn samples. Without Init it drops the tokens
// and the input statistics of the former training samples.
func (c *Config) SetDataSeed(seed uint64) {
	c.DataSeed = seed
	if c.Init == "" {
		c.tokens, c.InputMean, c.InputDeviation = nil, nil, nil
	}
}

// HasTokens reports whether c takes the tokens of a model or a run, and does not learn tokens from
// the data.
func (c *Config) HasTokens() bool { return c.tokens != nil }

// SetMechanism selects the mechanism name. Another mechanism than before clears the order, the
// settings, the norm of heads and FarEvery with the layer windows that it set. A mixer with
// projections of its own also clears rotations, decay, shared key heads and all layer windows,
// because it does not support them.
func (c *Config) SetMechanism(name string) {
	m := &c.Model
	if name == m.Mechanism {
		return
	}
	m.Mechanism, m.Order, m.Set, m.AttentionNorm, m.LayerMechanisms = name, 0, nil, false, nil
	if c.FarEvery != 0 {
		m.LayerWindows, c.FarEvery = nil, 0
	}
	row, owns := nn.LookupMixer(name)
	if !owns {
		return
	}
	m.Decay, m.KVHeads, m.LayerWindows = "", 0, nil
	m.AttentionDropout, m.AttentionDropoutKind = 0, ""
	if m.Positions == model.Rotary && !row.Rope {
		m.Positions, m.RopeTheta = model.NoPosition, 0
	}
}

// BatchShape returns the number of windows and their length for a pass of update step,
// counted from 0, on a text.
func (c *Config) BatchShape(step int) (batch, context int) {
	var updates float64 // for one token of each window length
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

// countStages returns the number of window lengths.
func (c *Config) countStages() int {
	stages := 1
	for n := c.FirstContext; n > 0 && n < c.Model.Context; n *= 2 {
		stages++
	}
	return stages
}

// stageShape returns the batch and the window length of stage i.
func (c *Config) stageShape(i int) (batch, context int) {
	if i == c.countStages()-1 {
		return c.Batch, c.Model.Context
	}
	return max(c.Batch, c.FirstBatch>>i), c.FirstContext << i
}

// headWidth returns the width of a head of m, which is not checked yet.
func headWidth(m *model.Config) int {
	if m.HeadWidth > 0 {
		return m.HeadWidth
	}
	return m.Width / max(m.Heads, 1)
}

// settle sets the order and the settings of the mechanism that are left open to its row's
// for training. Where layers may differ, the far field beside a window is the row's, and
// comes with the norm of head outputs.
func (c *Config) settle() error {
	_, owns := nn.LookupMixer(c.Model.Mechanism)
	if owns || c.Model.Kind == model.Convolutional && c.Model.Mechanism == "" {
		return nil
	}
	if _, own := c.Model.Factories[c.Model.Mechanism]; own {
		return nil
	}
	row, err := mechanism.Lookup(c.Model.Mechanism)
	if err != nil {
		return err
	}
	m := &c.Model
	far := row.FarField
	if far.Order != 0 && (m.Kind == model.Encoder || headWidth(m) > far.WidestHead) {
		// Classes and labels are learned as well with the order of the row, whose linear form pays
		// at lengths that encoders see.
		far.Order = row.Order
	}
	window := m.Kind == model.Decoder || m.Kind == model.Encoder && !c.isUnordered
	window = window && m.AttentionDropoutKind != model.DropProducts && m.Set["window"] != "0"
	// Layers may differ where the near field alone can do what is asked.
	differ := m.AttentionDropout == 0 && (m.Decay == "" || m.Decay == model.NoDecay) && c.Segment == 0
	switch {
	case m.Order != 0:
	case window && differ && far.Order != 0:
		m.Order, m.AttentionNorm = far.Order, true
		if c.FarEvery == 0 && len(m.LayerWindows) == 0 {
			c.FarEvery = far.Period
		}
	default:
		m.Order = row.Order
	}
	if row.Training == nil || m.Mechanism == c.complete {
		return nil
	}
	set := row.Training(m.Order, window)
	maps.Copy(set, c.Model.Set)
	c.Model.Set = set
	return nil
}

// nearSpan is the number of keys of a layer without far field, if the mechanism has no
// window.
const nearSpan = 64

// spreadFarField sets the windows of the model's layers by FarEvery. It returns an error
// if FarEvery is negative, or the models of the kind have no windows.
func (c *Config) spreadFarField() error {
	m := &c.Model
	switch {
	case c.FarEvery == 0:
		return nil
	case c.FarEvery < 0 || c.FarEvery > 1<<20:
		return fieldErrorf("{FarEvery}: %d, needs to be from 0 to %d", c.FarEvery, 1<<20)
	case m.Kind != model.Decoder && m.Kind != model.Encoder:
		return fieldErrorf("{FarEvery}: is %d, but {Model.Kind} is %s; set {FarEvery} to 0, or {Model.Kind} to %s or %s", c.FarEvery, m.Kind, model.Decoder, model.Encoder)
	}
	m.LayerWindows = nil
	if c.FarEvery == 1 || m.Layers < 2 || m.Layers > 1<<20 { // the model is not checked yet
		return nil
	}
	span := nearSpan
	if w, err := strconv.Atoi(m.Set["window"]); err == nil && w > 0 {
		span = w
	}
	m.LayerWindows = make([]int, m.Layers)
	for i := range m.LayerWindows {
		if i%c.FarEvery != 0 {
			m.LayerWindows[i] = span
		}
	}
	return nil
}
