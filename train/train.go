// Package train teaches models: the loop, its measurements, and checkpoints
// from which a run continues as if it had never stopped.
//
// A run is a folder. Each of its files is whole or not there at any moment, so
// that a run may be killed; what it loses are the updates since the last
// checkpoint, and it repeats them to the same bits:
//
//	config.json          what was asked for, complete: it repeats the run
//	metrics.jsonl        one line for each update and each evaluation
//	events.out.tfevents… the same for TensorBoard
//	ckpt/step-00000200/  the last two checkpoints: model, vocabulary, optimiser
//	ckpt/latest          which of them to go on from
//	ckpt/best/           the model that did best on the validation part, of a task with
//	                     a part to be judged by, or of a run that may end early
package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/task"
)

// Trainer is a run in progress.
type Trainer struct {
	job      Job
	config   Config
	dir      string // "": nothing is kept
	source   task.Source
	text     *task.Text // nil: the task is no text
	windows  task.Windowed
	digest   string
	model    *model.Model[float32]
	optim    *optim.AdamW[float32]
	schedule optim.Schedule
	metrics  *metrics

	order   rng.Key // of the data
	masks   rng.Key // of dropout
	redraws rng.Key // of what mechanisms draw anew
	collect collector
	batches []packed           // of an update
	tree    comm.Tree[float32] // of the passes' gradients, where there is more than one
	grads   []float32          // all gradients, for the tree
	counts  [3]float64         // of this rank's passes
	lost    []float64          // by them
	alone   [1][]float64       // what is gathered without ranks
	step    int
	elapsed time.Duration

	best    *best       // nil: none yet
	weights [][]float32 // of the best, of a run that keeps nothing
}

// Observer is told what happens. Fields may be nil.
type Observer struct {
	Step func(Step)
	Eval func(Eval)
	Save func(checkpoint string) // its folder
	// Part is told how many positions of the passes of an update in segments are done.
	Part func(done, all int)
}

// ErrDiverged is in the error of a run whose loss or gradient is no number.
var ErrDiverged = errors.New("the run diverged")

// Streams of random numbers that a run's seed is the key of.
const (
	streamWeights = iota
	streamOrder
	streamMasks
	streamRedraws
)

// New starts a run on the task src in the folder dir, which is made; "" keeps
// nothing. A folder that holds a run already is an error, and so is the first field
// of c that is not possible.
func New(c Config, src task.Source, dir string) (*Trainer, error) {
	return Job{}.New(c, src, dir)
}

// New is the function New for the ranks of a job. Rank 0 alone has to do with the
// folder.
func (j Job) New(c Config, src task.Source, dir string) (*Trainer, error) {
	t, err := func() (*Trainer, error) {
		c, err := j.spread(c)
		if err != nil {
			return nil, err
		}
		c, prepared, err := c.Prepare(src)
		if err != nil {
			return nil, err
		}
		m, err := model.New[float32](c.Model, rng.New(c.Seed).Fold(streamWeights))
		if err != nil {
			return nil, err
		}
		return j.newTrainer(c, src, prepared, dir, m)
	}()
	if err = j.agree(t, err); err != nil {
		return nil, err
	}
	if err = comm.Together(j.Ranks, t.create()); err != nil {
		return nil, err
	}
	return t, nil
}

// create makes the folder of the run.
func (t *Trainer) create() error {
	if !t.writes() {
		return nil
	}
	path := filepath.Join(t.dir, configFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: holds a run already", t.dir)
	}
	if err := os.MkdirAll(t.dir, 0o777); err != nil {
		return err
	}
	if err := writeJSON(path, t.config); err != nil {
		return err
	}
	return t.open(manifest{})
}

// newTrainer returns a trainer that has made no updates, of src, which the model sees as
// prepared.
func (j Job) newTrainer(c Config, src, prepared task.Source, dir string, m *model.Model[float32]) (*Trainer, error) {
	if c.Segment > 0 {
		if err := m.CanSegment(c.Segment); err != nil {
			return nil, err
		}
	}
	switch {
	case j.Divide != "" && j.Divide != Batch && j.Divide != Sequence:
		return nil, fmt.Errorf("divide: %q is neither %s nor %s", j.Divide, Batch, Sequence)
	case !j.sequence():
	case c.Segment > 0:
		return nil, fmt.Errorf("segment: %d, but ranks that divide a sequence take their part of it at once", c.Segment)
	default:
		if err := m.CanDivide(); err != nil {
			return nil, err
		}
	}
	schedule, err := c.schedule()
	t := &Trainer{
		job: j, config: c, dir: dir, source: prepared, model: m,
		optim:    optim.NewAdamW(m.Params()),
		schedule: schedule,
		order:    rng.New(c.Seed).Fold(streamOrder),
		masks:    rng.New(c.Seed).Fold(streamMasks),
		redraws:  rng.New(c.Seed).Fold(streamRedraws),
		collect:  collector{spec: prepared.Spec()},
		batches:  make([]packed, c.Accumulate),
	}
	t.text, _ = prepared.(*task.Text)
	t.windows, _ = prepared.(task.Windowed)
	t.optim.Beta1, t.optim.Beta2, t.optim.Decay, t.optim.Rectified = c.Beta1, c.Beta2, c.Decay, c.Optimizer == RAdam
	if err == nil && (dir != "" || j.Ranks != nil) {
		t.digest, err = task.Digest(src)
	}
	return t, err
}

// open opens the metrics, of which what m says is kept.
func (t *Trainer) open(m manifest) (err error) {
	t.metrics, err = openMetrics(t.dir, m.Metrics, m.Events)
	return err
}

// RunConfig returns the configuration of the run in the folder dir.
func RunConfig(dir string) (Config, error) {
	return ReadConfig(filepath.Join(dir, configFile), Config{})
}

// Resume continues the run in the folder dir after its latest checkpoint, or
// from the beginning if it was stopped before the first. src is what the run's
// configuration opens; if it is not the same as before, that is an error.
func Resume(src task.Source, dir string) (*Trainer, error) {
	return Job{}.Resume(src, dir)
}

// kept is what a run folder tells of a run that goes on.
type kept struct {
	Config     Config
	Checkpoint string // "": none yet
	Manifest   manifest
}

func readKept(dir string) (k kept, err error) {
	if k.Config, err = RunConfig(dir); err != nil {
		return k, err
	}
	k.Checkpoint, err = latest(dir)
	if errors.Is(err, ErrNoCheckpoint) {
		return k, nil
	}
	if err == nil {
		k.Manifest, err = readManifest(k.Checkpoint)
	}
	return k, err
}

// Resume is the function Resume for the ranks of a job, which may be others, and
// another number of them, than before. Rank 0 alone has to do with the folder.
func (j Job) Resume(src task.Source, dir string) (*Trainer, error) {
	k, err := comm.Tell(j.Ranks, func() (kept, error) { return readKept(dir) })
	if err != nil {
		return nil, err
	}
	t, err := func() (*Trainer, error) {
		c, prepared, err := k.Config.Prepare(src)
		if err == nil {
			err = j.fits(&c)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, configFile), err)
		}
		var m *model.Model[float32]
		if k.Checkpoint != "" && j.first() {
			m, err = model.Load[float32](k.Checkpoint)
		} else {
			m, err = model.New[float32](c.Model, rng.New(c.Seed).Fold(streamWeights))
		}
		if err != nil {
			return nil, err
		}
		return j.newTrainer(c, src, prepared, dir, m)
	}()
	if err = j.agree(t, err); err != nil {
		return nil, err
	}
	if err = comm.Together(j.Ranks, t.goOn(&k)); err != nil {
		return nil, err
	}
	return t, t.share()
}

// goOn makes t what it was at a checkpoint, and opens its files.
func (t *Trainer) goOn(k *kept) error {
	m := &k.Manifest
	t.step, t.elapsed, t.best = m.Step, time.Duration(m.Elapsed*float64(time.Second)), m.Best
	if k.Checkpoint != "" {
		if m.Data != t.digest {
			what := "task " + t.config.Task
			if t.text != nil {
				what = t.text.Corpus.Name
			}
			return fmt.Errorf("%s: is not the data that the run began with: its SHA-256 is %.12s…, was %.12s…", what, t.digest, m.Data)
		}
		if err := sameModel(t.model.Config(), t.config.Model); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(t.dir, configFile), err)
		}
		if t.job.first() {
			if err := readOptim(filepath.Join(k.Checkpoint, optimFile), t.model.Params(), t.optim, m.Step); err != nil {
				return err
			}
		} else if err := t.optim.Restore(int64(m.Step)); err != nil {
			return err
		}
	}
	if !t.writes() {
		return nil
	}
	return t.open(*m)
}

// sameModel reports a configuration that is not the checkpoint's.
func sameModel(saved, asked model.Config) error {
	a, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	b, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	if string(a) != string(b) {
		return fmt.Errorf("model is %s, the checkpoint's is %s", b, a)
	}
	return nil
}

// Config returns the configuration, complete.
func (t *Trainer) Config() Config { return t.config }

// Model returns the model, which Train changes, and leaves with the weights that it
// was judged by.
func (t *Trainer) Model() *model.Model[float32] { return t.model }

// Source returns the task as the model sees it.
func (t *Trainer) Source() task.Source { return t.source }

// Done returns the number of updates made.
func (t *Trainer) Done() int { return t.step }

// Best returns the number of updates after which the validation part came out best,
// 0 if none was chosen by it.
func (t *Trainer) Best() int {
	if t.best == nil {
		return 0
	}
	return t.best.Step
}

// Close closes the run's files.
func (t *Trainer) Close() error { return t.metrics.close() }

// Train makes the updates that are left, evaluates and saves as configured, and
// returns the score on the part that the task is judged by: of the weights that did
// best on the validation part, if that is another or the run may end early, or of
// the last. When ctx ends, of one rank or of all, it finishes the update that it is at,
// saves, and returns the error of ctx on all ranks.
func (t *Trainer) Train(ctx context.Context, o Observer) (Score, error) {
	c := &t.config
	spec := t.source.Spec()
	selects := c.selects(spec)
	for t.step < c.Steps && !t.exhausted() {
		if err := t.update(ctx, o); err != nil {
			if isStop(err) {
				err = errors.Join(err, t.save(o)) // the weights are as before the update
			}
			return Score{}, err
		}
		last := t.step == c.Steps
		if every(c.EvalEvery, t.step) && !last && spec.Count[task.Valid] != 0 || selects && last {
			// Too short to be interrupted, so that no line of the metrics is
			// missing whenever the run stops.
			score, err := t.evaluate(context.WithoutCancel(ctx), Look, task.Valid, c.EvalSamples, o)
			if err == nil && selects {
				err = comm.Together(t.job.Ranks, t.choose(score))
			}
			if err != nil {
				return Score{}, err
			}
		}
		stop := t.job.meet(ctx.Err())
		if stop != nil && !isStop(stop) {
			return Score{}, stop
		}
		if every(c.SaveEvery, t.step) || last || t.exhausted() || stop != nil {
			if err := t.save(o); err != nil {
				return Score{}, err
			}
		}
		if stop != nil {
			return Score{}, stop
		}
	}
	if selects {
		if err := t.restore(); err != nil {
			return Score{}, err
		}
	}
	what := Whole
	if c.FinalSamples > 0 || spec.Count[spec.Judged()] == task.Endless {
		what = Part
	}
	return t.evaluate(ctx, what, spec.Judged(), c.FinalSamples, o)
}

// exhausted reports whether patience is at its end.
func (t *Trainer) exhausted() bool {
	return t.config.Patience > 0 && t.best != nil && t.best.Since >= t.config.Patience
}

// every reports whether step is a multiple of n, which may be 0.
func every(n, step int) bool { return n > 0 && step%n == 0 }

// update makes one update. One in segments ends with ctx, and then has changed nothing.
func (t *Trainer) update(ctx context.Context, o Observer) error {
	start := time.Now()
	c := &t.config
	err := t.fill()
	if err == nil {
		err = t.model.Redraw(t.redraws, t.step)
	}
	if err = comm.Together(t.job.Ranks, err); err != nil {
		return err
	}
	counted, tokens, bytes, err := t.asked()
	if err != nil {
		return err
	}
	if counted == 0 {
		return comm.Together(t.job.Ranks, fmt.Errorf("step %d: nothing is asked of any sample", t.step+1))
	}
	lost, err := t.learn(ctx, counted, o)
	if err = t.job.meet(err); err != nil {
		return err
	}
	loss, aux, err := t.sum(lost)
	if err != nil {
		return err
	}
	norm := optim.GradNorm(t.model.Params())
	if x := loss + aux + norm; math.IsNaN(x) || math.IsInf(x, 0) {
		return comm.Together(t.job.Ranks, fmt.Errorf("step %d: %w: loss is %v, the norm of the gradient %v", t.step+1, ErrDiverged, loss, norm))
	}
	rate := t.schedule.Rate(t.step)
	t.optim.Step(rate, optim.Clip(norm, c.Clip))
	t.step++
	spent := time.Since(start)
	t.elapsed += spent
	row := Step{
		Step: t.step, Loss: loss, Aux: aux, Rate: rate, GradNorm: norm,
		Speed: float64(tokens) / spent.Seconds(), Elapsed: t.elapsed.Seconds(),
	}
	if bytes > 0 {
		row.Bits = perByte(loss, counted, bytes)
	}
	if err := comm.Together(t.job.Ranks, t.metrics.step(&row)); err != nil {
		return err
	}
	if o.Step != nil {
		o.Step(row)
	}
	return nil
}

// asked returns of the whole update how many targets are counted, positions there are,
// and bytes of text the targets stand for.
func (t *Trainer) asked() (counted, tokens, bytes int64, err error) {
	own := &t.counts // whole numbers far below 2⁵³
	clear(own[:])
	for i, last := t.part(t.job.Ranks.Rank()); i < last; i++ {
		b := &t.batches[i]
		own[0] += float64(b.counted)
		if b.counted > 0 {
			own[1] += float64(b.B * b.N)
			if t.text != nil {
				own[2] += float64(t.text.Vocab.Bytes(b.Targets))
			}
		}
	}
	all, err := t.gather(own[:])
	if t.job.sequence() && err == nil {
		all = all[:1] // every rank has all of every pass
	}
	for _, x := range all {
		counted, tokens, bytes = counted+int64(x[0]), tokens+int64(x[1]), bytes+int64(x[2])
	}
	return counted, tokens, bytes, err
}

// gather returns own of every rank.
func (t *Trainer) gather(own []float64) ([][]float64, error) {
	if t.job.Ranks == nil {
		t.alone[0] = own
		return t.alone[:], nil
	}
	return comm.AllGather(t.job.Ranks, own)
}

// learn makes the passes of this rank, and returns of each its share of the loss and of
// what mechanisms lose of their own. The mean over all targets is the mean of the
// passes' means, each with its share of the targets. Where there is more than one pass,
// each has its gradient alone, for the tree.
func (t *Trainer) learn(ctx context.Context, counted int64, o Observer) (lost []float64, err error) {
	params := t.model.Params()
	params.ZeroGrad()
	first, last := t.part(t.job.Ranks.Rank())
	t.tree.Reset(first)
	t.lost = t.lost[:0]
	for i := first; i < last; i++ {
		b := &t.batches[i]
		var loss, aux float64
		if b.counted > 0 {
			share := float64(b.counted) / float64(counted)
			if loss, err = t.pass(ctx, &b.Batch, float32(share), o); err != nil {
				return nil, err
			}
			loss, aux = share*loss, share*t.model.Aux()
		}
		t.lost = append(t.lost, loss, aux)
		if len(t.batches) == 1 || t.job.sequence() {
			continue
		}
		t.grads = t.grads[:0]
		for _, p := range params.All() {
			t.grads = append(t.grads, p.Grad...)
		}
		t.tree.Add(t.grads)
		params.ZeroGrad()
	}
	return t.lost, nil
}

// sum adds up what all passes of the update have lost, and their gradients.
func (t *Trainer) sum(lost []float64) (loss, aux float64, err error) {
	all, err := t.gather(lost)
	if err != nil {
		return 0, 0, err
	}
	for _, own := range all {
		for ; len(own) > 0; own = own[2:] {
			loss += own[0]
			aux += own[1]
		}
	}
	if t.job.sequence() {
		for _, p := range t.model.Params().All() {
			if err := comm.Sum(t.job.Ranks, p.Grad); err != nil {
				return 0, 0, err
			}
		}
		return loss, aux, nil
	}
	if len(t.batches) == 1 {
		return loss, aux, nil
	}
	if err := t.tree.Sum(t.job.Ranks, t.grads, t.part); err != nil {
		return 0, 0, err
	}
	at := 0
	for _, p := range t.model.Params().All() {
		at += copy(p.Grad, t.grads[at:])
	}
	return loss, aux, nil
}

// pass adds share times the gradient of the mean loss of b, which it returns.
func (t *Trainer) pass(ctx context.Context, b *model.Batch, share float32, o Observer) (loss float64, err error) {
	if t.job.sequence() {
		return t.model.TrainDivided(t.job.Ranks, b, share)
	}
	if size := t.config.Segment; size > 0 && b.N > size {
		return t.model.TrainSegments(b, size, share, func(done, all int) error {
			if o.Part != nil {
				o.Part(done, all)
			}
			return ctx.Err()
		})
	}
	if loss, err = t.model.Forward(b); err != nil {
		return 0, err
	}
	return loss, t.model.Backward(share)
}

// fill sets this rank's batches of the next update: windows from places of their own, or the
// samples that come next.
func (t *Trainer) fill() error {
	c := &t.config
	size, length := c.Shape(t.step)
	key := t.order.Fold(uint64(t.step))
	for i, last := t.part(t.job.Ranks.Rank()); i < last; i++ {
		samples := t.collect.take(size)
		for j := range samples {
			n, s := i*size+j, &samples[j]
			var err error
			if t.windows != nil {
				err = t.windows.Draw(s, length, key, uint64(n))
			} else {
				err = t.source.Sample(s, task.Train, t.number(t.step*size*len(t.batches)+n))
			}
			if err != nil {
				return err
			}
		}
		b := &t.batches[i]
		t.collect.pack(b, samples)
		if b.Key = t.masks.Fold(uint64(t.step)); len(t.batches) > 1 {
			b.Key = b.Key.Fold(uint64(i))
		}
	}
	return nil
}

// number returns which sample to learn from comes in place i of the run: every one
// once an epoch, in an order of its own; of samples without end those that follow
// one that the seed chooses.
func (t *Trainer) number(i int) int {
	n := t.collect.spec.Count[task.Train]
	if n == task.Endless {
		return int(t.order.Uint64(0)>>2) + i
	}
	return t.order.Fold(uint64(i/n)).Permute(i%n, n)
}

// evaluate scores limit samples of a split, or all of it.
func (t *Trainer) evaluate(ctx context.Context, what string, split task.Split, limit int, o Observer) (Score, error) {
	start := time.Now()
	score, _, err := t.job.Evaluate(ctx, t.model, t.source, split, limit)
	if err != nil {
		return score, err
	}
	t.elapsed += time.Since(start)
	row := Eval{Step: t.step, Eval: what, Split: split.String(), Score: score, Elapsed: t.elapsed.Seconds()}
	if err := comm.Together(t.job.Ranks, t.metrics.eval(&row)); err != nil {
		return score, err
	}
	if o.Eval != nil {
		o.Eval(row)
	}
	return score, nil
}

// choose keeps the weights if none scored better. Of equal scores, of which a count
// of few samples has many, the one of less loss is better.
func (t *Trainer) choose(s Score) error {
	if b := t.best; b != nil && !s.Metric.Better(s.Value, b.Value) && (s.Value != b.Value || s.Loss >= b.Loss) {
		t.best = &best{b.Step, b.Value, b.Loss, b.Since + 1}
		return nil
	}
	t.best = &best{Step: t.step, Value: s.Value, Loss: s.Loss}
	if t.dir == "" {
		t.weights = t.weights[:0]
		for _, p := range numbersOf(t.model) {
			t.weights = append(t.weights, slices.Clone(p.Data))
		}
		return nil
	}
	if !t.writes() {
		return nil
	}
	m := manifest{Step: t.step, Elapsed: t.elapsed.Seconds(), Best: t.best, Data: t.digest}
	_, err := place(filepath.Join(t.dir, folder), bestName, m, t.write)
	return err
}

// restore gives the model the weights that were chosen.
func (t *Trainer) restore() error {
	if t.dir == "" {
		for i, p := range numbersOf(t.model) {
			copy(p.Data, t.weights[i])
		}
		return nil
	}
	var err error
	if t.writes() {
		err = t.readBest()
	}
	if err = comm.Together(t.job.Ranks, err); err != nil {
		return err
	}
	return t.shareNumbers()
}

// readBest gives the model the weights that were chosen, from their file.
func (t *Trainer) readBest() error {
	path := filepath.Join(t.dir, folder, bestName)
	m, err := readManifest(path)
	if err != nil {
		return err
	}
	if m.Step != t.best.Step {
		return fmt.Errorf("%s: is of update %d, the best was %d", path, m.Step, t.best.Step)
	}
	chosen, err := model.Load[float32](path)
	if err != nil {
		return err
	}
	from := numbersOf(chosen)
	for i, p := range numbersOf(t.model) {
		copy(p.Data, from[i].Data)
	}
	return nil
}

// numbersOf returns all that a model computes with: weights, and what mechanisms have
// drawn.
func numbersOf(m *model.Model[float32]) []*param.Param[float32] {
	return slices.Concat(m.Params().All(), m.Constants().All())
}

// write writes the model and what it reads and writes with.
func (t *Trainer) write(dir string) error {
	if err := t.model.Save(dir); err != nil || t.text == nil {
		return err
	}
	return t.text.Vocab.Save(filepath.Join(dir, vocabFile))
}

// save writes a checkpoint, of what all ranks have.
func (t *Trainer) save(o Observer) error {
	if t.dir == "" {
		return nil
	}
	if err := t.agreeOnWeights(); err != nil {
		return err
	}
	path, err := t.writeCheckpoint()
	if err = comm.Together(t.job.Ranks, err); err != nil {
		return err
	}
	if o.Save != nil && t.writes() {
		o.Save(path)
	}
	return nil
}

// writeCheckpoint writes a checkpoint, and returns its folder.
func (t *Trainer) writeCheckpoint() (path string, err error) {
	if !t.writes() {
		return "", nil
	}
	rows, events, err := t.metrics.sync()
	if err != nil {
		return "", err
	}
	m := manifest{Step: t.step, Elapsed: t.elapsed.Seconds(), Metrics: rows, Events: events, Best: t.best, Data: t.digest}
	return writeCheckpoint(t.dir, m, func(dir string) error {
		if err := t.write(dir); err != nil {
			return err
		}
		return writeOptim(filepath.Join(dir, optimFile), t.model.Params(), t.optim)
	})
}
