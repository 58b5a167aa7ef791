// Package inference opens the folder of a model once, for everything that the model can do: make
// vectors, predict classes, score and continue texts. The folder may be a run, a checkpoint, a
// model that package model saved, or a published model in the Hugging Face layout. farfield.Model,
// the verbs of the command and the server are built on it.
package inference

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/train"
)

// Options holds the choices of Open.
type Options struct {
	Exchange  *model.Exchange          // puts another attention function into layers; nil: the model's own stay
	Positions string                   // for a published model, as in published.Options
	Precision nn.Precision             // how weights are held
	Factories map[string]model.Factory // mechanisms of your own by name, as for model.LoadWith
	// IgnoreFields names fields of a published model's config.json that are read as if they were
	// absent.
	IgnoreFields []string
}

// Model is an open model. Its methods may be called concurrently.
type Model struct {
	path   string
	body   *model.Model     // model of a run, of a checkpoint or of package model
	folder *published.Model // published model; nil: it is body
	stored model.Config     // configuration as stored in the folder, without Options.Exchange

	vocab, output *token.Vocabulary // tokens of inputs and of targets; nil: vocabErr says why
	vocabErr      error
	rules         published.TextRules
	rulesErr      error

	calibration *exchanged.Calibration // of an exchanged run; nil for other models
	looked      atomic.Int64           // number of texts that were long enough to measure the distance of their keys
	isNoted     atomic.Bool            // the warning of far keys was written

	predictor func() (*Predictor, error) // calls openPredictor once
	starts    starts
}

// Open opens the model in the folder path. It returns an error if there is none, if a file is
// damaged, or if an option does not fit the model.
func Open(path string, o Options) (*Model, error) {
	m := &Model{path: path}
	m.predictor = sync.OnceValues(m.openPredictor)
	m.starts = newStarts(m)
	if published.IsFolder(path) {
		return m, m.openFolder(o)
	}
	return m, m.openRun(o)
}

// openRun opens a run, a checkpoint or a model alone.
func (m *Model) openRun(o Options) (err error) {
	if o.Positions != "" {
		return fault.Mark(fault.ErrInput, fmt.Errorf("%s: positions: %q is of published models", m.path, o.Positions))
	}
	if len(o.IgnoreFields) > 0 {
		return fault.Mark(fault.ErrInput, fmt.Errorf("%s: %s: fields of published models alone are ignored", m.path, infile.Shorten(o.IgnoreFields[0])))
	}
	precision := o.Precision
	if o.Exchange != nil {
		precision = nn.Float32 // of the model that is exchanged first
	}
	if isAlone(m.path) {
		m.body, err = model.LoadIn(m.path, precision, o.Factories)
	} else {
		m.body, m.vocab, err = checkpoint.LoadModel(m.path, precision, o.Factories, train.ReadCheckpoint)
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
	return weights == nil && !checkpoint.Is(path)
}

// LoadRun reads the model of a run or a checkpoint, and the vocabulary of its text, which is nil for
// other tasks. It returns an error if path is neither, or if a file is damaged.
func LoadRun(path string) (*model.Model, *token.Vocabulary, error) {
	return checkpoint.LoadModel(path, nn.Float32, nil, train.ReadCheckpoint)
}

// openFolder opens a published model.
func (m *Model) openFolder(o Options) (err error) {
	if len(o.Factories) > 0 {
		f, used := model.Factory{}, false
		if o.Exchange != nil {
			f, used = o.Factories[o.Exchange.Mechanism]
		}
		if !used {
			return fault.Mark(fault.ErrInput, fmt.Errorf("%s: WithFactories: has %s, but a published model has no mechanism of your own, and WithMechanism names none of these",
				m.path, strings.Join(slices.Sorted(maps.Keys(o.Factories)), ", ")))
		}
		if x := *o.Exchange; x.Factory.IsZero() {
			x.Factory, o.Exchange = f, &x
		}
	}
	if m.folder, err = published.OpenWith(m.path, published.Options{Positions: o.Positions, Exchange: o.Exchange, Precision: o.Precision, IgnoreFields: o.IgnoreFields}); err != nil {
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

// CheckTexts returns an error unless the model reads texts. A published model whose tokenizer is
// missing reads their ids.
func (m *Model) CheckTexts() error {
	if m.folder == nil || m.folder.Config().Inputs > 0 {
		return m.vocabErr
	}
	return m.rulesErr
}

// Path returns the folder of the model.
func (m *Model) Path() string { return m.path }

// Model returns the model of package model. After the call, short inputs of a published model no
// longer use packed weights.
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

// Published returns the published model, or nil if the model is from a run.
func (m *Model) Published() *published.Model { return m.folder }

// UnappliedRules returns the rules of generation in the folder that are not applied.
func (m *Model) UnappliedRules() []string { return m.rules.Unapplied }

// Family returns the model_type of a published folder, and "farfield" for other models.
func (m *Model) Family() string {
	if m.folder != nil {
		return m.folder.Family()
	}
	return "farfield"
}

// CheckNextTokens returns an error unless the model predicts next tokens.
func (m *Model) CheckNextTokens() error {
	switch c := m.Config(); {
	case m.folder != nil && !m.folder.HasLogits():
		return fmt.Errorf("%s: the %s has no head that predicts tokens", m.path, m.Family())
	case !c.IsCausal() || c.Outputs > 0 && c.Outputs != c.Vocab:
		return fmt.Errorf("%s: the %s does not predict next tokens", m.path, m.Family())
	}
	return nil
}

// Vocabulary returns the tokens of the model. It returns an error if a folder has no tokenizer, or
// one that cannot be read.
func (m *Model) Vocabulary() (*token.Vocabulary, error) { return m.vocab, m.vocabErr }

// Encode returns the tokens of text. If special is set, they include the special tokens of a text.
// In a published folder with a tokenizer, runs of bytes that are not UTF-8 become U+FFFD. Encode
// returns an error if there is no tokenizer or the vocabulary lacks a character.
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

// EncodeContinuation returns the tokens of a text that continues a number of tokens, without
// special tokens. It leaves out a space that the tokenizer puts before a text, unless the tokens so
// far are only the special tokens of an empty text. It returns an error where Encode does.
func (m *Model) EncodeContinuation(text string, tokens int64) ([]int32, error) {
	if m.vocab == nil || m.vocab.Tokenizer() == nil || tokens <= int64(len(m.vocab.Tokenizer().AppendIDs(nil, "", false))) {
		return m.Encode(text, false)
	}
	if m.folder != nil {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	return m.vocab.EncodeNext(nil, []byte(text))
}

// Bytes appends to dst the bytes of a token inside a text. A special token has none. Ids beyond the
// tokenizer, which only fill the table of embeddings, have those of U+FFFD. Bytes returns an error
// if there is no tokenizer or id is outside its vocabulary.
func (m *Model) Bytes(dst []byte, id int32) ([]byte, error) {
	if m.vocab == nil {
		return dst, m.vocabErr
	}
	if int(id) >= m.output.Size() && int(id) < m.Config().Vocab {
		return append(dst, noText...), nil
	}
	return m.output.Decode(dst, id)
}

// SpecialToken returns the name of a special token, such as [CLS], and "" for any other token.
func (m *Model) SpecialToken(id int32) string {
	if m.vocab == nil || m.vocab.Tokenizer() == nil || !m.vocab.Tokenizer().IsSpecial(id) {
		return ""
	}
	return m.vocab.Tokenizer().Token(id)
}

// EndTokens returns the ids that end a text, or nil if there are none.
func (m *Model) EndTokens() []int32 { return m.rules.EndTokens }

// ChatTemplate returns the template of messages, in the language Jinja; "": none.
func (m *Model) ChatTemplate() string { return m.rules.ChatTemplate }

// SpecialTokens returns the texts of special tokens by name, such as bos_token.
func (m *Model) SpecialTokens() map[string]string { return m.rules.SpecialTokens }

// Identity returns the SHA-256 of weights, configuration and tokenizer in hexadecimal digits.
// Unless the precision is float32, it is put before them with a colon. On one machine, models of
// equal identity compute the same bits from the same text. Identity returns an error if the
// configuration cannot be encoded as JSON.
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
