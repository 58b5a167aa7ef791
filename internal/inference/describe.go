package inference

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// Kind returns what the model is, in words.
func (m *Model) Kind() string {
	c := m.Config()
	if m.folder != nil {
		return fmt.Sprintf("published %s %s", m.Family(), c.Kind)
	}
	what := "run"
	if isAlone(m.path) {
		return "saved " + c.Kind
	}
	if filepath.Clean(train.RunFolder(m.path)) != filepath.Clean(m.path) {
		what = "checkpoint"
	}
	if config, err := train.RunConfig(train.RunFolder(m.path)); err == nil {
		what += " of the task " + config.Task
	}
	return fmt.Sprintf("%s, of kind %s", what, c.Kind)
}

// methods are the methods of farfield.Model in the order of Can, and whether a model has them.
var methods = []struct {
	name string
	has  func(m *Model) bool
}{
	{"Tokenize", func(m *Model) bool { return m.vocab != nil }},
	{"Embed", func(m *Model) bool { return m.vocab != nil && m.Config().Kind != model.EncoderDecoder }},
	{"Classify", func(m *Model) bool { p, err := m.predictor(); return err == nil && p.NeedsLines }},
	{"ClassifyFile", func(m *Model) bool { p, err := m.predictor(); return err == nil && !p.NeedsLines }},
	{"Score", func(m *Model) bool {
		return m.vocab != nil && m.hasSessions() && m.Config().Loss == model.CrossEntropy
	}},
	{"Generate", func(m *Model) bool {
		hasTargets := m.Config().Kind == model.EncoderDecoder && len(m.rules.StartTokens) > 0 && m.CheckNextTokens() == nil
		return m.vocab != nil && (hasTargets || m.hasSessions())
	}},
	{"Session", (*Model).hasSessions},
}

// hasSessions reports whether the model is a decoder whose texts are continued.
func (m *Model) hasSessions() bool { return m.CheckNextTokens() == nil && m.Config().HasSessions() }

// Can returns the methods of farfield.Model that the model has.
func (m *Model) Can() []string {
	var list []string
	for _, x := range methods {
		if x.has(m) {
			list = append(list, x.name)
		}
	}
	return list
}

// Has reports whether the model has a method of farfield.Model.
func (m *Model) Has(method string) bool {
	for _, x := range methods {
		if x.name == method {
			return x.has(m)
		}
	}
	return false
}

// Tokenize returns the tokens of text with special tokens, and the bytes of text under each. It
// returns an error if there is no tokenizer or a character is not in the vocabulary.
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
