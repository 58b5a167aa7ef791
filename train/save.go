package train

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train/data"
)

// byteVocab is the number of different bytes.
const byteVocab = 256

// SaveByteModel writes a model whose token t is the byte t of a text as a checkpoint. farfield.Open
// reads it, and tokenizes, embeds, scores and continues texts with it. The folder dir must be empty or
// absent. The checkpoint has no state of an optimiser, so training cannot continue from it.
// SaveByteModel returns an error unless Config.Vocab is 256, if the folder is not empty or if it cannot
// be written; the folder is then as before.
func SaveByteModel(dir string, m *model.Model) error {
	if n := m.Config().Vocab; n != byteVocab {
		return fmt.Errorf("%s: the model has %d tokens, there are %d bytes", dir, n, byteVocab)
	}
	return checkpoint.SaveModel(dir, m, token.NewByteVocabulary())
}

// tokensAreBytes reports whether src says that its tokens are bytes.
func tokensAreBytes(src data.Source) bool {
	reporter, is := src.(data.ByteReporter)
	return is && reporter.TokensAreBytes()
}
