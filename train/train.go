// Package train teaches models: the loop, its measurements, and checkpoints
// from which a run continues as if it had never stopped.
//
// A run is a folder. Each of its files is whole or not there at any moment, so
// that a run may be killed; what it loses are the updates since the last
// checkpoint, and it repeats them to the same bits:
//
//	config.json          what was asked for, complete: it repeats the run
//	metrics.jsonl        one line for each update and each evaluation
//	ckpt/step-00000200/  the last two checkpoints: model, vocabulary, optimiser
//	ckpt/latest          which of them to go on from
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

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/optim"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/task"
)

// Trainer is a run in progress.
type Trainer struct {
	config   Config
	dir      string // "": nothing is kept
	text     *task.Text
	digest   string
	model    *model.Model[float32]
	optim    *optim.AdamW[float32]
	schedule optim.Schedule
	metrics  *metrics

	order   rng.Key // of the data
	masks   rng.Key // of dropout
	redraws rng.Key // of what mechanisms draw anew
	batch   model.Batch
	step    int
	elapsed time.Duration
}

// Observer is told what happens. Fields may be nil.
type Observer struct {
	Step func(Step)
	Eval func(Eval)
	Save func(checkpoint string) // its folder
}

// Streams of random numbers that a run's seed is the key of.
const (
	streamWeights = iota
	streamOrder
	streamMasks
	streamRedraws
)

// New starts a run on text in the folder dir, which is made; "" keeps nothing.
// A folder that holds a run already is an error, and so is the first field of c
// that is not possible.
func New(c Config, text *task.Text, dir string) (*Trainer, error) {
	c, err := c.resolve(text)
	if err != nil {
		return nil, err
	}
	key := rng.New(c.Seed)
	m, err := model.New[float32](c.Model, key.Fold(streamWeights))
	if err != nil {
		return nil, err
	}
	t := newTrainer(c, text, dir, m)
	if dir == "" {
		return t, nil
	}
	path := filepath.Join(dir, configFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: holds a run already", dir)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := writeJSON(path, c); err != nil {
		return nil, err
	}
	return t, t.open(0)
}

func newTrainer(c Config, text *task.Text, dir string, m *model.Model[float32]) *Trainer {
	t := &Trainer{
		config: c, dir: dir, text: text, model: m,
		optim:    optim.NewAdamW(m.Params()),
		schedule: optim.Cosine{Peak: c.Rate, Floor: c.MinRate, WarmUp: c.WarmUp, Steps: c.Steps},
		order:    rng.New(c.Seed).Fold(streamOrder),
		masks:    rng.New(c.Seed).Fold(streamMasks),
		redraws:  rng.New(c.Seed).Fold(streamRedraws),
	}
	t.optim.Beta1, t.optim.Beta2, t.optim.Decay = c.Beta1, c.Beta2, c.Decay
	if dir != "" {
		t.digest = text.Digest()
	}
	return t
}

// open opens the metrics, of which the first size bytes are kept.
func (t *Trainer) open(size int64) (err error) {
	t.metrics, err = openMetrics(filepath.Join(t.dir, metricsFile), size)
	return err
}

// RunConfig returns the configuration of the run in the folder dir.
func RunConfig(dir string) (Config, error) {
	return ReadConfig(filepath.Join(dir, configFile), Config{})
}

// Resume continues the run in the folder dir after its latest checkpoint, or
// from the beginning if it was stopped before the first. text is what the run's
// configuration opens; if it is not the same as before, that is an error.
func Resume(text *task.Text, dir string) (*Trainer, error) {
	c, err := RunConfig(dir)
	if err != nil {
		return nil, err
	}
	if c, err = c.resolve(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, configFile), err)
	}
	path, err := latest(dir)
	if errors.Is(err, errNoCheckpoint) {
		m, err := model.New[float32](c.Model, rng.New(c.Seed).Fold(streamWeights))
		if err != nil {
			return nil, err
		}
		t := newTrainer(c, text, dir, m)
		return t, t.open(0)
	}
	if err != nil {
		return nil, err
	}
	info, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	m, err := model.Load[float32](path)
	if err != nil {
		return nil, err
	}
	t := newTrainer(c, text, dir, m)
	if info.Data != t.digest {
		return nil, fmt.Errorf("%s: is not the text that the run began with: its SHA-256 is %.12s…, was %.12s…", text.Corpus.Name, t.digest, info.Data)
	}
	if err := sameModel(m.Config(), c.Model); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, configFile), err)
	}
	if err := readOptim(filepath.Join(path, optimFile), m.Params(), t.optim, info.Step); err != nil {
		return nil, err
	}
	t.step, t.elapsed = info.Step, time.Duration(info.Elapsed*float64(time.Second))
	return t, t.open(info.Metrics)
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

// Model returns the model, which Train changes.
func (t *Trainer) Model() *model.Model[float32] { return t.model }

// Done returns the number of updates made.
func (t *Trainer) Done() int { return t.step }

// Close closes the run's files.
func (t *Trainer) Close() error { return t.metrics.close() }

// Train makes the updates that are left, evaluates and saves as configured, and
// returns the score of the whole validation part. When ctx ends it finishes the
// update that it is at, saves, and returns the error of ctx.
func (t *Trainer) Train(ctx context.Context, o Observer) (Score, error) {
	c := &t.config
	for t.step < c.Steps {
		if err := t.update(o); err != nil {
			return Score{}, err
		}
		if every(c.EvalEvery, t.step) && t.step < c.Steps {
			// Too short to be interrupted, so that no line of the metrics is
			// missing whenever the run stops.
			if _, err := t.evaluate(context.WithoutCancel(ctx), "windows", c.EvalTokens, o); err != nil {
				return Score{}, err
			}
		}
		stop := ctx.Err()
		if every(c.SaveEvery, t.step) || t.step == c.Steps || stop != nil {
			if err := t.save(o); err != nil {
				return Score{}, err
			}
		}
		if stop != nil {
			return Score{}, stop
		}
	}
	if c.ValidTokens > 0 {
		return t.evaluate(ctx, "part", c.ValidTokens, o)
	}
	return t.evaluate(ctx, "whole", 0, o)
}

// every reports whether step is a multiple of n, which may be 0.
func every(n, step int) bool { return n > 0 && step%n == 0 }

// update makes one update.
func (t *Trainer) update(o Observer) error {
	start := time.Now()
	c, b := &t.config, &t.batch
	b.B, b.N = c.shape(t.step)
	b.Key = t.masks.Fold(uint64(t.step))
	b.Tokens = slices.Grow(b.Tokens[:0], b.B*b.N)[:b.B*b.N]
	b.Targets = slices.Grow(b.Targets[:0], b.B*b.N)[:b.B*b.N]
	if err := t.text.Crop(b.Tokens, b.Targets, b.N, t.order, t.step); err != nil {
		return err
	}
	if err := t.model.Redraw(t.redraws, t.step); err != nil {
		return err
	}
	t.model.Params().ZeroGrad()
	loss, err := t.model.Forward(b)
	if err != nil {
		return err
	}
	if err := t.model.Backward(1); err != nil {
		return err
	}
	norm := optim.GradNorm(t.model.Params())
	aux := t.model.Aux()
	if x := loss + aux + norm; math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("step %d: the run diverged: loss is %v, the norm of the gradient %v", t.step+1, loss, norm)
	}
	rate := t.schedule.Rate(t.step)
	t.optim.Step(rate, optim.Clip(norm, c.Clip))
	t.step++
	spent := time.Since(start)
	t.elapsed += spent
	tokens := int64(len(b.Tokens))
	row := Step{
		Step: t.step, Loss: loss, Bits: perByte(loss, tokens, t.text.Vocab.Bytes(b.Targets)),
		Aux: aux, Rate: rate, GradNorm: norm,
		Speed: float64(tokens) / spent.Seconds(), Elapsed: t.elapsed.Seconds(),
	}
	if err := t.metrics.add(row); err != nil {
		return err
	}
	if o.Step != nil {
		o.Step(row)
	}
	return nil
}

// evaluate scores the validation part, or about limit tokens of it.
func (t *Trainer) evaluate(ctx context.Context, what string, limit int, o Observer) (Score, error) {
	start := time.Now()
	score, _, err := Evaluate(ctx, t.model, t.text.Vocab, t.text.Valid, limit)
	if err != nil {
		return score, err
	}
	t.elapsed += time.Since(start)
	row := Eval{Step: t.step, Eval: what, Score: score, Elapsed: t.elapsed.Seconds()}
	if err := t.metrics.add(row); err != nil {
		return score, err
	}
	if o.Eval != nil {
		o.Eval(row)
	}
	return score, nil
}

// save writes a checkpoint.
func (t *Trainer) save(o Observer) error {
	if t.dir == "" {
		return nil
	}
	size, err := t.metrics.sync()
	if err != nil {
		return err
	}
	m := manifest{Step: t.step, Elapsed: t.elapsed.Seconds(), Metrics: size, Data: t.digest}
	path, err := writeCheckpoint(t.dir, m, func(dir string) error {
		if err := t.model.Save(dir); err != nil {
			return err
		}
		if err := t.text.Vocab.Save(filepath.Join(dir, vocabFile)); err != nil {
			return err
		}
		return writeOptim(filepath.Join(dir, optimFile), t.model.Params(), t.optim)
	})
	if err != nil {
		return err
	}
	if o.Save != nil {
		o.Save(path)
	}
	return nil
}
