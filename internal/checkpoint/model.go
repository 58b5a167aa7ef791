package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
)

// Reader calls load with the folder of a verified checkpoint of a run, or of path itself. It is
// train.ReadCheckpoint.
type Reader func(path string, load func(dir string) error) error

// LoadModel reads a model and the vocabulary of its text, which is nil for other tasks, from the
// checkpoint that read finds. An exchanged model is returned as the trained model with the exchanged
// functions. Weights are held in precision p, as model.LoadIn holds them. factories build mechanisms of
// one's own, by the names that the configuration gives them. LoadModel returns an error where read
// does, if a file is damaged, or if the vocabulary does not fit the model.
func LoadModel(path string, p nn.Precision, factories map[string]model.Factory, read Reader) (m *model.Model, v *token.Vocabulary, err error) {
	functions, err := exchanged.Open(path)
	if err != nil {
		return nil, nil, err
	}
	held := p
	if functions != nil {
		path, held = functions.Model(), nn.Float32
	}
	err = read(path, func(dir string) error {
		m, v, err = load(dir, held, factories)
		return err
	})
	if err == nil && functions != nil {
		if m, err = functions.Apply(m); err == nil {
			err = m.Compress(p)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return m, v, nil
}

// load is LoadModel for the folder of a checkpoint.
func load(dir string, p nn.Precision, factories map[string]model.Factory) (*model.Model, *token.Vocabulary, error) {
	m, err := model.LoadIn(dir, p, factories)
	if err != nil {
		return nil, nil, err
	}
	v, err := token.LoadVocabulary(filepath.Join(dir, VocabFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if n := m.Config().Vocab; v.Size() > n || v.Size() < n && v.Tokenizer() == nil {
		return nil, nil, fmt.Errorf("%s: has %d tokens, the model %d", filepath.Join(dir, VocabFile), v.Size(), n)
	}
	return m, v, nil
}

// SaveModel writes a model, and its vocabulary unless nil, as a checkpoint that LoadModel reads.
// The folder dir must be empty or absent. The checkpoint has no state of an optimiser, so training
// cannot continue from it. SaveModel returns an error if the folder is not empty or cannot be
// written; the folder is then as before.
func SaveModel(dir string, m *model.Model, vocab *token.Vocabulary) error {
	return saveInto(dir, func() error {
		if err := m.Save(dir); err != nil {
			return err
		}
		if vocab != nil {
			if err := vocab.Save(filepath.Join(dir, VocabFile)); err != nil {
				return err
			}
		}
		return Manifest{}.WriteInto(dir)
	})
}

// saveInto calls fill for an empty folder, which it creates if absent. If fill fails,
// saveInto removes its files.
func saveInto(dir string, fill func() error) error {
	_, absent := os.Stat(dir)
	if err := atomicfile.MakeFolder(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s: is not empty", dir)
	}
	err = fill()
	if err == nil {
		return nil
	}
	if entries, other := os.ReadDir(dir); other == nil {
		for _, e := range entries {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	if absent != nil {
		os.Remove(dir)
	}
	return err
}
