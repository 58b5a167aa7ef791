package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/generate"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// trainCmd is the verb train: a transformer learns a text, or another task. Flags that
// are not given leave what the preset or the configuration says.
type trainCmd struct {
	Data    string            `placeholder:"FILE|FOLDER" help:"What to learn: the task's setting data. A text is a file, a folder with all in it, or a data set's name; by default the source of the Go toolchain, or a text that the program writes itself if there is none."`
	Task    string            `complete:"tasks" placeholder:"NAME" help:"What is learned: ${tasks}. Without --preset it begins with the preset of its name. bytelm, a text as bytes, by default; charlm has characters. With --help its settings are listed."`
	TaskSet map[string]string `complete:"task-settings" mapsep:"none" placeholder:"NAME=VALUE" help:"Setting of the task."`
	dataFolder
	DataSeed *uint64 `placeholder:"N" help:"Of what a task makes or draws."`
	Out      string  `short:"o" placeholder:"DIR" help:"Folder of the run, in which report.html tells of it at the end. By default the first of run/001, run/002, ... that is free."`
	Resume   bool    `help:"Continue the run in --out after its latest checkpoint, or all that --seeds began."`
	Config   string  `placeholder:"FILE" help:"Begin with a configuration, such as the config.json of a run, which repeats it."`
	Preset   string  `complete:"presets" placeholder:"NAME" help:"Begin with a named configuration: ${presets}. By default that of the task, and of a text default, or small where there is no AVX2."`
	Seeds    string  `placeholder:"N|LIST" help:"Train so many times with seeds 1 to N, or with those of a list such as 1,5,9, each in a folder below --out, and tell mean and deviation."`

	Kind        string   `complete:"decoder,encoder,convolutional" placeholder:"KIND" help:"What the model is: decoder, encoder, convolutional. By default what the task needs, and encoder where it needs none."`
	Pool        string   `complete:"mean,cls,last" placeholder:"KIND" help:"What says something of a whole sample: mean of its positions, cls, a learned one in front, last. By default mean, of a decoder last."`
	Hidden      *int     `placeholder:"N" help:"Units of the MLP; 0 for four times the width."`
	HeadHidden  *int     `placeholder:"N" help:"Units with ReLU before the outputs; 0 for none."`
	Dropout     *float64 `placeholder:"R" help:"Share of elements that embeddings and blocks leave out in training, below 1."`
	Standardise *bool    `help:"Give the model the task's numbers less their mean, in deviations, of the samples to learn from."`
	LRAQuirk    *bool    `name:"lra-quirk" help:"Pad every sample to the task's full length with zeros and mask nothing: attention, whatever the mechanism, and the mean of positions see padding like all else, as in the kernel models of the Long Range Arena."`

	Mechanism string `complete:"mixers" placeholder:"NAME" help:"Attention function, or a mixer that takes its place with projections of its own; with --help its settings are listed. Fastmax trains with scale=1/sqrt(D), of odd order with bounded=true, taylorshift from tau=sqrt(D), unless set otherwise."`
	settings
	Layers       *int     `placeholder:"N" help:"Layers of attention and MLP."`
	Heads        *int     `placeholder:"N" help:"Query heads of a layer; they divide the width."`
	KVHeads      *int     `name:"kv-heads" placeholder:"N" help:"Key heads, shared by the query heads; they divide these."`
	Width        *int     `placeholder:"N" help:"Width of the model."`
	Conv         *int     `placeholder:"K" help:"Tokens of the short convolution before attention and MLP, which tells neighbours apart; 0 for none."`
	Activation   string   `complete:"gelu-tanh,gelu,relu,silu,swiglu,geglu" placeholder:"KIND" help:"MLP: gelu-tanh, gelu, relu, silu, swiglu, geglu (gelu-tanh)."`
	Norm         string   `complete:"layer,rms" placeholder:"KIND" help:"Norm: layer or rms (default layer)."`
	PostNorm     *bool    `help:"The norm after the sum, norm(x + f(x)), as in the first transformers."`
	Decay        string   `complete:"none,fixed,learned" placeholder:"KIND" help:"How keys of attention lose weight with time: none, fixed by RetNet's factor of each key head, or learned by a gate of each that begins there."`
	Context      *int     `placeholder:"N" help:"Tokens of a sequence."`
	Segment      *int     `placeholder:"N" help:"Take windows of a text through the model N tokens at a time, with the gradient of the whole: memory grows with N, and a little with each further N tokens. 0 for whole windows. Needs a mechanism with a state of fixed size."`
	FirstContext *int     `placeholder:"N" help:"Tokens of a sequence at first; they double until they are --context, and each length gets as many tokens to learn from. 0 for always --context."`
	FirstBatch   *int     `placeholder:"N" help:"Sequences of an update at first; they halve when sequences double, down to --batch."`
	Positions    string   `complete:"rope,learned,sinusoidal,none" placeholder:"KIND" help:"How tokens know where they are: rope, learned, sinusoidal, none."`
	Batch        *int     `placeholder:"N" help:"Samples of a pass."`
	Accumulate   *int     `placeholder:"K" help:"Passes of an update, which is that of a K times larger batch."`
	Steps        *int     `placeholder:"N" help:"Updates; with --resume, lengthen a finished run to N."`
	Optimizer    string   `complete:"adamw,adam,radam" placeholder:"NAME" help:"adamw, adam (without weight decay), radam."`
	Schedule     string   `complete:"cosine,linear,constant" placeholder:"NAME" help:"How the learning rate falls after the warm-up: cosine, linear, constant (not at all)."`
	LR           *float64 `name:"lr" placeholder:"X" help:"Highest learning rate; --min-lr becomes a tenth of it unless given."`
	MinLR        *float64 `name:"min-lr" placeholder:"X" help:"Learning rate at the end."`
	Warmup       *int     `placeholder:"N" help:"Updates until the highest learning rate."`

	AttentionDropout     *float64 `placeholder:"R" help:"Share of queries and keys that attention leaves out in training, below 1."`
	AttentionDropoutKind string   `complete:"1d,standard,quadratic" placeholder:"KIND" help:"What it leaves out: 1d whole tokens, standard channels, quadratic products of two channels. 1d by default."`

	WeightDecay  *float64 `placeholder:"X" help:"Weight decay of matrices."`
	Beta2        *float64 `name:"beta2" placeholder:"X" help:"Memory of the second moment."`
	Clip         *float64 `placeholder:"X" help:"Largest norm of a gradient; 0 for none."`
	Seed         *uint64  `placeholder:"N" help:"Of the first weights and of the order of the data."`
	EvalEvery    *int     `placeholder:"N" help:"Updates between two looks at the validation part; 0 for none but the last."`
	EvalSamples  *int     `placeholder:"N" help:"Samples of each look, of a text windows of the context; 0 for all."`
	FinalSamples *int     `placeholder:"N" help:"Samples that the run is judged by at the end; 0 for all."`
	Patience     *int     `placeholder:"N" help:"End after so many looks without a better score, with the best weights; 0 for never."`
	SaveEvery    *int     `placeholder:"N" help:"Updates between two checkpoints; 0 for none but the last."`

	Divide string `enum:"batch,sequence" default:"batch" help:"What ranks of mpirun divide (farfield built with -tags mpi): batch, the passes of an update, to the bits of one process; sequence, the tokens of each window, of mechanisms whose states are sums."`
	ranked

	SampleTokens int  `placeholder:"N" default:"400" help:"Tokens of the text that is generated at the end, if a text was learned (${default})."`
	JSON         bool `name:"json" help:"Print the result as JSON."`
}

// Help are examples.
func (t *trainCmd) Help() string {
	return "After Ctrl-C, --resume goes on from the latest checkpoint, to the bits of a run that was not interrupted." + examples(
		"farfield train --data notes.txt --out run/notes",
		"farfield train --resume --out run/notes",
		"farfield train --resume --out run/notes --steps 900",
		"farfield train --task listops --mechanism softmax --seeds 3 --out run/listops",
		"farfield train --task file --data labelled.tsv --out run/labels",
		"farfield train --config run/notes/config.json --lr 1e-3 --out run/faster",
	)
}

// override sets dst and notes the flag's name if it is given.
func override[T any](given *[]string, name string, dst, flag *T) {
	if flag != nil {
		*given = append(*given, name)
		*dst = *flag
	}
}

// text is the value of a flag that is not given if it is empty.
func text(flag string) *string {
	if flag == "" {
		return nil
	}
	return &flag
}

// merged returns the settings of a, which keeps its own, and of b.
func merged(a, b map[string]string) map[string]string {
	set := maps.Clone(a)
	if set == nil {
		set = map[string]string{}
	}
	maps.Copy(set, b)
	return set
}

// apply changes c by the flags and returns the names of those that are given.
func (t *trainCmd) apply(c *train.Config) (given []string) {
	m := &c.Model
	if t.Task != "" {
		given = append(given, "--task")
		c.SetTask(t.Task)
	}
	if len(t.TaskSet) > 0 {
		given = append(given, "--task-set")
		c.TaskSet = merged(c.TaskSet, t.TaskSet)
	}
	if t.Data != "" {
		given = append(given, "--data")
		c.TaskSet = merged(c.TaskSet, map[string]string{"data": t.Data})
	}
	override(&given, "--data-seed", &c.DataSeed, t.DataSeed)
	override(&given, "--kind", &m.Kind, text(t.Kind))
	override(&given, "--pool", &m.Pool, text(t.Pool))
	override(&given, "--hidden", &m.Hidden, t.Hidden)
	override(&given, "--head-hidden", &m.HeadHidden, t.HeadHidden)
	override(&given, "--dropout", &m.Dropout, t.Dropout)
	override(&given, "--standardise", &c.Standardise, t.Standardise)
	override(&given, "--lra-quirk", &c.LRAQuirk, t.LRAQuirk)
	if t.Mechanism != "" {
		given = append(given, "--mechanism")
		c.SetMechanism(t.Mechanism)
	}
	override(&given, "--order", &m.Order, t.Order)
	if len(t.Set) > 0 {
		given = append(given, "--set")
		m.Set = merged(m.Set, t.Set)
	}
	override(&given, "--layers", &m.Layers, t.Layers)
	override(&given, "--heads", &m.Heads, t.Heads)
	override(&given, "--kv-heads", &m.KVHeads, t.KVHeads)
	override(&given, "--width", &m.Width, t.Width)
	override(&given, "--conv", &m.Conv, t.Conv)
	override(&given, "--activation", &m.Activation, text(t.Activation))
	override(&given, "--norm", &m.Norm, text(t.Norm))
	override(&given, "--post-norm", &m.PostNorm, t.PostNorm)
	override(&given, "--decay", &m.Decay, text(t.Decay))
	override(&given, "--context", &m.Context, t.Context)
	override(&given, "--segment", &c.Segment, t.Segment)
	override(&given, "--first-context", &c.FirstContext, t.FirstContext)
	override(&given, "--first-batch", &c.FirstBatch, t.FirstBatch)
	override(&given, "--attention-dropout", &m.AttentionDropout, t.AttentionDropout)
	override(&given, "--attention-dropout-kind", &m.AttentionDropoutKind, text(t.AttentionDropoutKind))
	override(&given, "--positions", &m.Positions, text(t.Positions))
	override(&given, "--batch", &c.Batch, t.Batch)
	override(&given, "--accumulate", &c.Accumulate, t.Accumulate)
	override(&given, "--optimizer", &c.Optimizer, text(t.Optimizer))
	override(&given, "--schedule", &c.Schedule, text(t.Schedule))
	if t.Steps != nil {
		c.Lengthened = nil
	}
	override(&given, "--steps", &c.Steps, t.Steps)
	if t.LR != nil {
		c.MinRate = *t.LR / 10
	}
	override(&given, "--lr", &c.Rate, t.LR)
	override(&given, "--min-lr", &c.MinRate, t.MinLR)
	override(&given, "--warmup", &c.WarmUp, t.Warmup)
	override(&given, "--weight-decay", &c.Decay, t.WeightDecay)
	override(&given, "--beta2", &c.Beta2, t.Beta2)
	override(&given, "--clip", &c.Clip, t.Clip)
	override(&given, "--seed", &c.Seed, t.Seed)
	override(&given, "--eval-every", &c.EvalEvery, t.EvalEvery)
	override(&given, "--eval-samples", &c.EvalSamples, t.EvalSamples)
	override(&given, "--final-samples", &c.FinalSamples, t.FinalSamples)
	override(&given, "--patience", &c.Patience, t.Patience)
	override(&given, "--save-every", &c.SaveEvery, t.SaveEvery)
	return given
}

func (t *trainCmd) Run(e *env) error {
	if _, err := t.join(e); err != nil {
		return err
	}
	return e.untilRanksEnd("train --resume with the run's --out continues after its last checkpoint", func() error { return t.run(e.quiet()) })
}

// trainPlan is what a training begins with, on all ranks.
type trainPlan struct {
	Config train.Config
	Out    string
	Seeds  []uint64 // nil: one run; none: those in Out
}

// plan reads configuration and folders.
func (t *trainCmd) plan() (p trainPlan, err error) {
	if p.Seeds, err = t.seeds(); err != nil {
		return p, err
	}
	if p.Config, err = t.config(); err != nil {
		return p, err
	}
	if p.Out = t.Out; p.Out == "" {
		p.Out, err = freeRun("run")
	}
	return p, err
}

func (t *trainCmd) run(e *env) error {
	p, err := comm.CallOnRankZero(e.ranks, t.plan)
	if err != nil {
		return err
	}
	named := t.Out != ""
	t.Out = p.Out
	var src task.Source
	err = e.interruptible(func() (err error) {
		src, err = p.Config.OpenTask()
		return input(err)
	})
	if err = comm.ShareError(e.ranks, err); err != nil {
		return err
	}
	if text, ok := src.(*task.Text); ok {
		keepHeapTight(text)
	}
	if p.Seeds != nil {
		return t.many(e, p.Config, src, p.Seeds)
	}
	var trainer *train.Trainer
	job := train.Job{Ranks: e.ranks, Divide: t.Divide}
	if t.Resume {
		if err = t.lengthen(e, t.Out); err == nil {
			trainer, err = job.Resume(src, t.Out)
		}
	} else {
		trainer, err = job.New(p.Config, src, t.Out)
		for !named && e.ranks == nil && isTaken(err) { // by another training in the meantime
			if t.Out, err = freeRun("run"); err == nil {
				trainer, err = job.New(p.Config, src, t.Out)
			}
		}
	}
	if err != nil {
		return input(err)
	}
	defer trainer.Close()
	r, err := t.one(e, trainer, t.Out)
	if err != nil {
		return err
	}
	if t.JSON {
		return printJSON(e.stdout, r)
	}
	return r.print(e)
}

// isTaken reports that a run has another owner, or is there already.
func isTaken(err error) bool {
	var held *lock.HeldError
	return errors.As(err, &held) || errors.Is(err, train.ErrRunExists)
}

// lengthen gives the finished runs in dirs the number of updates that is asked for.
func (t *trainCmd) lengthen(e *env, dirs ...string) error {
	var err error
	if t.Steps != nil && e.first() {
		err = train.LengthenRuns(*t.Steps, dirs...)
	}
	return comm.ShareError(e.ranks, err)
}

// config returns the configuration of the run, or of the first of those to resume.
func (t *trainCmd) config() (train.Config, error) {
	if !t.Resume {
		c, err := t.configure()
		return c, input(err)
	}
	var c train.Config
	if t.Out == "" {
		return c, inputf("--resume: --out has to name the folder of the run")
	}
	given := slices.DeleteFunc(t.apply(&c), func(flag string) bool { return flag == "--steps" })
	if t.Seeds != "" {
		given = append(given, "--seeds")
	}
	if len(given) > 0 || t.Config != "" || t.Preset != "" {
		return c, inputf("--resume: the run is configured by %s; leave out %s",
			filepath.Join(t.Out, "config.json"), strings.Join(append(given, "--config and --preset"), ", "))
	}
	dir := t.Out
	if runs := seedRuns(dir); len(runs) > 0 {
		dir = runs[0]
	}
	c, err := runConfig(dir)
	if err == nil && t.Folder != "" { // the data sets may have moved
		c.Folder, err = filepath.Abs(t.Folder)
	}
	return c, input(err)
}

// runConfig is the configuration of the run in a folder.
func runConfig(dir string) (train.Config, error) {
	c, err := train.RunConfig(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: holds no run: it has no config.json; farfield train --out %s begins one", dir, dir)
	}
	return c, err
}

// one trains to the end in the folder dir.
func (t *trainCmd) one(e *env, trainer *train.Trainer, dir string) (*trainReport, error) {
	src := trainer.Source()
	if !t.JSON && !e.brief {
		describeRun(e, trainer, dir)
		if e.ranks != nil {
			fmt.Fprintf(e.stdout, "ranks       %d, which divide the %s\n", e.ranks.Size(), t.Divide)
		}
	}
	c := trainer.Config()
	score, err := trainer.Train(e.ctx, newProgress(e, trainer.StepsDone(), c.Steps).observer())
	if errors.Is(err, context.Canceled) {
		return nil, interruption{err, fmt.Sprintf("stopped after update %d of %d; farfield train --resume --out %s continues", trainer.StepsDone(), c.Steps, t.Out)}
	}
	if err != nil {
		return nil, err
	}
	if !e.first() {
		return &trainReport{Score: score}, nil
	}
	if e.tty {
		if err := drawCurves(e.notes(), dir); err != nil {
			return nil, err
		}
	}
	spec := src.Spec()
	r := &trainReport{Run: dir, Task: spec.Name, Split: spec.JudgedSplit().String(), Steps: trainer.StepsDone(), Best: trainer.BestStep(), Score: score}
	if text, ok := src.(*task.Text); ok {
		if err = e.interruptible(func() error { return r.table(text) }); err != nil {
			return nil, err
		}
		r.Sample, err = sample(e.ctx, trainer.Model(), text.Vocab, lineBreak(text.Vocab), t.SampleTokens, c.Seed)
	} else {
		err = e.interruptible(func() (err error) {
			r.Baselines, err = src.Baselines(0)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	r.Detail = trainer.Detail()
	if named, ok := src.(task.ClassNamer); ok && len(r.Confusion) > 0 {
		r.Classes = named.ClassNames()
	}
	r.Verdict = judge(r.Score, r.baselines())
	if err := writeResult(dir, r); err != nil {
		return nil, err
	}
	return r, writeReport(filepath.Join(dir, reportFile), dir, r.Sample)
}

// configure puts preset, file and flags together.
func (t *trainCmd) configure() (train.Config, error) {
	name := t.Preset
	if row, err := task.Lookup(t.Task); t.Task != "" && name == "" && t.Config == "" {
		if err != nil {
			return train.Config{}, err
		}
		if !row.IsText() {
			name = t.Task
		}
	}
	preset, err := train.LookupPreset(name)
	if err != nil {
		return train.Config{}, err
	}
	c := preset.Config
	if t.Config != "" {
		if c, err = train.ReadConfig(t.Config, c); err != nil {
			return c, err
		}
	}
	t.apply(&c)
	if t.SampleTokens < 0 {
		return c, fmt.Errorf("--sample-tokens: %d is negative", t.SampleTokens)
	}
	return c, t.locate(&c)
}

// locate makes the paths of c absolute: the run may be resumed from another folder.
// The name of a data set of the task is no path.
func (t *trainCmd) locate(c *train.Config) error {
	row, err := task.Lookup(c.Task)
	if err != nil {
		return err
	}
	if len(row.DataSets) > 0 && (c.Folder == "" || t.Folder != "") {
		if c.Folder, err = t.path(); err != nil {
			return err
		}
		if c.Folder, err = filepath.Abs(c.Folder); err != nil {
			return err
		}
	}
	data := c.TaskSet["data"]
	if data == "" && len(row.DataSets) == 0 && !row.IsText() && slices.ContainsFunc(row.Settings, func(s task.Setting) bool { return s.Name == "data" }) {
		return fmt.Errorf("--data is missing: task %s reads files of yours", c.Task)
	}
	if data == "" || row.IsText() && slices.Contains(row.DataSets, data) {
		return nil
	}
	path, err := filepath.Abs(data)
	c.TaskSet = merged(c.TaskSet, map[string]string{"data": path})
	return err
}

// freeRun returns the first folder in dir, numbered from 001, that is not there.
func freeRun(dir string) (string, error) {
	for i := 1; ; i++ {
		path := filepath.Join(dir, fmt.Sprintf("%03d", i))
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// describeRun prints what is about to be trained.
func describeRun(e *env, t *train.Trainer, dir string) {
	c, src := t.Config(), t.Source()
	m := c.Model
	if text, ok := src.(*task.Text); ok {
		from := ""
		if text.Corpus.Files > 1 || text.Corpus.Skipped > 0 {
			from = fmt.Sprintf("%d files, %d skipped as binary, ", text.Corpus.Files, text.Corpus.Skipped)
		}
		judged := ""
		if n := text.Tokens(task.Test).Len(); n > 0 {
			judged = fmt.Sprintf(", %d to be judged by", n)
		}
		fmt.Fprintf(e.stdout, "data        %s: %s%d %s to learn from, %d to validate%s\n",
			escaped(text.Corpus.Name), from, text.Tokens(task.Train).Len(), text.Vocab.Kind(), text.Tokens(task.Valid).Len(), judged)
	} else {
		fmt.Fprintf(e.stdout, "task        %s\n", escaped(describeData(c, src.Spec())))
	}
	attention, positions := "no attention", ""
	if m.Mechanism != "" {
		attention = describeAttention(m)
	}
	switch {
	case m.Kind == model.Convolutional:
	case m.Positions == model.NoPosition:
		positions = ", no positions"
	default:
		positions = fmt.Sprintf(", %s positions", m.Positions)
	}
	fmt.Fprintf(e.stdout, "model       %s, %d layers of width %d, %d heads%s, %d parameters\n",
		attention, m.Layers, m.Width, m.Heads, positions, t.Model().Params().Size())
	grow := ""
	if c.FirstContext > 0 && c.FirstContext < m.Context {
		grow = fmt.Sprintf(", in sequences of %d at first", c.FirstContext)
	}
	samples := fmt.Sprint(c.Batch)
	if c.Accumulate > 1 {
		samples = fmt.Sprintf("%d times %d", c.Accumulate, c.Batch)
	}
	what := fmt.Sprintf("samples of up to %d positions", m.Context)
	if c.Model.Parts == 2 {
		what = fmt.Sprintf("pairs of up to %d positions each", m.Context)
	}
	if _, ok := src.(task.WindowSource); ok {
		samples, what = fmt.Sprintf("%s×%d", samples, m.Context), "tokens"
	}
	fmt.Fprintf(e.stdout, "run         %s: updates %d to %d of %s %s%s\n", escaped(dir), t.StepsDone()+1, c.Steps, samples, what, grow)
}

// describeData names a task with its settings, and its samples.
func describeData(c train.Config, s task.Spec) string {
	var b strings.Builder
	b.WriteString(s.Name)
	for _, key := range slices.Sorted(maps.Keys(c.TaskSet)) {
		fmt.Fprintf(&b, " --task-set %s=%s", key, c.TaskSet[key])
	}
	if c.LRAQuirk {
		b.WriteString(" --lra-quirk")
	}
	count := func(n int) string {
		if n == task.Endless {
			return "any number"
		}
		return fmt.Sprint(n)
	}
	fmt.Fprintf(&b, ": %s to learn from, %s to validate, %s to be judged by; asks for: %v, judged by %s",
		count(s.Count[task.Train]), count(s.Count[task.Valid]), count(s.Count[task.Test]), s.Kind, s.Metric)
	return b.String()
}

// describeAttention names the mechanism of a model with its settings, as flags.
func describeAttention(m model.Config) string {
	var b strings.Builder
	b.WriteString(m.Mechanism)
	if m.Order > 0 {
		fmt.Fprintf(&b, " --order %d", m.Order)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Set)) {
		fmt.Fprintf(&b, " --set %s=%s", key, m.Set[key])
	}
	if m.Decay != "" && m.Decay != model.NoDecay {
		fmt.Fprintf(&b, " --decay %s", m.Decay)
	}
	return b.String()
}

// tableBits returns the bits per byte of Text.NgramLosses on the part that judges, and the
// number of tokens that the tables learned from.
func tableBits(text *task.Text) (bits [3]float64, learned int, err error) {
	spec := text.Spec()
	judged := text.Tokens(spec.JudgedSplit())
	loss, learned, err := text.NgramLosses(spec.JudgedSplit(), 0)
	for i := range bits {
		bits[i] = loss[i] * float64(judged.Len()) / float64(judged.Bytes()) / math.Ln2
	}
	return bits, learned, err
}

// table sets what tables of counts reach on a text.
func (r *trainReport) table(text *task.Text) error {
	bits, learned, err := tableBits(text)
	r.Table = &bits
	if learned < text.Tokens(task.Train).Len() {
		r.TableTokens = learned
	}
	return err
}

// trainReport is what a training came to.
type trainReport struct {
	Run   string `json:"run"`
	Task  string `json:"task"`
	Split string `json:"split"` // that it is judged by
	Steps int    `json:"steps"`
	Best  int    `json:"best_step,omitempty"` // whose weights are judged
	train.Score
	train.Detail
	Classes     []string        `json:"classes,omitempty"` // names of the rows and columns of Confusion, if they have any
	Verdict     *verdict        `json:"verdict,omitempty"`
	Baselines   []task.Baseline `json:"baselines,omitempty"`
	Table       *[3]float64     `json:"table_bits_per_byte,omitempty"` // of order 0, 1 and 2
	TableTokens int             `json:"table_tokens,omitempty"`        // that the tables learned from, where it is not all
	Sample      string          `json:"sample,omitempty"`
}

func (r *trainReport) print(e *env) error {
	name := map[string]string{"valid": "validation", "test": "test"}[r.Split]
	r.Verdict.print(e)
	if r.Table == nil {
		of := ""
		if r.Best > 0 {
			of = fmt.Sprintf(", of update %d", r.Best)
		}
		fmt.Fprintf(e.stdout, "%-12s%s %.4f, loss %.4f over %d samples%s\n", name, r.Metric, r.Value, r.Loss, r.Samples, of)
		printBaselines(e, r.Metric, r.Baselines)
		r.more(e, "eval --model %s")
		return nil
	}
	fmt.Fprintf(e.stdout, "%-12sloss %.4f nats, %.4f bits per byte over %d bytes\n", name, r.Loss, r.Bits, r.Bytes)
	from := ""
	if r.TableTokens > 0 {
		from = fmt.Sprintf(", learned from the first %d tokens", r.TableTokens)
	}
	fmt.Fprintf(e.stdout, "table       %.4f bits per byte from counts of the two tokens before (order 2), %.4f of one, %.4f of none%s\n", r.Table[2], r.Table[1], r.Table[0], from)
	r.more(e, "generate --model %s --prompt TEXT")
	if r.Sample == "" {
		return nil
	}
	fmt.Fprintf(e.stdout, "sample\n\n")
	w := token.NewWriter(e.stdout)
	if _, err := w.Write([]byte(r.Sample)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(e.stdout)
	return err
}

// printBaselines prints what simple means score, and the samples that they learned from.
func printBaselines(e *env, metric task.Metric, list []task.Baseline) {
	for _, b := range list {
		from := ""
		if b.Learned > 0 {
			from = fmt.Sprintf(", learned from %d samples", b.Learned)
		}
		fmt.Fprintf(e.stdout, "baseline    %s %.4f: %s%s\n", metric, b.Score, b.Name, from)
	}
}

// more says what may follow.
func (r *trainReport) more(e *env, command string) {
	if !e.brief {
		fmt.Fprintf(e.stdout, "more        farfield "+command+"\n", r.Run)
	}
}

// sampleTemperature is a little below 1, which makes short texts more coherent.
const sampleTemperature = 0.8

// sample returns a text of n tokens after others, or as many as the model has
// positions for.
func sample(ctx context.Context, m *model.Model[float32], vocab *token.Vocabulary, start []int32, n int, seed uint64) (string, error) {
	g, err := generate.New(m, generate.Sampling{Temperature: sampleTemperature, Seed: seed})
	if err != nil {
		return "", err
	}
	g.Append(start...)
	if c := m.Config(); c.Positions == model.Learned {
		n = min(n, c.Context-len(start))
	}
	var out []byte
	err = g.Generate(ctx, n, func(t int32) (err error) {
		out, err = vocab.Decode(out, t)
		return err
	})
	return string(out), err
}

// lineBreak returns the tokens of a line break, after which anything may begin,
// or the first token there is.
func lineBreak(vocab *token.Vocabulary) []int32 {
	tokens, err := vocab.Encode(nil, []byte("\n"))
	if err != nil {
		return []int32{0}
	}
	return tokens
}

// keepHeapTight makes the garbage collector run before the heap has grown by a tenth
// of a large text: by default it waits until the heap is twice as large.
func keepHeapTight(text *task.Text) {
	const large = 64 << 20
	if len(text.Corpus.Text) >= large {
		debug.SetGCPercent(10)
	}
}
