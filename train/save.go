package train

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train/data"
)

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
			if err := vocab.Save(filepath.Join(dir, vocabFile)); err != nil {
				return err
			}
		}
		return manifest{}.writeInto(dir)
	})
}

// byteVocab is the number of different bytes.
const byteVocab = 256

// SaveByteModel is SaveModel for a model whose token t is the byte t of a text. farfield.Open reads it,
// and tokenizes, embeds, scores and continues texts with it. SaveByteModel returns an error where
// SaveModel does, and unless Config.Vocab is 256.
func SaveByteModel(dir string, m *model.Model) error {
	if n := m.Config().Vocab; n != byteVocab {
		return fmt.Errorf("%s: the model has %d tokens, there are %d bytes", dir, n, byteVocab)
	}
	return SaveModel(dir, m, token.NewByteVocabulary())
}

// tokensAreBytes reports whether src says that its tokens are bytes.
func tokensAreBytes(src data.Source) bool {
	reporter, is := src.(data.ByteReporter)
	return is && reporter.TokensAreBytes()
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
