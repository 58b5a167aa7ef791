package train

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train"
)

// apply changes c by the flags and returns the names of those that are given.
func (t *Command) apply(c *train.Config) (given []string) {
	m := &c.Model
	if t.Init != "" {
		given = append(given, "--init")
	}
	if t.Freeze != nil {
		given = append(given, "--freeze")
	}
	if t.Adapters != nil {
		given = append(given, "--adapters")
	}
	if t.Task != "" {
		given = append(given, "--task")
		c.SetTask(t.Task)
	}
	if t.Vocabulary != "" { // before a length of --task-set
		given = append(given, "--vocabulary")
		c.SetVocabulary(t.Vocabulary)
	}
	if len(t.TaskSet) > 0 {
		given = append(given, "--task-set")
		if name, ok := t.TaskSet["vocabulary"]; ok {
			c.SetVocabulary(name)
		}
		c.TaskSet = flags.MergeSettings(c.TaskSet, t.TaskSet)
	}
	if t.TaskSet["as"] == "pixels" { // tokens, which have no mean; a preset may standardise patches
		c.Standardise = false
	}
	if t.Data != "" {
		given = append(given, "--data")
		c.TaskSet = flags.MergeSettings(c.TaskSet, map[string]string{"data": t.Data})
	}
	for _, f := range t.taskFlags() {
		if f.value != "" {
			given = append(given, "--"+f.name)
			c.TaskSet = flags.MergeSettings(c.TaskSet, map[string]string{f.name: f.value})
		}
	}
	if t.DataSeed != nil {
		given = append(given, "--data-seed")
		c.SetDataSeed(*t.DataSeed)
	}
	flags.OverrideText(&given, "--kind", &m.Kind, t.Kind)
	flags.OverrideText(&given, "--pool", &m.Pool, t.Pool)
	flags.OverrideValue(&given, "--hidden", &m.Hidden, t.Hidden)
	flags.OverrideValue(&given, "--head-hidden", &m.HeadHidden, t.HeadHidden)
	flags.OverrideValue(&given, "--tied", &m.Tied, t.Tied)
	flags.OverrideValue(&given, "--dropout", &m.Dropout, t.Dropout)
	if t.Standardise != nil && c.Init == "" && c.Standardise {
		c.InputMean, c.InputDeviation = nil, nil // of a run
	}
	flags.OverrideValue(&given, "--standardise", &c.Standardise, t.Standardise)
	flags.OverrideValue(&given, "--lra-quirk", &c.LRAQuirk, t.LRAQuirk)
	if t.Mechanism != "" {
		given = append(given, "--mechanism")
		c.SetMechanism(t.Mechanism)
	}
	flags.OverrideValue(&given, "--order", &m.Order, t.Order)
	if len(t.Set) > 0 {
		given = append(given, "--set")
		m.Set = flags.MergeSettings(m.Set, t.Set)
	}
	flags.OverrideValue(&given, "--layers", &m.Layers, t.Layers)
	flags.OverrideValue(&given, "--heads", &m.Heads, t.Heads)
	flags.OverrideValue(&given, "--kv-heads", &m.KVHeads, t.KVHeads)
	flags.OverrideValue(&given, "--width", &m.Width, t.Width)
	flags.OverrideValue(&given, "--conv", &m.Conv, t.Conv)
	flags.OverrideText(&given, "--activation", &m.Activation, t.Activation)
	flags.OverrideValue(&given, "--post-norm", &m.PostNorm, t.PostNorm)
	flags.OverrideValue(&given, "--attention-norm", &m.AttentionNorm, t.AttentionNorm)
	flags.OverrideValue(&given, "--far-every", &c.FarEvery, t.FarEvery)
	flags.OverrideText(&given, "--decay", &m.Decay, t.Decay)
	flags.OverrideValue(&given, "--context", &m.Context, t.Context)
	flags.OverrideValue(&given, "--segment", &c.Segment, t.Segment)
	flags.OverrideValue(&given, "--first-context", &c.FirstContext, t.FirstContext)
	flags.OverrideValue(&given, "--first-batch", &c.FirstBatch, t.FirstBatch)
	flags.OverrideValue(&given, "--attention-dropout", &m.AttentionDropout, t.AttentionDropout)
	flags.OverrideText(&given, "--attention-dropout-kind", &m.AttentionDropoutKind, t.AttentionDropoutKind)
	flags.OverrideText(&given, "--positions", &m.Positions, t.Positions)
	flags.OverrideText(&given, "--norm", &m.Norm, t.Norm)
	flags.OverrideValue(&given, "--batch", &c.Batch, t.Batch)
	flags.OverrideValue(&given, "--accumulate", &c.Accumulate, t.Accumulate)
	flags.OverrideText(&given, "--optimizer", &c.Optimizer, t.Optimizer)
	flags.OverrideText(&given, "--schedule", &c.Schedule, t.Schedule)
	if t.Steps != nil || t.Epochs != nil {
		c.Lengthened = nil
	}
	flags.OverrideValue(&given, "--steps", &c.Steps, t.Steps)
	flags.OverrideValue(&given, "--epochs", &c.Epochs, t.Epochs)
	if t.LR != nil {
		c.MinRate = *t.LR / 10
	}
	flags.OverrideValue(&given, "--lr", &c.Rate, t.LR)
	flags.OverrideValue(&given, "--min-lr", &c.MinRate, t.MinLR)
	flags.OverrideValue(&given, "--warmup", &c.WarmUp, t.Warmup)
	flags.OverrideValue(&given, "--weight-decay", &c.Decay, t.WeightDecay)
	flags.OverrideValue(&given, "--beta2", &c.Beta2, t.Beta2)
	flags.OverrideValue(&given, "--clip", &c.Clip, t.Clip)
	flags.OverrideValue(&given, "--seed", &c.Seed, t.Seed)
	flags.OverrideValue(&given, "--eval-every", &c.EvalEvery, t.EvalEvery)
	flags.OverrideValue(&given, "--eval-samples", &c.EvalSamples, t.EvalSamples)
	flags.OverrideValue(&given, "--final-samples", &c.FinalSamples, t.FinalSamples)
	flags.OverrideValue(&given, "--patience", &c.Patience, t.Patience)
	flags.OverrideValue(&given, "--save-every", &c.SaveEvery, t.SaveEvery)
	return given
}

// config returns the configuration of the run, or of the first of those to resume.
func (t *Command) config() (train.Config, error) {
	if !t.Resume {
		c, err := t.configure()
		return c, env.MarkInput(err)
	}
	var c train.Config
	if t.Out == "" {
		return c, env.InputErrorf("--resume: --out has to name the folder of the run")
	}
	given := slices.DeleteFunc(t.apply(&c), func(flag string) bool { return flag == "--steps" || flag == "--data" })
	if t.Seeds != "" {
		given = append(given, "--seeds")
	}
	if t.Config != "" {
		given = append(given, "--config")
	}
	if t.Preset != "" {
		given = append(given, "--preset")
	}
	if len(given) > 0 {
		return c, env.InputErrorf("--resume: the run is configured by %s; leave out %s", filepath.Join(t.Out, "config.json"), strings.Join(given, ", "))
	}
	dir := t.Out
	if runs := runs.SeedRuns(dir); len(runs) > 0 {
		dir = runs[0]
	}
	c, err := runs.ReadRunConfig(dir)
	if err == nil && t.Folder != "" { // the data sets may have moved
		c.Folder, err = filepath.Abs(t.Folder)
	}
	if err == nil && t.Data == "" {
		if err = runs.CheckStoredData(c, filepath.Join(dir, "config.json")); err != nil {
			err = fmt.Errorf("%w; --data names the place of the same data", err)
		}
	}
	return c, env.MarkInput(err)
}

// configure puts preset, file and flags together.
func (t *Command) configure() (train.Config, error) {
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
	if t.Init != "" {
		if t.Init, err = runs.ResolveModel(t.Init); err != nil {
			return c, err
		}
		if t.Task == "" && t.Preset == "" && t.Config == "" {
			c.Task = "" // the task of the run
		} else if t.Task != "" {
			if c.SetTask(t.Task); t.Config == "" && name == "" { // a text; the preset's windows have another length
				c.EvalSamples, c.FinalSamples = -1, -1
			}
		}
		if c, err = c.StartFrom(t.Init); err != nil {
			return c, err
		}
	} else if t.Adapters != nil && *t.Adapters != 0 {
		return c, fmt.Errorf("--adapters: %d, but there is no model to adapt; name it by --init", *t.Adapters)
	}
	if t.Data == "" && t.TaskSet["data"] == "" {
		from := t.Config
		if from == "" && t.Init != "" {
			from = filepath.Join(train.RunFolder(t.Init), "config.json")
		}
		if err := runs.CheckStoredData(c, from); err != nil {
			return c, fmt.Errorf("%w; --data takes others", err)
		}
	}
	if t.Epochs != nil && (t.Steps != nil || *t.Epochs < 1) {
		return c, fmt.Errorf("--epochs: is %d, needs to be 1 or more without --steps", *t.Epochs)
	}
	if t.Adapters != nil {
		c.SetAdapters(*t.Adapters)
	}
	before, length := c.Task, c.TaskSet["length"]
	given := t.apply(&c)
	if row, err := task.Lookup(c.Task); t.Data != "" && err == nil {
		c.Stratified = row.HasOwnClasses() // other data have no parts yet
	}
	t.tuning = slices.DeleteFunc(given, func(flag string) bool { return slices.Contains(frozenFlags, flag) })
	if t.Freeze != nil && *t.Freeze {
		if len(t.tuning) > 0 {
			return c, fmt.Errorf("--freeze: fits a linear head, for which %s has no effect; leave out one of them", t.tuning[0])
		}
		if err := c.FreezeHead(); err != nil {
			return c, fmt.Errorf("--%w", err)
		}
	}
	if _, asked := t.TaskSet["vocabulary"]; t.Config != "" && c.Task == before && (asked || t.Vocabulary != "") && c.TaskSet["length"] == "" {
		t.droppedLength = length
	}
	if t.Vocabulary != "" || t.TaskSet["vocabulary"] != "" {
		switch name := c.TaskSet["vocabulary"]; {
		case c.Init != "": // of --init, or of the run of --config
			return c, fmt.Errorf("--vocabulary: %s, the model of --init has tokens of its own", name)
		case c.TaskSet["target"] == "bytes":
			return c, fmt.Errorf("--vocabulary: %s, target=bytes has bytes", name)
		}
	}
	if t.SampleTokens < 0 {
		return c, fmt.Errorf("--sample-tokens: %d is negative", t.SampleTokens)
	}
	if err := t.checkEffect(&c); err != nil {
		return c, err
	}
	if err := t.locate(&c); err != nil {
		return c, err
	}
	t.settleGrowth(&c)
	return c, nil
}

// frozenFlags are the flags that a frozen model reads.
var frozenFlags = []string{"--init", "--freeze", "--task", "--task-set", "--data", "--data-seed", "--seed", "--final-samples"}

// defaultsToFreeze reports whether a new run gets a frozen model, because nothing of its training is
// asked for and src is small.
func (t *Command) defaultsToFreeze(e *env.Env, c *train.Config, src task.Source) bool {
	return !t.Resume && t.Freeze == nil && t.Config == "" && t.Preset == "" && t.Seeds == "" && e.Ranks == nil && len(t.tuning) == 0 && c.SuitsFreeze(src)
}

// describeKept names numbers of c that are of the run of --config, and not of the data that the
// flags name, and a length that is left out; "": there are none.
func (t *Command) describeKept(c *train.Config) string {
	if t.Config == "" || c.Init != "" {
		return ""
	}
	if t.droppedLength != "" {
		return fmt.Sprintf("length %s of %s is left out: it is in other tokens (--task-set length=%s keeps it)", t.droppedLength, t.Config, t.droppedLength)
	}
	if t.Data == "" && t.TaskSet["data"] == "" {
		return ""
	}
	var kept []string
	if c.HasTokens() {
		kept = append(kept, "the tokens and the length in them (--vocabulary learns others)")
	}
	if c.Standardise && c.InputMean != nil {
		kept = append(kept, "mean and deviation of the input (--standardise computes others)")
	}
	if kept == nil {
		return ""
	}
	return t.Config + " gives " + strings.Join(kept, ", and ")
}

// taskFlag is a flag that sets the setting of the task with its name; value "": it is not given.
type taskFlag struct{ name, value string }

// taskFlags returns the flags of forecasts.
func (t *Command) taskFlags() []taskFlag {
	return []taskFlag{{"window", t.Window}, {"target", t.Target}, {"horizon", t.Horizon}}
}

// checkEffect returns an error for the first flag that has no effect on c, which has the
// values of all flags.
func (t *Command) checkEffect(c *train.Config) error {
	for _, f := range append(t.taskFlags(), taskFlag{"data", t.Data}, taskFlag{"vocabulary", t.Vocabulary}) {
		if set, ok := t.TaskSet[f.name]; ok && f.value != "" {
			return fmt.Errorf("--%s: is %s, but --task-set %s=%s is given, too", f.name, f.value, f.name, set)
		}
	}
	if t.FirstBatch != nil && *t.FirstBatch > 0 && (c.FirstContext == 0 || c.Model.Context > 0 && c.FirstContext >= c.Model.Context) {
		return fmt.Errorf("--first-batch: is %d, but --first-context is %d: all sequences have --context tokens", *t.FirstBatch, c.FirstContext)
	}
	if t.FirstContext != nil && c.Model.Context > 0 && c.FirstContext > c.Model.Context {
		return fmt.Errorf("--first-context: is %d, but --context is %d: all sequences have --context tokens", c.FirstContext, c.Model.Context)
	}
	if row, err := task.Lookup(c.Task); t.DataSeed != nil && err == nil && row.IsText() {
		return fmt.Errorf("--data-seed: is %d, but no sample of task %s is generated or drawn by it", c.DataSeed, c.Task)
	}
	if t.MinLR != nil && c.Schedule == train.ConstantSchedule && *t.MinLR != c.Rate {
		return fmt.Errorf("--min-lr: is %v, but --schedule %s stays at --lr %v", *t.MinLR, c.Schedule, c.Rate)
	}
	return nil
}

// settleGrowth fits the growth of the preset's samples to what is asked for, and leaves it
// out where that does not allow it: whole epochs, padding, or a task without samples that short.
func (t *Command) settleGrowth(c *train.Config) {
	row, err := task.Lookup(c.Task)
	if err != nil || row.IsText() || c.FirstContext == 0 || t.FirstContext != nil || t.FirstBatch != nil || t.Config != "" {
		return
	}
	grows := c.Epochs == 0 && !c.LRAQuirk
	if grows && (len(t.TaskSet) > 0 || t.Batch != nil) {
		src, err := c.OpenTask()
		if err != nil {
			return // which is said where the task is prepared
		}
		drawer, ok := src.(task.WindowDrawer)
		grows = ok && drawer.DrawWindow(new(task.Sample), c.FirstContext, rng.New(c.Seed), 0) == nil
		if c.Model.Context == 0 { // as many tokens in short samples as in whole ones
			c.FirstBatch = c.Batch
			for n := c.FirstContext; n < src.Spec().Length; n *= 2 {
				c.FirstBatch *= 2
			}
		}
	}
	if !grows {
		c.FirstContext, c.FirstBatch = 0, 0
	}
}

// locate makes the paths of c absolute: the run may be resumed from another folder.
// The name of a data set of the task is no path.
func (t *Command) locate(c *train.Config) error {
	row, err := task.Lookup(c.Task)
	if err != nil {
		return err
	}
	if len(row.DataSets) > 0 && (c.Folder == "" || t.Folder != "") {
		if c.Folder, err = t.Path(); err != nil {
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
	if data == "" || slices.Contains(row.DataSets, data) {
		return nil
	}
	path, err := filepath.Abs(data)
	c.TaskSet = flags.MergeSettings(c.TaskSet, map[string]string{"data": path})
	return err
}

// checkOutside returns an error if the run's folder out is a folder of the data, or lies below one,
// and its files would be data: of a text, or of a class. Tasks follow links, leave out names that
// begin with a dot, and of classes what lies beside the folder train.
func checkOutside(c *train.Config, out string) error {
	data := c.TaskSet["data"]
	row, err := task.Lookup(c.Task)
	if err != nil || !row.IsText() && !readsClassFolders(c) || !filepath.IsAbs(data) { // none, or the name of a data set
		return nil
	}
	if info, err := os.Stat(data); err != nil || !info.IsDir() {
		return nil // the task says so
	}
	path, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	path = resolveLinks(path)
	info, err := os.Stat(filepath.Join(data, "train"))
	isDivided := err == nil && info.IsDir() && !row.IsText()
	holder := ""
	_ = task.WalkFolders(data, func(folder, target string) { // the task says which folder cannot be read
		below, err := filepath.Rel(target, path)
		if err != nil || !filepath.IsLocal(below) {
			return
		}
		place, err := filepath.Rel(data, filepath.Join(folder, below))
		if err != nil {
			return
		}
		names := strings.Split(place, string(filepath.Separator))
		isHidden := slices.ContainsFunc(names, func(name string) bool { return name != "." && strings.HasPrefix(name, ".") })
		isBeside := isDivided && !slices.Contains([]string{"train", "valid", "val", "validation", "test"}, strings.ToLower(names[0]))
		if holder == "" && !isHidden && !isBeside {
			holder = folder
		}
	})
	switch holder {
	case "":
		return nil
	case data:
		return env.InputErrorf("--out: %s lies in the folder of --data %s; name a folder outside", out, data)
	}
	return env.InputErrorf("--out: %s lies in %s, a folder of --data; name a folder outside", out, holder)
}

// readsClassFolders reports whether the task reads a folder of data as a folder for each class.
func readsClassFolders(c *train.Config) bool {
	ask := c.TaskSet["ask"]
	return slices.Contains([]string{"file", "picture", "wav"}, c.Task) || c.Task == "series" && (ask == "" || ask == "class")
}

// resolveLinks returns an absolute path without symbolic links, also of a file or folder that
// does not exist yet.
func resolveLinks(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		return target
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolveLinks(parent), filepath.Base(path))
}
