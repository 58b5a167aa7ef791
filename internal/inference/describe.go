package inference

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// Kind says in words what the model is, such as "published bert encoder".
func (m *Model) Kind() string {
	c := m.Config()
	if m.folder != nil {
		return fmt.Sprintf("published %s %s", m.Family(), c.Kind)
	}
	what := "run"
	if isAlone(m.path) {
		return "saved " + string(c.Kind)
	}
	if filepath.Clean(train.RunFolder(m.path)) != filepath.Clean(m.path) {
		what = "checkpoint"
	}
	if config, err := train.RunConfig(train.RunFolder(m.path)); err == nil {
		what += " of the task " + config.Task
	}
	return fmt.Sprintf("%s, of kind %s", what, c.Kind)
}

// methods are the methods of farfield.Model in the order of Can, and why a model does not have them.
var methods = []struct {
	name  string
	check func(m *Model) error
}{
	{"Tokenize", func(m *Model) error { return m.vocabErr }},
	{"Embed", func(m *Model) error {
		switch {
		case m.vocab == nil:
			return m.vocabErr
		case m.Config().Kind == model.EncoderDecoder:
			return fmt.Errorf("%s: the %s has an encoder and a decoder, and no vector of a text", m.path, m.Family())
		case m.folder != nil:
			return m.folder.CheckVectors()
		}
		return m.vocabErr
	}},
	{"Classify", func(m *Model) error { return m.checkInputs(true) }},
	{"ClassifyFile", func(m *Model) error { return m.checkInputs(false) }},
	{"Score", func(m *Model) error {
		if loss := m.Config().Loss; loss != model.CrossEntropy {
			return fmt.Errorf("%s: the model loses %s, not bits", m.path, loss)
		}
		return cmp.Or(m.checkSessions(), m.vocabErr)
	}},
	{"Generate", func(m *Model) error {
		switch {
		case m.Config().Kind != model.EncoderDecoder:
			return cmp.Or(m.checkSessions(), m.vocabErr)
		case len(m.rules.StartTokens) == 0:
			return fmt.Errorf("%s: decoder_start_token_id: is missing", m.path)
		}
		return cmp.Or(m.CheckNextTokens(), m.vocabErr)
	}},
	{"Session", (*Model).checkSessions},
}

// checkInputs returns an error unless the model predicts of lines of text, or of files.
func (m *Model) checkInputs(isLine bool) error {
	p, err := m.predictor()
	if err == nil && p.NeedsLines != isLine {
		err = fmt.Errorf("%s: an input is %s", m.path, p.Input)
	}
	return err
}

// checkSessions returns an error unless the model is a decoder whose texts are continued.
func (m *Model) checkSessions() error {
	err := m.CheckNextTokens()
	if err == nil && !m.Config().HasSessions() {
		err = fmt.Errorf("%s: the %s has no sessions", m.path, m.Family())
	}
	return err
}

// Can returns the names of the methods of farfield.Model that the model has.
func (m *Model) Can() []string {
	var list []string
	for _, x := range methods {
		if x.check(m) == nil {
			list = append(list, x.name)
		}
	}
	return list
}

// Check returns an error unless the model has the given method of farfield.Model.
func (m *Model) Check(method string) error {
	for _, x := range methods {
		if x.name == method {
			return x.check(m)
		}
	}
	return fmt.Errorf("there is no method %s", method)
}

// Tokenize returns the tokens of text with special tokens, and the first byte and end of each token
// in text. It returns an error if there is no tokenizer or the vocabulary lacks a character.
func (m *Model) Tokenize(text string) (ids []int32, offsets [][2]int, err error) {
	if m.vocab == nil {
		return nil, nil, m.vocabErr
	}
	if words := m.vocab.Tokenizer(); words != nil {
		valid := strings.ToValidUTF8(text, "\ufffd")
		e := words.Encode(valid)
		offsets = slices.Clone(e.Offsets)
		moveOffsets(offsets, text, valid)
		return e.IDs, offsets, nil
	}
	if ids, err = m.vocab.Encode(nil, []byte(text)); err != nil {
		return nil, nil, err
	}
	at := 0
	for range ids {
		size := 1
		if len(ids) < len(text) { // tokens are characters
			_, size = utf8.DecodeRuneInString(text[at:])
		}
		offsets = append(offsets, [2]int{at, at + size})
		at += size
	}
	return ids, offsets, nil
}
