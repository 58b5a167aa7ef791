package runs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/pretrained"
	"github.com/farfield-ml/farfield/train"
)

// TextModel is a model of texts with its tokens: of a run, of a checkpoint, or of a
// published folder.
type TextModel struct {
	path     string
	weights  *model.Model      // nil: the folder's
	folder   *pretrained.Model // nil: a run
	vocab    *token.Vocabulary // nil: a folder without a tokenizer
	vocabErr error
	output   *token.Vocabulary // of targets
	rules    pretrained.TextRules
}

// OpenText opens the model at path: a run, a checkpoint, a published folder, or the name
// of a fetched model. It returns an error if there is no such model or it reads no texts.
func OpenText(path string) (*TextModel, error) { return OpenExchanged(path, nil) }

// OpenExchanged opens the model at path as OpenText does, with another attention function in its
// layers; nil: with its own. It returns an error where OpenText does and if the model cannot have
// the function.
func OpenExchanged(path string, x *model.Exchange) (*TextModel, error) {
	path, err := ResolveModel(path)
	if err != nil {
		return nil, err
	}
	t := &TextModel{path: path}
	if !pretrained.IsFolder(path) {
		if t.weights, t.vocab, err = train.LoadTextModel(path); err != nil {
			return nil, err
		}
		t.output = t.vocab
		if t.weights, err = ExchangeModel(path, t.weights, x); err != nil {
			return nil, err
		}
		return t, nil
	}
	folder, err := pretrained.OpenWith(path, pretrained.Options{Exchange: x})
	if err != nil {
		return nil, err
	}
	return NewFolderText(path, folder)
}

// ExchangeModel returns the model m of path with another attention function in its layers; nil: m.
func ExchangeModel(path string, m *model.Model, x *model.Exchange) (*model.Model, error) {
	if x == nil {
		return m, nil
	}
	m, err := m.Exchanged(*x)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// NewFolderText returns the model of texts of the published folder at path. It returns an error
// if the model reads no texts.
func NewFolderText(path string, folder *pretrained.Model) (*TextModel, error) {
	t := &TextModel{path: path, folder: folder}
	if folder.Config().Inputs > 0 {
		return nil, fmt.Errorf("%s: the %s reads no texts", path, t.Family())
	}
	rules, err := folder.ReadTextRules()
	if err != nil {
		return nil, err
	}
	t.rules = *rules
	if words := t.folder.Tokenizer(); words != nil {
		t.vocab, t.output = token.NewTokenizerVocabulary(words), token.NewTokenizerVocabulary(t.folder.TargetTokenizer())
	} else {
		t.vocabErr = t.folder.TokenizerErr()
	}
	return t, nil
}

// Model returns the model. A folder's short inputs no longer use packed weights after the
// call.
func (t *TextModel) Model() *model.Model {
	if t.folder != nil {
		return t.folder.Model()
	}
	return t.weights
}

// Config returns the configuration of the model.
func (t *TextModel) Config() model.Config {
	if t.folder != nil {
		return t.folder.Config()
	}
	return t.weights.Config()
}

// PrintNotes prints what a published folder has beside what the model reads of it.
func PrintNotes(w io.Writer, m *pretrained.Model) {
	if m == nil {
		return
	}
	for _, note := range m.Notes() {
		fmt.Fprintln(w, display.Escape(note))
	}
}

// PrintRules prints the notes of PrintNotes, and the rules of generation of a folder that are not
// applied.
func (t *TextModel) PrintRules(w io.Writer) {
	PrintNotes(w, t.folder)
	if len(t.rules.Unapplied) > 0 {
		fmt.Fprintf(w, "rules of generation that are not applied: %s\n", display.Escape(strings.Join(t.rules.Unapplied, ", ")))
	}
}

// Published returns the published model; nil: the model is a run's.
func (t *TextModel) Published() *pretrained.Model { return t.folder }

// Family returns the model_type of a folder, otherwise farfield.
func (t *TextModel) Family() string {
	if t.folder != nil {
		return t.folder.Family()
	}
	return "farfield"
}

// CheckNextTokens returns an error unless the model predicts tokens.
func (t *TextModel) CheckNextTokens() error {
	switch c := t.Config(); {
	case t.folder != nil && !t.folder.HasLogits():
		return fmt.Errorf("%s: the %s has no head that predicts tokens", t.path, t.Family())
	case !c.IsCausal() || c.Outputs > 0 && c.Outputs != c.Vocab:
		return fmt.Errorf("%s: the %s does not predict next tokens", t.path, t.Family())
	}
	return nil
}

// Vocabulary returns the tokens of the model. It returns an error if a folder has no
// tokenizer, or one that is not read.
func (t *TextModel) Vocabulary() (*token.Vocabulary, error) { return t.vocab, t.vocabErr }

// Encode returns the tokens of text, with the special tokens of a text on request. Bytes
// that are not UTF-8 become U+FFFD where a tokenizer reads characters. It returns an error
// if there is no tokenizer or a character is not in the vocabulary.
func (t *TextModel) Encode(text string, special bool) ([]int32, error) {
	if t.vocab == nil {
		return nil, t.vocabErr
	}
	words := t.vocab.Tokenizer()
	switch {
	case words == nil:
		return t.vocab.Encode(nil, []byte(text))
	case t.folder != nil:
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return words.AppendIDs(nil, text, !special), nil
}

// EncodeContinuation returns the tokens of text behind a number of tokens, without special
// tokens. A space that the tokenizer puts before a text is left out, unless the tokens before
// it are only the special tokens of an empty text. It returns an error where Encode does.
func (t *TextModel) EncodeContinuation(text string, tokens int64) ([]int32, error) {
	if t.vocab == nil || t.vocab.Tokenizer() == nil || tokens <= int64(len(t.vocab.Tokenizer().AppendIDs(nil, "", false))) {
		return t.Encode(text, false)
	}
	if t.folder != nil {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return t.vocab.EncodeNext(nil, []byte(text))
}

// Bytes appends the bytes of a token inside a text to dst. Special tokens have none. Ids
// beyond the tokenizer, which fill the table of embeddings, have U+FFFD. Bytes
// returns an error if there is no tokenizer or id is not in its vocabulary.
func (t *TextModel) Bytes(dst []byte, id int32) ([]byte, error) {
	if t.vocab == nil {
		return dst, t.vocabErr
	}
	if int(id) >= t.output.Size() && int(id) < t.Config().Vocab {
		return append(dst, noText...), nil
	}
	return t.output.Decode(dst, id)
}

// StartTokens returns the tokens that begin a target of an encoder-decoder, and the tokens
// that are its first in any case. It returns an error if the folder names none that begin it.
func (t *TextModel) StartTokens() (start, forced []int32, err error) {
	if len(t.rules.StartTokens) == 0 {
		return nil, nil, fmt.Errorf("%s: decoder_start_token_id: is missing", t.path)
	}
	return t.rules.StartTokens, t.rules.ForcedTokens, nil
}

// EndTokens returns the ids that end a text; nil: none.
func (t *TextModel) EndTokens() []int32 { return t.rules.EndTokens }

// ChatTemplate returns the template of messages in the language of Jinja; "": none.
func (t *TextModel) ChatTemplate() string { return t.rules.ChatTemplate }

// SpecialTokens returns texts of special tokens by names such as bos_token.
func (t *TextModel) SpecialTokens() map[string]string { return t.rules.SpecialTokens }

// Identity returns the SHA-256 of weights, configuration, precision and tokenizer in
// hexadecimal digits. Models of equal identity compute the same bits from the same text
// on one machine. It returns an error if the configuration has no JSON.
func (t *TextModel) Identity() (string, error) {
	m := t.Model()
	config, err := json.Marshal(m.Config())
	if err != nil {
		return "", err
	}
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part([]byte("farfield text model 1, float32"))
	part(config)
	part([]byte(m.WeightSum()))
	for _, p := range m.Constants().All() {
		b, _ := binary.Append(nil, binary.LittleEndian, p.Data) // fails for types of no fixed size alone
		part([]byte(p.Name))
		part(b)
	}
	if t.vocab != nil {
		vocab, err := t.vocab.MarshalJSON()
		if err != nil {
			return "", err
		}
		part(vocab)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
