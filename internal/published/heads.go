package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
)

// resolveHead returns config.json as transformers understands it together with the weights s: with
// the head that the files have even if the configuration names no architecture, and with untied
// outputs if they differ from the embedding, even if the configuration ties them. notes say how the
// result differs from the configuration.
func resolveHead(text []byte, s *source) (resolved []byte, notes []string, err error) {
	f, err := parseFields(text)
	if err != nil {
		return text, nil, nil // readPlan returns the error
	}
	var classes []string
	f.decode("architectures", "a list of names", &classes)
	family := f.text("model_type", "")
	changed := false
	if f.err == nil && len(classes) == 0 {
		for _, row := range families {
			if row.name != family || row.architectures[bodyHead] == "" {
				continue
			}
			for _, h := range []head{nextHead, maskedHead} {
				if name := row.architectures[h]; name != "" && hasHead(f, name, s) {
					f.set("architectures", []string{name})
					notes, changed = append(notes, fmt.Sprintf("%s names no architecture; the files have the head of %s", configFile, name)), true
					break
				}
			}
		}
	}
	if f.err != nil {
		return text, nil, nil
	}
	if name, embedding := f.tiedPair(s); name != "" {
		differs, err := s.differ(name, embedding)
		if err != nil {
			return nil, nil, err
		}
		if differs {
			f.set("tie_word_embeddings", false)
			notes, changed = append(notes, fmt.Sprintf("%s: differs from the embedding, to which tie_word_embeddings of %s ties it; the files have the outputs", name, configFile)), true
		}
	}
	if !changed {
		return text, nil, nil
	}
	text, err = json.MarshalIndent(f.values, "", "  ")
	return text, notes, errors.Join(err, f.err)
}

// hasHead reports whether the files have the head of an architecture.
func hasHead(f *fields, architecture string, s *source) bool {
	f.set("architectures", []string{architecture})
	text, err := json.Marshal(f.values)
	delete(f.values, "architectures")
	if err != nil {
		return false
	}
	_, p, err := readPlan(text, len(s.names))
	if err != nil {
		return false // readPlan of the body says so, too
	}
	return slices.ContainsFunc(p.weights, func(w weight) bool { return w.isOfHead() }) && !p.lacksHead(s.names) || p.tiedOutputs(s) != ""
}

// tiedOutputs returns the name of the tensor of the files that repeats the embedding as the
// outputs of words; "": there is none.
func (p *plan) tiedOutputs(s *source) string {
	if !p.scores || !p.config.Tied || p.config.Kind == model.EncoderDecoder {
		return ""
	}
	for i := range p.weights {
		w := &p.weights[i]
		if len(w.parts) != 1 || w.parts[0] != "embed.weight" {
			continue
		}
		for _, name := range s.names {
			if slices.Contains(w.aliases, p.reduce(name)) {
				return name
			}
		}
	}
	return ""
}

// tiedPair returns the names of the outputs that the configuration ties to the embedding, and of
// the embedding; "": the files do not have both.
func (f *fields) tiedPair(s *source) (outputs, embedding string) {
	text, err := json.Marshal(f.values)
	if err != nil {
		return "", ""
	}
	_, p, err := readPlan(text, len(s.names))
	if err != nil {
		return "", "" // openFolder returns the error
	}
	outputs = p.tiedOutputs(s)
	if outputs == "" {
		return "", ""
	}
	for _, w := range p.weights {
		if len(w.parts) != 1 || w.parts[0] != "embed.weight" {
			continue
		}
		for _, other := range s.names {
			if p.reduce(other) == w.name {
				return outputs, other
			}
		}
	}
	return "", ""
}

// differ reports whether two tensors of one shape differ. match finds out about shapes.
func (s *source) differ(name, embedding string) (bool, error) {
	_, a, err := s.header(name)
	if err != nil {
		return false, err
	}
	_, b, err := s.header(embedding)
	if err != nil || !slices.Equal(a, b) {
		return false, err
	}
	other := make([]float32, readElements)
	stored, err := s.open[s.index[embedding]].OpenStored(embedding)
	if err != nil {
		return false, err
	}
	err = s.visit(name, func(start int, x []float32) error {
		if err := array.ReadFloats(stored, other[:len(x)], int64(start)); err != nil {
			return err
		}
		if !slices.Equal(x, other[:len(x)]) {
			return errChanged
		}
		return nil
	})
	if errors.Is(err, errChanged) {
		return true, nil
	}
	return false, err
}

// Notes returns remarks about what the files of the folder have and the model does not follow: a
// head that config.json does not name, files or tensors that differ from the index, a tokenizer
// that differs from the table of tokens or from its settings, fields that are ignored, outputs that
// config.json ties to the embedding although they differ, and heads for other tasks.
func (m *Model) Notes() []string {
	notes := slices.Clone(m.notes)
	notes = append(notes, m.texts.notes...)
	if names := m.unreadHeads(); len(names) > 0 {
		notes = append(notes, fmt.Sprintf("not read are %s, of the head of another task", infile.Shorten(strings.Join(names, ", "))))
	}
	return notes
}

// unreadHeads returns the names of the tensors that are of other heads than the model's.
func (m *Model) unreadHeads() (names []string) {
	for _, x := range m.stored {
		if key := m.plan.reduce(x.name); x.weight == nil && !isBuffer(key) && !strings.HasPrefix(key, "pooler.") && m.plan.isUnused(key) {
			names = append(names, x.name)
		}
	}
	return names
}
