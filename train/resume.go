package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train/data"
)

// RunConfig returns the configuration of the run in the folder dir. It returns an error where
// ReadConfig does.
func RunConfig(dir string) (Config, error) {
	return ReadConfig(filepath.Join(exchanged.Resolve(dir), configFile), Config{})
}

// Resume continues the run in the folder dir from its latest checkpoint, or from the start if there
// is none. src is the data that New was given; for a task of the catalogue, call OpenTask on the
// result of RunConfig(dir). The trainer owns the folder until Close. Resume returns an error if the
// data or the model has changed or a file is damaged, and a farfield.ErrInUse if the folder has another
// owner.
func Resume(src data.Source, dir string) (*Trainer, error) {
	return Job{}.Resume(src, dir)
}

// ResumeWith is Resume for a run with mechanisms of your own. The folder does not contain their
// code: pass the factories that the model configuration had when New created the run.
func ResumeWith(src data.Source, dir string, factories map[string]model.Factory) (*Trainer, error) {
	return Job{}.resumeWith(src, dir, factories)
}

// savedRun is the state of a run read from its folder.
type savedRun struct {
	Config     Config
	Checkpoint string // "": none yet
	Manifest   checkpoint.Manifest
}

// readSavedRun reads the configuration and the latest manifest of a run.
func readSavedRun(dir string) (k savedRun, err error) {
	if k.Config, err = RunConfig(dir); err != nil {
		return k, err
	}
	k.Checkpoint, err = latestCheckpoint(dir)
	if errors.Is(err, ErrNoCheckpoint) {
		return k, nil
	}
	if err == nil {
		k.Manifest, err = checkpoint.Read(k.Checkpoint)
	}
	if err == nil {
		err = checkConfig(dir, k.Checkpoint)
	}
	if err == nil && k.Config.tokens != nil { // a missing file is written anew, if the data agrees
		err = checkTokenizer(dir, k.Checkpoint)
	}
	return k, err
}

// Resume is the function Resume for the ranks of a job, whose number may differ from before. Only
// rank 0 reads the folder. If one rank has an error, every rank returns one.
func (j Job) Resume(src data.Source, dir string) (*Trainer, error) {
	return j.resumeWith(src, dir, nil)
}

// resumeWith is the function ResumeWith for the ranks of a job; see Resume.
func (j Job) resumeWith(src data.Source, dir string, factories map[string]model.Factory) (_ *Trainer, err error) {
	var held *lock.Lock
	defer func() {
		if err != nil {
			held.Release()
		}
	}()
	k, err := comm.CallOnRankZero(j.Ranks, func() (k savedRun, err error) {
		if held, err = lockRun(dir); err != nil {
			return k, err
		}
		return readSavedRun(dir)
	})
	if err == nil {
		k.Config, err = j.ShareConfig(k.Config)
	}
	if err != nil {
		return nil, err
	}
	k.Config.Model.Factories = factories
	t, err := func() (*Trainer, error) {
		c, prepared, err := k.Config.PrepareTask(src)
		if err == nil {
			err = j.checkPasses(&c)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, configFile), fault.InFile(err))
			if factories == nil && !isKnownMechanism(c.Model.Mechanism) {
				err = fmt.Errorf("%w; one of your own needs its factory, which ResumeWith takes", err)
			}
			return nil, err
		}
		var m *model.Model
		switch {
		case k.Checkpoint == "":
			m, err = c.newModel(src)
		case j.isRankZero():
			m, err = model.LoadWith(k.Checkpoint, factories)
		default: // rank 0 sends the weights
			m, err = model.New(c.Model, rng.New(c.Seed).Fold(streamWeights))
		}
		if err != nil {
			return nil, err
		}
		return j.newTrainer(c, src, prepared, dir, m)
	}()
	if err = j.agreeOnRun(t, err); err != nil {
		return nil, err
	}
	t.recorded = k.Config
	if err = comm.ShareError(j.Ranks, t.restoreRun(&k)); err == nil {
		err = t.broadcastState()
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	t.lock = held
	return t, nil
}

// isKnownMechanism reports whether farfield has a mechanism or a mixer of the name, or it is empty.
func isKnownMechanism(name string) bool {
	_, unknown := mechanism.Lookup(name)
	_, owns := nn.LookupMixer(name)
	return name == "" || owns || unknown == nil
}

// lockRun makes this process the owner of the run in the folder dir.
func lockRun(dir string) (*lock.Lock, error) {
	if _, err := os.Stat(filepath.Join(dir, configFile)); err != nil {
		return nil, err
	}
	return lock.LockFolder(dir)
}

// LengthenRuns raises the number of updates of finished runs to steps, so that Resume continues
// them. After its former end, a run draws its data and sets its learning rate and window lengths as
// a run of steps updates does. Config.Lengthened records the former ends, so that the configuration
// still repeats the whole run. Runs that have this number of steps stay unchanged. src is the task
// that the configuration of the runs opens. LengthenRuns returns an error, and changes no run, if
// one of them is unfinished or longer, or began with other data.
func LengthenRuns(src data.Source, steps int, dirs ...string) error {
	sums := &task.FileSums{}
	if len(dirs) > 0 {
		sums = readFileSums(dirs[0])
	}
	sum, err := task.Digest(src, sums)
	if err != nil {
		return err
	}
	classes, columns := labelNames(src)
	changed := map[string]Config{}
	for _, dir := range dirs {
		held, err := lockRun(dir)
		if err != nil {
			return err
		}
		defer held.Release()
		k, err := readSavedRun(dir)
		if err != nil {
			return err
		}
		c, m := k.Config, &k.Manifest
		switch {
		case steps == c.Steps:
			continue
		case c.Freeze:
			return fmt.Errorf("%s: steps: %d, but the run fits a linear head to a frozen model, which has no further updates", dir, steps)
		case m.Best != nil && c.Patience > 0 && m.Best.EvalsSince >= c.Patience:
			return fmt.Errorf("%s: steps: %d, but the run ended after update %d: %d looks without a better score are its patience", dir, steps, m.Step, c.Patience)
		case m.Step < c.Steps:
			return fmt.Errorf("%s: steps: %d, but the run has made %d of its %d updates; resume it to its end first", dir, steps, m.Step, c.Steps)
		case steps < c.Steps || steps > maxSteps:
			return fmt.Errorf("%s: steps: %d is not from %d, the updates that the run has made, to %d", dir, steps, c.Steps, maxSteps)
		}
		if err := checkDigest(&c, src, sum, m.Data); err != nil {
			return err
		}
		if err := checkLabels(c.Task, dir, k.Checkpoint, classes, columns); err != nil {
			return err
		}
		c.Lengthened, c.Steps = append(c.Lengthened, c.Steps), steps
		changed[dir] = c
	}
	for dir, c := range changed {
		if err := atomicfile.WriteJSON(filepath.Join(dir, configFile), c); err != nil {
			return err
		}
	}
	return nil
}

// restoreRun restores the state of a checkpoint and opens the files of the run.
func (t *Trainer) restoreRun(k *savedRun) error {
	m := &k.Manifest
	t.step, t.elapsed, t.best = m.Step, time.Duration(m.Elapsed*float64(time.Second)), m.Best
	if k.Checkpoint != "" {
		t.savedStep = m.Step
		if err := t.checkData(m.Data); err != nil {
			return err
		}
		if err := sameModel(t.model.Config(), t.config.Model); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(t.dir, configFile), err)
		}
		if t.job.isRankZero() {
			if err := checkLabels(t.config.Task, t.dir, k.Checkpoint, t.classes, t.columns); err != nil {
				return err
			}
			if err := t.adapters.load(k.Checkpoint); err != nil {
				return err
			}
			if err := readOptim(filepath.Join(k.Checkpoint, optimFile), t.trained, t.optim, m.Step); err != nil {
				return err
			}
		} else if err := t.optim.Restore(int64(m.Step)); err != nil {
			return err
		}
	}
	if !t.isWriter() {
		return nil
	}
	if k.Checkpoint == "" {
		if err := t.checkStart(); err != nil {
			return err
		}
	} else if err := errors.Join(removeOlder(k.Checkpoint), t.repairBest()); err != nil {
		return err
	}
	if err := errors.Join(t.writeFileSums(), t.renewStart()); err != nil {
		return err
	}
	if err := t.writeLabels(t.dir); err != nil {
		return err
	}
	if err := saveTokens(t.dir, t.config.tokens); err != nil {
		return err
	}
	var err error
	t.metrics, err = openMetrics(t.dir, m)
	return err
}

// sameModel returns an error if the configuration differs from the checkpoint's.
func sameModel(saved, asked model.Config) error {
	a, err := atomicfile.MarshalJSON(saved)
	if err != nil {
		return err
	}
	b, err := atomicfile.MarshalJSON(asked)
	if err != nil {
		return err
	}
	if string(a) != string(b) {
		return fmt.Errorf("model is %s, the checkpoint's is %s", b, a)
	}
	return nil
}
