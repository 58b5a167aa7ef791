package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train/data"
)

// Trainer is a run in progress.
type Trainer struct {
	job      Job
	config   Config
	recorded Config // as recorded in the folder
	dir      string // "": no files are written
	source   data.Source
	text     *task.Text        // nil if the task is not a text
	ofBytes  bool              // the user's own data has bytes as tokens
	windows  data.WindowDrawer // nil if the length of samples is fixed
	digest   string
	sums     *task.FileSums // checksums of the files that the data consists of
	classes  []string       // names of the classes; nil: none
	columns  []string       // names of the channels; nil: none
	scales   *task.Scales
	headFit  *HeadFit // how the head of a frozen model was fitted; nil: not yet, or none is
	model    *model.Model
	adapters *adapters // nil: all weights are trained
	trained  *param.Set
	optim    *optim.AdamW
	schedule optim.Schedule
	metrics  *metrics
	lock     *lock.Lock // of the folder, on rank 0

	orderKey   rng.Key // of the data order
	dropoutKey rng.Key // of dropout
	redrawKey  rng.Key // of redrawn features of mechanisms
	groups     lengthGroups
	collector  collector
	batches    []packedBatch // passes of the update
	tree       comm.Tree     // adds the gradients of several passes
	flatGrads  []float32     // all gradients in one list, a leaf of tree
	rankCounts [3]float64    // targets, positions and bytes in this rank's passes
	passLosses []float64     // loss and auxiliary loss of each pass of this rank
	singleRank [1][]float64  // result of gatherRanks without ranks
	constants  []float32     // numbers that the mechanisms had drawn before the update
	step       int
	row        Step // of the last update
	needsRow   bool // the last update is not in the metrics yet
	needsLook  bool // the last update may call for an evaluation that has not been made
	needsSave  bool // the last update may call for a checkpoint that has not been written
	savedStep  int  // update of the latest checkpoint; -1: none
	elapsed    time.Duration

	detail      Detail           // breakdown of the last evaluation
	best        *checkpoint.Best // best validation so far; nil: none
	bestWeights [][]float32      // weights at best, if the run has no folder
}

// Observer holds callbacks of a run. Fields may be nil.
type Observer struct {
	Step func(Step)
	Eval func(Eval)
	Save func(checkpoint string) // folder of the checkpoint
	// Progress is called while an update runs in segments, with the number of positions done.
	Progress func(done, all int)
}

// ErrRunExists is returned by New for a folder that contains a run.
var ErrRunExists = errors.New("holds a run already")

// ErrDiverged is wrapped by the error of a run whose loss or gradient is not finite.
var ErrDiverged = errors.New("the run diverged")

// wrapDiverged adds the step and ErrDiverged to an error about non-finite numbers.
func wrapDiverged(step int, err error) error {
	if errors.Is(err, attention.ErrNonFinite) {
		return fmt.Errorf("step %d: %w: %w", step, ErrDiverged, err)
	}
	return err
}

// Streams of random numbers, derived from the seed of a run.
const (
	streamWeights = iota
	streamOrder
	streamMasks
	streamRedraws
	streamAdapters
)

// New returns the trainer of a new run in the folder dir, which it creates. With dir "" no files
// are written. src is the data: a task that OpenTask has opened, or your own. Train makes the
// updates. The trainer owns the folder until Close. New returns ErrRunExists if the folder has a
// run, a farfield.ErrInUse if it has another owner, and an error for the first invalid field of c.
func New(c Config, src data.Source, dir string) (*Trainer, error) {
	return Job{}.New(c, src, dir)
}

// New is the function New for the ranks of a job. Only rank 0 uses the folder. If one rank has an
// error, every rank returns one.
func (j Job) New(c Config, src data.Source, dir string) (*Trainer, error) {
	t, err := func() (*Trainer, error) {
		c, prepared, err := c.PrepareTask(src)
		if err == nil {
			err = task.CheckTrainingClasses(src)
		}
		if err == nil {
			c, err = j.splitPasses(c)
		}
		if err != nil {
			return nil, err
		}
		if err := c.checkMemory(); err != nil {
			return nil, err
		}
		m, err := c.newModel(src)
		if err != nil {
			return nil, err
		}
		return j.newTrainer(c, src, prepared, dir, m)
	}()
	if err = j.agreeOnRun(t, err); err != nil {
		return nil, err
	}
	if err = comm.ShareError(j.Ranks, t.createFolder()); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// checkMemory returns an error if the weights, or what the layers keep of a pass, need more memory than is free. Both
// needs are lower bounds: a training that passes may still be too large.
func (c *Config) checkMemory() error {
	m := &c.Model
	copies := 4.0 // weight, gradient and two moments
	if c.Freeze || c.Adapters > 0 {
		copies = 1
	}
	if err := machine.Check(fmt.Sprintf("training %d weights", m.Params()), 4*copies*float64(m.Params())); err != nil {
		return fieldErrorf("{Model}: {Width} %d with %d layers: %w", m.Width, m.Layers, err)
	}
	if c.Freeze {
		return nil
	}
	tokens, kind := m.Context, "{Context}"
	if c.Segment > 0 {
		tokens, kind = min(tokens, c.Segment), "{Segment}"
	}
	// A layer keeps its input, its output of attention and one hidden row for each token.
	hidden := m.Hidden
	if hidden == 0 {
		hidden = 4 * m.Width
	}
	kept := 4 * float64(c.Batch) * float64(tokens) * float64(m.Layers) * float64(2*m.Width+hidden)
	if err := machine.Check("a pass", kept); err != nil {
		return fieldErrorf("{Batch}: %d samples of %d tokens ("+kind+"): %w", c.Batch, tokens, err)
	}
	return nil
}

// newModel returns the model before its first update.
func (c *Config) newModel(src data.Source) (*model.Model, error) {
	m, err := model.New(c.Model, rng.New(c.Seed).Fold(streamWeights))
	if err != nil || c.Init == "" {
		return m, err
	}
	var classes []string
	if named, ok := src.(data.ClassNamer); ok {
		classes = named.ClassNames()
	}
	return m, c.keepStart(m, classes)
}

// createFolder makes the folder of the run and writes its configuration.
func (t *Trainer) createFolder() error {
	if !t.isWriter() {
		return nil
	}
	if err := t.checkNoRun(); err != nil {
		return err
	}
	if err := atomicfile.MakeFolder(t.dir); err != nil {
		return err
	}
	var err error
	if t.lock, err = lock.LockFolder(t.dir); err != nil {
		return err
	}
	if err := t.checkNoRun(); err != nil { // another owner may have started a run meanwhile
		return err
	}
	if err := t.describeStart(); err != nil {
		return err
	}
	if err := t.writeLabels(t.dir); err != nil {
		return err
	}
	if err := saveTokens(t.dir, t.config.tokens); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(filepath.Join(t.dir, startFile), t.describeRunStart()); err != nil {
		return err
	}
	if err := t.writeFileSums(); err != nil {
		return err
	}
	// The configuration makes the folder a run, which Resume continues.
	if err := atomicfile.WriteJSON(filepath.Join(t.dir, configFile), t.config); err != nil {
		return err
	}
	t.metrics, err = openMetrics(t.dir, &checkpoint.Manifest{})
	return err
}

// checkNoRun returns ErrRunExists if the folder contains a run, or the rest of one. It
// returns an error for a file that would be read as a part of the new run.
func (t *Trainer) checkNoRun() error {
	for _, name := range []string{configFile, checkpointsFolder, metricsFile} {
		switch _, err := os.Stat(filepath.Join(t.dir, name)); {
		case err == nil:
			return fmt.Errorf("%s: %w: it has %s", t.dir, ErrRunExists, name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	words := t.config.tokens != nil && t.config.tokens.Vocabulary.Tokenizer() != nil
	for _, f := range []struct {
		name      string
		isWritten bool
	}{
		{classesFile, len(t.classes) > 0},
		{columnsFile, len(t.columns) > 0},
		{scalesFile, t.scales != nil},
		{tokenizerFile, words},
		{publishedFolder, t.config.publishedStart() != ""},
	} {
		if _, err := os.Stat(filepath.Join(t.dir, f.name)); !f.isWritten && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: has %s, which the run has not; remove it, or choose another folder", t.dir, f.name)
		}
	}
	return nil
}

// newTrainer returns a trainer before its first update. prepared is the task src as the
// model reads it.
func (j Job) newTrainer(c Config, src, prepared data.Source, dir string, m *model.Model) (*Trainer, error) {
	if c.Segment > 0 {
		if err := m.CanSegment(c.Segment); err != nil {
			return nil, err
		}
	}
	switch {
	case j.Divide != "" && j.Divide != DivideBatch && j.Divide != DivideSequence:
		return nil, fieldErrorf("{Divide}: %q is neither %s nor %s", j.Divide, DivideBatch, DivideSequence)
	case !j.isSequenceParallel():
	case c.Segment > 0:
		return nil, fieldErrorf("{Segment}: %d, but ranks that divide a sequence take their part of it at once", c.Segment)
	default:
		if err := m.CanDivide(); err != nil {
			return nil, err
		}
	}
	if n := j.Ranks.Size(); c.Freeze && n > 1 {
		return nil, fieldErrorf("{Freeze}: %d ranks, a frozen model needs one process", n)
	}
	var own *adapters
	trained := m.Params()
	var err error
	if c.Freeze {
		if trained, err = headParams(m); err != nil {
			return nil, err
		}
	}
	if c.Adapters > 0 {
		if own, err = newAdapters(m, c.Adapters, rng.New(c.Seed).Fold(streamAdapters)); err != nil {
			return nil, err
		}
		trained = own.trained
	}
	schedule, err := c.buildSchedule()
	t := &Trainer{
		job: j, config: c, recorded: c, dir: dir, source: prepared, model: m, savedStep: -1,
		adapters:   own,
		trained:    trained,
		optim:      optim.NewAdamW(trained),
		schedule:   schedule,
		orderKey:   rng.New(c.Seed).Fold(streamOrder),
		dropoutKey: rng.New(c.Seed).Fold(streamMasks),
		redrawKey:  rng.New(c.Seed).Fold(streamRedraws),
		collector:  collector{spec: prepared.Spec()},
		batches:    make([]packedBatch, c.Accumulate),
	}
	t.text, _ = prepared.(*task.Text)
	if _, ok := prepared.(data.WindowSource); ok || c.FirstContext > 0 {
		t.windows = prepared.(data.WindowDrawer)
	}
	if c.GroupLengths {
		t.groups.lengths, _ = prepared.(data.LengthReporter)
		t.groups.batch = c.Batch
	}
	t.ofBytes = tokensAreBytes(src)
	t.classes, t.columns = labelNames(src)
	if scaled, ok := src.(task.ScaledSource); ok {
		t.scales = scaled.Scales()
	}
	t.optim.Beta1, t.optim.Beta2, t.optim.Decay, t.optim.Rectified = c.Beta1, c.Beta2, c.Decay, c.Optimizer == RAdam
	if err == nil && (dir != "" || j.Ranks != nil) {
		t.sums = readFileSums(dir)
		t.digest, err = task.Digest(src, t.sums)
	}
	return t, err
}

// writeLabels writes names of classes and columns, and scales, to the folder of the run or
// of a checkpoint.
func (t *Trainer) writeLabels(dir string) error {
	if err := writeNames(filepath.Join(dir, classesFile), t.classes); err != nil {
		return err
	}
	if err := writeNames(filepath.Join(dir, columnsFile), t.columns); err != nil {
		return err
	}
	if t.scales == nil {
		return nil
	}
	return writeScales(dir, t.scales)
}

// Config returns the complete configuration.
func (t *Trainer) Config() Config { return t.config }

// Model returns the model. Train changes it, and leaves the weights in it that were scored last.
func (t *Trainer) Model() *model.Model { return t.model }

// Source returns the task as the model reads it.
func (t *Trainer) Source() data.Source { return t.source }

// StepsDone returns the number of updates made.
func (t *Trainer) StepsDone() int { return t.step }

// HasEnded reports whether Train makes no further update.
func (t *Trainer) HasEnded() bool {
	return t.step >= t.config.Steps || t.best.IsExhausted(t.config.Patience)
}

// BestStep returns the number of updates before the best validation score, or 0 if the run does not
// select weights by validation.
func (t *Trainer) BestStep() int {
	if t.best == nil {
		return 0
	}
	return t.best.Step
}

// Detail returns the breakdown of the last score.
func (t *Trainer) Detail() Detail { return t.detail }

// Close closes the files of the run and releases its folder. A second call does nothing. Close
// returns an error if a file cannot be closed. After Close, Train no longer writes into the folder.
func (t *Trainer) Close() error {
	err := t.metrics.close()
	t.metrics = nil
	t.lock.Release()
	return err
}

// Train makes the remaining updates, evaluates and saves as configured, and returns the final
// score, on the split by which the task is judged. If the run selects weights by validation, the
// best weights are scored, otherwise the last ones. When ctx ends on one rank, Train saves the
// state before the unfinished update and returns the error of ctx on all ranks. It does the same
// for an error of a training sample. It returns ErrDiverged if a loss or a gradient is not finite,
// and the first error of the files. After an error, the next call first evaluates and saves as the
// last update requires. After Close, Train returns an error if the run has a folder.
func (t *Trainer) Train(ctx context.Context, o Observer) (Score, error) {
	var closed error
	if t.isWriter() && t.metrics == nil {
		closed = fmt.Errorf("%s: the trainer is closed", t.dir)
	}
	if err := comm.ShareError(t.job.Ranks, closed); err != nil {
		return Score{}, err
	}
	c := &t.config
	spec := t.source.Spec()
	for t.needsSave || !t.HasEnded() {
		if !t.needsSave {
			update := t.runUpdate
			if c.Freeze {
				update = t.fitHead
			}
			if err := update(ctx, o); err != nil {
				switch { // the weights precede the update
				case isCanceled(err):
					if failed := t.saveCheckpoint(o); failed != nil {
						err = failed
					}
				case errors.As(err, new(batchError)):
					err = errors.Join(err, t.saveCheckpoint(o))
				}
				return Score{}, err
			}
		}
		if err := t.finishUpdate(ctx, o); err != nil {
			return Score{}, err
		}
	}
	if c.needsBestWeights(spec) {
		if err := t.restoreBest(); err != nil {
			return Score{}, err
		}
	}
	what := EvalWhole
	if c.FinalSamples > 0 || spec.Count[spec.JudgedSplit()] == data.Endless {
		what = EvalPart
	}
	score, err := t.evaluateSplit(ctx, what, spec.JudgedSplit(), c.FinalSamples, o)
	if err != nil {
		return score, err
	}
	return score, comm.ShareError(t.job.Ranks, t.dropSpare())
}

// dropSpare removes what a finished run needs no more: the checkpoint before the last. The last
// stays with its moments, from which the run can be lengthened, and the best. If these are of one
// update, they share the file of the weights where the file system can.
func (t *Trainer) dropSpare() error {
	if !t.isWriter() || t.dir == "" {
		return nil
	}
	last, err := latestCheckpoint(t.dir)
	if err != nil {
		return err
	}
	all, name := filepath.Split(last)
	if t.best.IsAt(t.step) {
		weights, temp := filepath.Join(all, bestName, model.WeightsFile), filepath.Join(all, tempPrefix+bestName+"-"+model.WeightsFile)
		if os.Remove(temp); os.Link(filepath.Join(last, model.WeightsFile), temp) == nil {
			if err := atomicfile.Rename(temp, weights); err != nil {
				return err
			}
		}
	}
	return removeCheckpoints(all, func(other string) bool { return checkpoint.IsStepName(other) && other != name })
}

// finishUpdate records an update, and evaluates and saves after it as configured. After an
// error the next call does what is left.
func (t *Trainer) finishUpdate(ctx context.Context, o Observer) error {
	if t.needsRow {
		if err := comm.ShareError(t.job.Ranks, t.metrics.addStep(&t.row, t.text != nil)); err != nil {
			return err
		}
		if t.needsRow = false; o.Step != nil {
			o.Step(t.row)
		}
	}
	c, spec := &t.config, t.source.Spec()
	selects, last := c.needsBestWeights(spec), t.step == c.plannedSteps(t.step-1)
	if t.needsLook && (isDue(c.EvalEvery, t.step) && !last && spec.Count[data.Valid] != 0 || selects && last) {
		// Not interrupted, so that the metrics have the same lines
		// wherever the run stops.
		score, err := t.evaluateSplit(context.WithoutCancel(ctx), EvalLook, data.Valid, c.EvalSamples, o)
		if err != nil {
			return err
		}
		if selects {
			t.updateBest(score)
		}
	}
	if row, ok := t.lookAtHeldOut(); ok && t.needsLook {
		if err := comm.ShareError(t.job.Ranks, t.metrics.addEval(&row)); err != nil {
			return err
		}
		if o.Eval != nil {
			o.Eval(row)
		}
	}
	t.needsLook = false
	stop := t.job.syncError(ctx.Err())
	if stop != nil && !isCanceled(stop) {
		return stop
	}
	if isDue(c.SaveEvery, t.step) || last || t.best.IsExhausted(c.Patience) || stop != nil || t.best.IsAt(t.step) {
		if err := t.saveCheckpoint(o); err != nil {
			return err
		}
	}
	t.needsSave = false
	return stop
}

// isDue reports whether step is a multiple of n; n = 0 is never due.
func isDue(n, step int) bool { return n > 0 && step%n == 0 }

// evaluateSplit scores limit samples of a split, or all if limit is 0, and records the
// score.
func (t *Trainer) evaluateSplit(ctx context.Context, what string, split data.Split, limit int, o Observer) (Score, error) {
	start := time.Now()
	score, detail, err := t.job.Evaluate(ctx, t.model, t.source, split, limit)
	if err != nil {
		return score, wrapDiverged(t.step, err)
	}
	t.detail = detail
	t.elapsed += time.Since(start)
	row := Eval{Step: t.step, Eval: what, Split: split.String(), Score: score, Elapsed: t.elapsed.Seconds()}
	if err := comm.ShareError(t.job.Ranks, t.metrics.addEval(&row)); err != nil {
		return score, err
	}
	if o.Eval != nil {
		o.Eval(row)
	}
	return score, nil
}
