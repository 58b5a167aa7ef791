package train

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/token"
)

// SaveModel writes a model and its vocabulary, if it has one, as a checkpoint to the folder dir, which
// must be empty or not there, such that Load reads them. It has no state of an
// optimizer: no training goes on from it. After an error the folder is as it was.
func SaveModel(dir string, m *model.Model[float32], vocab *token.Vocabulary) error {
	return saveInto(dir, func() error {
		if err := m.Save(dir); err != nil {
			return err
		}
		if vocab != nil {
			if err := vocab.Save(filepath.Join(dir, vocabFile)); err != nil {
				return err
			}
		}
		return manifest{}.writeInto(dir)
	})
}

// saveInto calls fill for an empty folder, which it makes where there is none, and
// removes what fill has left there if it fails.
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
