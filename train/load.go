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

// RunFolder returns the folder of the run to which path belongs. path is the folder of a
// run or of one of its checkpoints.
func RunFolder(path string) string {
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

// findCheckpoint returns the folder of the checkpoint that LoadModel reads.
func findCheckpoint(path string) (string, error) {
	if isCheckpoint(path) {
		return path, nil
	}
	if _, err := os.Stat(filepath.Join(path, configFile)); err != nil {
		return "", fmt.Errorf("%s: is neither a run nor a checkpoint: it has no %s and no %s", path, configFile, manifestFile)
	}
	if best := filepath.Join(path, checkpointsFolder, bestName); isCheckpoint(best) {
		return best, nil
	}
	return latestCheckpoint(path)
}

// LoadModel reads a model and the vocabulary of its text, which is nil for other tasks.
// path is the folder of a checkpoint, or of a run, whose best checkpoint is preferred to
// the latest one. Every file is verified by its checksum.
//
// It returns an error if path is neither, if a file is damaged, or if the vocabulary does
// not fit the model.
func LoadModel(path string) (*model.Model[float32], *token.Vocabulary, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil, err
	}
	if err := CheckForeign(path); err != nil {
		return nil, nil, err
	}
	path, err := findCheckpoint(path)
	if err != nil {
		return nil, nil, err
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

// LoadTextModel is LoadModel for a model of a text. It returns an error if the model has
// no vocabulary.
func LoadTextModel(path string) (*model.Model[float32], *token.Vocabulary, error) {
	m, v, err := LoadModel(path)
	if err == nil && v == nil {
		err = fmt.Errorf("%s: the model has no vocabulary: it did not learn a text", path)
	}
	return m, v, err
}
