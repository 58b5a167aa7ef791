package train

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
)

// RunFolder returns the folder of the run to which path belongs. path is that folder, or one of its
// checkpoints.
func RunFolder(path string) string {
	path = exchanged.Resolve(path)
	if isCheckpoint(path) {
		return filepath.Join(path, "..", "..")
	}
	return path
}

// isCheckpoint reports whether path is a folder with a manifest.
func isCheckpoint(path string) bool {
	_, err := os.Stat(filepath.Join(path, manifestFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// isAlone reports whether path is a checkpoint outside of a run: it is not in a folder of
// checkpoints, and the folder above its own is no run with checkpoints. Files beside it are
// of something else.
func isAlone(path string) bool {
	if !isCheckpoint(path) {
		return false
	}
	run := RunFolder(path)
	in, err := os.Stat(filepath.Join(path, ".."))
	all, missing := os.Stat(filepath.Join(run, checkpointsFolder))
	if err == nil && missing == nil && os.SameFile(in, all) {
		return false
	}
	if _, err := latestCheckpoint(run); err == nil {
		return false
	}
	// A copy beside the other checkpoints of its run stays its own without them.
	_, isOfRun := os.Stat(filepath.Join(path, runFile))
	_, err = decodeConfig(filepath.Join(run, configFile))
	return isOfRun != nil || err != nil
}

// maxLoads bounds the loads of a checkpoint that its training replaces meanwhile.
const maxLoads = 100

// LoadModel reads a model and the vocabulary of its text, which is nil for other tasks. path is the
// folder of a checkpoint, or of a run, whose best checkpoint is preferred to the latest one. Every
// file is verified by its checksum, and the run by the copies in its checkpoint. If a trainer
// replaces the checkpoint meanwhile, LoadModel reads the new one. An exchanged model is returned as
// the trained model with the exchanged functions. LoadModel returns an error if path is neither a
// checkpoint nor a run, if a file is damaged, or if the vocabulary does not fit the model.
func LoadModel(path string) (*model.Model, *token.Vocabulary, error) {
	return LoadModelWith(path, nn.Float32, nil)
}

// LoadModelWith is LoadModel with weights held in precision p, as model.LoadIn holds them.
// factories build mechanisms of your own, by the names that the configuration gives them.
func LoadModelWith(path string, p nn.Precision, factories map[string]model.Factory) (*model.Model, *token.Vocabulary, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil, err
	}
	if err := CheckForeign(path); err != nil {
		return nil, nil, err
	}
	functions, err := exchanged.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if functions != nil {
		m, v, err := LoadModelWith(functions.Model(), nn.Float32, factories)
		if err == nil {
			m, err = functions.Apply(m)
		}
		if err == nil {
			err = m.Compress(p)
		}
		return m, v, err
	}
	for n := 1; ; n++ {
		from, err := findCheckpoint(path)
		if err != nil {
			return nil, nil, err
		}
		before, _ := infile.ReadFile(filepath.Join(from, manifestFile)) // nil: removed meanwhile
		m, v, err := loadCheckpoint(from, from == path, p, factories)
		after, _ := infile.ReadFile(filepath.Join(from, manifestFile))
		if n == maxLoads || before != nil && bytes.Equal(before, after) {
			return m, v, err
		}
	}
}

// findCheckpoint returns the folder of the checkpoint that LoadModel reads.
func findCheckpoint(path string) (string, error) {
	path = exchanged.Resolve(path)
	if isCheckpoint(path) {
		return path, nil
	}
	if _, err := os.Stat(filepath.Join(path, configFile)); err != nil {
		return "", fmt.Errorf("%s: is neither a run nor a checkpoint: it has no %s and no %s%s", path, configFile, manifestFile, HintInside(path))
	}
	// The best checkpoint has its old name while it is replaced.
	for _, name := range []string{bestName, oldPrefix + bestName, bestName} {
		if best := filepath.Join(path, checkpointsFolder, name); isCheckpoint(best) {
			return best, nil
		}
	}
	if text, err := infile.ReadFile(filepath.Join(path, configFile)); err == nil && isModelConfig(text) {
		return "", modelAloneError(filepath.Join(path, configFile))
	}
	return latestCheckpoint(path)
}

// HintInside looks for a model in the folders inside path, such as a package that contains one. It
// returns a hint for an error message, or "" if there is none.
func HintInside(path string) string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		inside := filepath.Join(path, e.Name())
		if _, err := os.Stat(filepath.Join(inside, configFile)); err == nil {
			return fmt.Sprintf("; %s has one", inside)
		}
	}
	return ""
}

// loadCheckpoint is LoadModel for the folder of a checkpoint. Unless isNamed, a checkpoint
// that knows of a better one is refused.
func loadCheckpoint(path string, isNamed bool, p nn.Precision, factories map[string]model.Factory) (*model.Model, *token.Vocabulary, error) {
	info, err := readManifest(path)
	if err != nil {
		return nil, nil, err
	}
	if info.Best != nil && info.Best.Step != info.Step && !isNamed && isStepName(filepath.Base(path)) {
		best := filepath.Join(filepath.Dir(path), bestName)
		return nil, nil, fmt.Errorf("%s: is missing, and update %d has the best score; name %s to read the latest checkpoint", best, info.Best.Step, path)
	}
	if !isAlone(path) {
		if err := checkRun(RunFolder(path), path); err != nil {
			return nil, nil, err
		}
	}
	m, err := model.LoadIn(path, p, factories)
	if err != nil {
		return nil, nil, err
	}
	v, err := token.LoadVocabulary(filepath.Join(path, vocabFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if n := m.Config().Vocab; v.Size() > n || v.Size() < n && v.Tokenizer() == nil {
		return nil, nil, fmt.Errorf("%s: has %d tokens, the model %d", filepath.Join(path, vocabFile), v.Size(), n)
	}
	return m, v, nil
}

// LoadTextModel is LoadModel for a model of a text. It returns an error if the model has
// no vocabulary.
func LoadTextModel(path string) (*model.Model, *token.Vocabulary, error) {
	m, v, err := LoadModel(path)
	if err == nil && v == nil {
		err = fmt.Errorf("%s: the model has no vocabulary: it did not learn a text", path)
	}
	return m, v, err
}
