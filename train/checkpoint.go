package train

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
)

// Names in a run folder and in a checkpoint; the model names its own files.
const (
	configFile        = "config.json"
	metricsFile       = "metrics.jsonl"
	classesFile       = "classes.txt"
	columnsFile       = "columns.txt"
	scalesFile        = "scales.json"
	eventsFile        = "events.out.tfevents.0.farfield" // TensorBoard finds it by tfevents
	checkpointsFolder = "ckpt"
	latestFile        = checkpoint.LatestFile
	bestName          = "best"
	manifestFile      = checkpoint.ManifestFile
	vocabFile         = checkpoint.VocabFile
	optimFile         = "optim.safetensors"

	tempPrefix = "."
	oldPrefix  = ".old-" // of a folder until its replacement has its name
)

// writeCheckpoint makes the checkpoint of m.Step in the run folder dir from the files
// that fill writes. The checkpoint appears complete or not at all, and only then does
// latest name it. The checkpoint before it is kept, older ones are removed.
func writeCheckpoint(dir string, m checkpoint.Manifest, fill func(dir string) error) (path string, err error) {
	all := filepath.Join(dir, checkpointsFolder)
	name := checkpoint.StepName(m.Step)
	if path, err = writeCheckpointFolder(all, name, m, fill); err != nil {
		return "", err
	}
	err = atomicfile.Write(filepath.Join(all, latestFile), func(w io.Writer) error {
		_, err := fmt.Fprintln(w, name)
		return err
	})
	if err != nil {
		return "", err
	}
	keep := map[string]bool{name: true}
	if before, ok := checkpoint.Before(all, name); ok {
		keep[before] = true
	}
	return path, removeCheckpoints(all, func(name string) bool { return checkpoint.IsStepName(name) && !keep[name] })
}

// removeOlder removes the checkpoints before the predecessor of the checkpoint in path.
// They remain if a run is killed between writing a checkpoint and removing old ones.
func removeOlder(path string) error {
	all, name := filepath.Dir(path), filepath.Base(path)
	before, ok := checkpoint.Before(all, name)
	if !ok {
		return nil
	}
	return removeCheckpoints(all, func(name string) bool { return checkpoint.IsStepName(name) && name < before })
}

// writeCheckpointFolder makes the folder name in the folder all, complete or not at all.
func writeCheckpointFolder(all, name string, m checkpoint.Manifest, fill func(dir string) error) (path string, err error) {
	if err := atomicfile.MakeFolder(all); err != nil {
		return "", err
	}
	if err := removeTemps(all); err != nil {
		return "", err
	}
	temp := filepath.Join(all, tempPrefix+name)
	if err := os.Mkdir(temp, 0o777); err != nil {
		return "", lock.WrapWriteError(temp, err)
	}
	// After the rename temp does not exist.
	defer os.RemoveAll(temp)
	if err := fill(temp); err != nil {
		return "", err
	}
	if err := m.WriteInto(temp); err != nil {
		return "", err
	}
	path = filepath.Join(all, name)
	// A best checkpoint replaces another one. A run that resumed an earlier checkpoint
	// writes later ones over the old.
	old := filepath.Join(all, oldPrefix+name)
	if err := atomicfile.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", lock.WrapWriteError(path, err)
	}
	if err := atomicfile.Rename(temp, path); err != nil {
		return "", lock.WrapWriteError(path, err)
	}
	atomicfile.SyncFolder(all) // before latest names it, and before the old one goes
	return path, atomicfile.RemoveAll(old)
}

// removeTemps removes the temporary entries of the folder all. An old checkpoint whose
// replacement has no name yet gets its name back.
func removeTemps(all string) error {
	olds, err := fs.Glob(os.DirFS(all), oldPrefix+"*") // all may have brackets
	if err != nil {
		return err
	}
	for _, old := range olds {
		path := filepath.Join(all, strings.TrimPrefix(old, oldPrefix))
		if checkpoint.Is(path) {
			continue
		}
		if err := atomicfile.Rename(filepath.Join(all, old), path); err != nil {
			return lock.WrapWriteError(path, err)
		}
	}
	return removeCheckpoints(all, func(name string) bool { return strings.HasPrefix(name, tempPrefix) })
}

// removeCheckpoints removes the unwanted entries of the folder all. The next call removes files that
// another process still has open on Windows.
func removeCheckpoints(all string, unwanted func(name string) bool) error {
	entries, err := os.ReadDir(all)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if unwanted(e.Name()) {
			if err := atomicfile.RemoveAll(filepath.Join(all, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrNoCheckpoint is returned for a run without a checkpoint.
var ErrNoCheckpoint = errors.New("the run has no checkpoint yet")

// maxPointerBytes bounds the file latest.
const maxPointerBytes = 64

// latestCheckpoint returns the path of the checkpoint that Resume reads.
func latestCheckpoint(dir string) (path string, err error) {
	pointer := filepath.Join(dir, checkpointsFolder, latestFile)
	text, err := infile.ReadBounded(pointer, maxPointerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", dir, ErrNoCheckpoint)
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(text))
	if !checkpoint.IsStepName(name) {
		return "", fmt.Errorf("%s: names %q, which is no checkpoint", pointer, name)
	}
	return filepath.Join(dir, checkpointsFolder, name), nil
}

// modelTensors returns the weights and the constants of a model.
func modelTensors(m *model.Model) []*param.Param {
	return slices.Concat(m.Params().All(), m.Constants().All())
}

// writeModel writes the model, its vocabulary, if it has one, and the run's copies.
func (t *Trainer) writeModel(dir string) error {
	if err := t.model.Save(dir); err != nil {
		return err
	}
	if err := t.writeCopies(dir); err != nil {
		return err
	}
	if t.text != nil {
		return t.text.Vocab.Save(filepath.Join(dir, vocabFile))
	}
	if t.ofBytes {
		return token.NewByteVocabulary().Save(filepath.Join(dir, vocabFile))
	}
	return saveTokens(dir, t.config.tokens)
}

// saveCheckpoint writes a checkpoint, and then the best one if it is due, unless the last
// one is of this update. The ranks first agree on the weights. In this order a best
// checkpoint that no other one knows does not exist.
func (t *Trainer) saveCheckpoint(o Observer) error {
	if t.dir == "" || t.savedStep == t.step {
		return nil
	}
	if err := t.agreeOnWeights(); err != nil {
		return err
	}
	path, err := t.writeCheckpoint()
	if err = comm.ShareError(t.job.Ranks, err); err != nil {
		return err
	}
	t.savedStep = t.step
	if o.Save != nil && t.isWriter() {
		o.Save(path)
	}
	return nil
}

// writeCheckpoint writes a checkpoint and returns its folder; "" on ranks that write
// none.
func (t *Trainer) writeCheckpoint() (path string, err error) {
	if !t.isWriter() {
		return "", nil
	}
	rows, events, err := t.metrics.syncFiles()
	if err != nil {
		return "", err
	}
	m := checkpoint.Manifest{Step: t.step, Elapsed: t.elapsed.Seconds(), Metrics: rows, Events: events, Best: t.best, Data: t.digest}
	path, err = writeCheckpoint(t.dir, m, func(dir string) error {
		if err := t.writeModel(dir); err != nil {
			return err
		}
		if err := t.adapters.save(dir); err != nil {
			return err
		}
		return writeOptim(filepath.Join(dir, optimFile), t.trained, t.optim)
	})
	if err == nil && t.best.IsAt(t.step) {
		err = t.writeBest()
	}
	return path, err
}
