package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/task"
)

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
