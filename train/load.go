package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/token"
)

// RunFolder returns the folder of the run that path, a run's folder or that of a
// checkpoint, belongs to.
func RunFolder(path string) string {
	if isCheckpoint(path) {
		return filepath.Join(path, "..", "..")
	}
	return path
}

func isCheckpoint(path string) bool {
	_, err := os.Stat(filepath.Join(path, manifestFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// LoadModel reads the model of a checkpoint, after comparing every byte with what was
// written, and the vocabulary of the text that it learned, nil if it learned
// something else. path is the checkpoint's folder, or a run's, of which the
// checkpoint that it is judged by is taken: the best where there is one, or the
// latest.
func LoadModel(path string) (*model.Model[float32], *token.Vocabulary, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil, err
	}
	if err := CheckForeign(path); err != nil {
		return nil, nil, err
	}
	if !isCheckpoint(path) {
		if _, err := os.Stat(filepath.Join(path, configFile)); err != nil {
			return nil, nil, fmt.Errorf("%s: is neither a run nor a checkpoint: it has no %s and no %s", path, configFile, manifestFile)
		}
		best := filepath.Join(path, checkpointsFolder, bestName)
		if isCheckpoint(best) {
			path = best
		} else if last, err := latestCheckpoint(path); err == nil {
			path = last
		} else {
			return nil, nil, err
		}
	}
	if _, err := readManifest(path); err != nil {
		return nil, nil, err
	}
	m, err := model.Load[float32](path)
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
	if n := m.Config().Vocab; v.Size() != n {
		return nil, nil, fmt.Errorf("%s: has %d tokens, the model %d", filepath.Join(path, vocabFile), v.Size(), n)
	}
	return m, v, nil
}

// LoadTextModel is Load of a model that learned a text.
func LoadTextModel(path string) (*model.Model[float32], *token.Vocabulary, error) {
	m, v, err := LoadModel(path)
	if err == nil && v == nil {
		err = fmt.Errorf("%s: the model has no vocabulary: it did not learn a text", path)
	}
	return m, v, err
}
