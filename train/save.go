package train

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/token"
)

// Save writes a model and its vocabulary, if it has one, as a checkpoint to the folder dir, which
// must be empty or not there, such that Load reads them. It has no state of an
// optimizer: no training goes on from it.
func Save(dir string, m *model.Model[float32], vocab *token.Vocabulary) error {
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
	if err := m.Save(dir); err != nil {
		return err
	}
	if vocab != nil {
		if err := vocab.Save(filepath.Join(dir, vocabFile)); err != nil {
			return err
		}
	}
	return manifest{}.write(dir)
}
