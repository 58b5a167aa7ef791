// Package inference opens the folder of a model once and does with it what the model can do: vectors,
// classes, bits and texts. The folder may be a run, a checkpoint, a model alone, or a published model
// in the Hugging Face layout. The methods of farfield.Model, the verbs of the command and the server
// stand on it.
package inference

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/pretrained"
	"github.com/farfield-ml/farfield/train"
)

// Options are the choices of Open.
type Options struct {
	Exchange  *model.Exchange          // another attention function in layers; nil: the model's own
	Positions string                   // of a published model, as in pretrained.Options
	Precision nn.Precision             // of the weights
	Factories map[string]model.Factory // mechanisms of a model's own, as model.LoadWith takes them
	// IgnoreFields are fields of a published model's config.json that are left out.
	IgnoreFields []string
}

// Model is an open model. Its methods may run at the same time.
type Model struct {
	path   string
	body   *model.Model      // of a run, a checkpoint or a model alone
	folder *pretrained.Model // nil: body is the model
	stored model.Config      // the configuration in the folder, before an exchange

	vocab, output *token.Vocabulary // of inputs and of targets; nil: vocabErr says why
	vocabErr      error
	rules         pretrained.TextRules
	rulesErr      error

	calibration *exchanged.Calibration // of an exchanged run; nil: it is none
	looked      atomic.Int64           // texts that were long enough to tell the distance of keys
	isNoted     atomic.Bool            // far keys were told

	predictor func() (*Predictor, error) // openPredictor, once
	starts    starts
}

// Open opens the model in the folder path. It returns an error if there is none, if a file is
// damaged, or if the model cannot have the function of the options.
func Open(path string, o Options) (*Model, error) {
	m := &Model{path: path}
	m.predictor = sync.OnceValues(m.openPredictor)
	m.starts = newStarts(m)
	if pretrained.IsFolder(path) {
		return m, m.openFolder(o)
	}
	return m, m.openRun(o)
}

// openRun opens a run, a checkpoint or a model alone.
func (m *Model) openRun(o Options) (err error) {
	if o.Positions != "" {
		return fmt.Errorf("%s: positions: %q is of published models", m.path, o.Positions)
	}
	if len(o.IgnoreFields) > 0 {
		return fmt.Errorf("%s: %s: fields of published models alone are ignored", m.path, infile.Shorten(o.IgnoreFields[0]))
	}
	precision := o.Precision
	if o.Exchange != nil {
		precision = nn.Float32 // of the model that is exchanged first
	}
	if isAlone(m.path) {
		m.body, err = model.LoadIn(m.path, precision, o.Factories)
	} else {
		m.body, m.vocab, err = train.LoadModelWith(m.path, precision, o.Factories)
	}
	if err != nil {
		return err
	}
	functions, err := exchanged.Open(m.path)
	if err != nil {
		return err
	}
	if functions != nil {
		m.calibration = &functions.Calibration
	}
	m.stored, m.output = m.body.Config(), m.vocab
	if m.vocab == nil {
		m.vocabErr = fmt.Errorf("%s: the model has no vocabulary: it did not learn a text", m.path)
	}
	if o.Exchange != nil {
		if m.body, err = m.body.Exchanged(*o.Exchange); err == nil {
			err = m.body.Compress(o.Precision)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.path, err)
	}
	return nil
}

// isAlone reports whether path has a model as Save of package model writes it, without the
// manifest of a checkpoint.
func isAlone(path string) bool {
	_, weights := os.Stat(filepath.Join(path, model.WeightsFile))
	_, manifest := os.Stat(filepath.Join(path, "checkpoint.json"))
	return weights == nil && errors.Is(manifest, fs.ErrNotExist)
}

// openFolder opens a published model.
func (m *Model) openFolder(o Options) (err error) {
	if len(o.Factories) > 0 {
		return fmt.Errorf("%s: factories: there are %d, but a published model has no mechanism of your own; an exchange puts one in", m.path, len(o.Factories))
	}
	if m.folder, err = pretrained.OpenWith(m.path, pretrained.Options{Positions: o.Positions, Exchange: o.Exchange, Precision: o.Precision, IgnoreFields: o.IgnoreFields}); err != nil {
		return err
	}
	if m.stored = m.folder.Config(); m.stored.Inputs > 0 {
		m.vocabErr = fmt.Errorf("%s: the %s reads no texts", m.path, m.Family())
		return nil
	}
	rules, err := m.folder.ReadTextRules()
	if m.rulesErr = err; err == nil {
		m.rules = *rules
	}
	if words := m.folder.Tokenizer(); words != nil {
		m.vocab, m.output = token.NewTokenizerVocabulary(words), token.NewTokenizerVocabulary(m.folder.TargetTokenizer())
	} else {
		m.vocabErr = m.folder.TokenizerErr()
	}
	return nil
}

// CheckTexts returns an error unless the model reads texts, or the ids of a published model
// whose tokenizer is missing.
func (m *Model) CheckTexts() error {
	if m.folder == nil || m.folder.Config().Inputs > 0 {
		return m.vocabErr
	}
	return m.rulesErr
}

// Path returns the folder of the model.
func (m *Model) Path() string { return m.path }

// Model returns the model. A published model's short inputs no longer use packed weights after
// the call.
func (m *Model) Model() *model.Model {
	if m.folder != nil {
		return m.folder.Model()
	}
	return m.body
}

// Config returns the configuration of the model.
func (m *Model) Config() model.Config {
	if m.folder != nil {
		return m.folder.Config()
	}
	return m.body.Config()
}

// Published returns the published model; nil: the model is a run's.
func (m *Model) Published() *pretrained.Model { return m.folder }

// UnappliedRules returns the rules of generation of the folder that are not applied.
func (m *Model) UnappliedRules() []string { return m.rules.Unapplied }

// Family returns the model_type of a folder, otherwise farfield.
func (m *Model) Family() string {
	if m.folder != nil {
		return m.folder.Family()
	}
	return "farfield"
}

// CheckNextTokens returns an error unless the model predicts tokens.
func (m *Model) CheckNextTokens() error {
	switch c := m.Config(); {
	case m.folder != nil && !m.folder.HasLogits():
		return fmt.Errorf("%s: the %s has no head that predicts tokens", m.path, m.Family())
	case !c.IsCausal() || c.Outputs > 0 && c.Outputs != c.Vocab:
		return fmt.Errorf("%s: the %s does not predict next tokens", m.path, m.Family())
	}
	return nil
}

// Vocabulary returns the tokens of the model. It returns an error if a folder has no
// tokenizer, or one that is not read.
func (m *Model) Vocabulary() (*token.Vocabulary, error) { return m.vocab, m.vocabErr }

// Encode returns the tokens of text, with the special tokens of a text on request. Bytes
// that are not UTF-8 become U+FFFD where a tokenizer reads characters. It returns an error
// if there is no tokenizer or a character is not in the vocabulary.
func (m *Model) Encode(text string, special bool) ([]int32, error) {
	if m.vocab == nil {
		return nil, m.vocabErr
	}
	words := m.vocab.Tokenizer()
	switch {
	case words == nil:
		return m.vocab.Encode(nil, []byte(text))
	case m.folder != nil:
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return words.AppendIDs(nil, text, !special), nil
}

// EncodeContinuation returns the tokens of text behind a number of tokens, without special
// tokens. A space that the tokenizer puts before a text is left out, unless the tokens before
// it are only the special tokens of an empty text. It returns an error where Encode does.
func (m *Model) EncodeContinuation(text string, tokens int64) ([]int32, error) {
	if m.vocab == nil || m.vocab.Tokenizer() == nil || tokens <= int64(len(m.vocab.Tokenizer().AppendIDs(nil, "", false))) {
		return m.Encode(text, false)
	}
	if m.folder != nil {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return m.vocab.EncodeNext(nil, []byte(text))
}

// Bytes appends the bytes of a token inside a text to dst. Special tokens have none. Ids
// beyond the tokenizer, which fill the table of embeddings, have U+FFFD. Bytes
// returns an error if there is no tokenizer or id is not in its vocabulary.
func (m *Model) Bytes(dst []byte, id int32) ([]byte, error) {
	if m.vocab == nil {
		return dst, m.vocabErr
	}
	if int(id) >= m.output.Size() && int(id) < m.Config().Vocab {
		return append(dst, noText...), nil
	}
	return m.output.Decode(dst, id)
}

// SpecialToken returns the name of a special token of the tokenizer, such as [CLS]; "": it is none.
func (m *Model) SpecialToken(id int32) string {
	if m.vocab == nil || m.vocab.Tokenizer() == nil || !m.vocab.Tokenizer().IsSpecial(id) {
		return ""
	}
	return m.vocab.Tokenizer().Token(id)
}

// EndTokens returns the ids that end a text; nil: none.
func (m *Model) EndTokens() []int32 { return m.rules.EndTokens }

// ChatTemplate returns the template of messages in the language of Jinja; "": none.
func (m *Model) ChatTemplate() string { return m.rules.ChatTemplate }

// SpecialTokens returns texts of special tokens by names such as bos_token.
func (m *Model) SpecialTokens() map[string]string { return m.rules.SpecialTokens }

// Identity returns the SHA-256 of weights, configuration and tokenizer in hexadecimal digits, behind
// the precision and a colon unless it is float32. Models of equal identity compute the same bits from
// the same text on one machine. It returns an error if the configuration has no JSON.
func (m *Model) Identity() (string, error) {
	body := m.Model()
	config, err := json.Marshal(body.Config())
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
	part([]byte(body.WeightSum()))
	for _, p := range body.Constants().All() {
		b, _ := binary.Append(nil, binary.LittleEndian, p.Data) // fails for types of no fixed size alone
		part([]byte(p.Name))
		part(b)
	}
	if m.vocab != nil {
		vocab, err := m.vocab.MarshalJSON()
		if err != nil {
			return "", err
		}
		part(vocab)
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if p := body.Precision(); p != nn.Float32 {
		return p.String() + ":" + sum, nil
	}
	return sum, nil
}

// noText stands for an id of the model that is beyond its tokenizer.
const noText = "\ufffd"
