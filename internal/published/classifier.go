package published

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tokenizer"
)

// Classifier is a published model with a head that classifies sequences.
type Classifier struct{ m *Model }

// OpenClassifier opens the folder dir as a classifier of sequences into the given classes, whatever
// head the folder has. With one class the model is a regression. If the folder is a classifier of
// the same classes in the same order, its head is kept. OpenClassifier returns an error where Open
// does, and if the family has no such head.
func OpenClassifier(dir string, classes []string) (*Classifier, error) {
	m, err := open(dir, Options{}, classes)
	if err != nil {
		return nil, err
	}
	return &Classifier{m}, nil
}

// Model returns the model. Weights that Lacking names are 0.
func (c *Classifier) Model() *model.Model { return c.m.body }

// Lacking returns the names of the weights that the model has and the folder has not, such as those
// of a new head.
func (c *Classifier) Lacking() (names []string) {
	for _, w := range c.m.plan.weights {
		if w.isNew {
			names = append(names, w.parts...)
		}
	}
	return names
}

// Tokenizer returns the tokenizer of the folder. It returns an error if there is none or it cannot
// be read.
func (c *Classifier) Tokenizer() (*tokenizer.Tokenizer, error) { return c.m.texts.words, c.m.texts.err }

// headText returns config.json with another head: of classes of sequences, or without classes
// of next tokens in place of no head.
func headText(text []byte, classes []string) ([]byte, error) {
	f, err := parseFields(text)
	if err != nil {
		return nil, err
	}
	family := f.text("model_type", "")
	var known []string
	f.decode("architectures", "a list of names", &known)
	var names map[head]string
	for _, row := range families {
		if row.name == family {
			names = row.architectures
		}
	}
	if names == nil || f.err != nil { // readPlan says what is wrong
		return text, nil
	}
	h, err := findHead(known, names)
	if err != nil {
		return nil, err
	}
	switch name, has := names[sequenceHead]; {
	case classes != nil && !has:
		return nil, fmt.Errorf("model_type: %s has no head for classes of sequences", family)
	case classes != nil:
		f.set("architectures", []string{name})
		f.setClasses(classes)
	case h == bodyHead && names[nextHead] != "":
		f.set("architectures", []string{names[nextHead]})
		f.set("tie_word_embeddings", true)
	default:
		return text, f.err
	}
	text, err = json.MarshalIndent(f.values, "", "  ")
	return text, errors.Join(err, f.err)
}

// set sets a member.
func (f *fields) set(name string, value any) {
	text, err := json.Marshal(value)
	if err != nil && f.err == nil {
		f.err = err
	}
	f.values[name] = text
}

// setClasses sets the names of classes. One class is a number.
func (f *fields) setClasses(classes []string) {
	for _, name := range []string{"num_labels", "_num_labels", "problem_type", "finetuning_task"} {
		delete(f.values, name)
	}
	if len(classes) == 1 {
		f.set("problem_type", "regression")
	}
	// The activation and the prompts of a cross-encoder belong to the classes before.
	delete(f.values, "sbert_ce_default_activation_function")
	delete(f.values, "sentence_transformers")
	labels, ids := describeClasses(classes)
	f.set("id2label", labels)
	f.set("label2id", ids)
}

// describeClasses returns id2label and label2id of config.json in the order of the classes. The
// package json would put key 10 before key 2.
func describeClasses(classes []string) (labels, ids orderedMembers) {
	last := map[string]int{}
	for i, name := range classes {
		labels = append(labels, member{strconv.Itoa(i), name})
		last[name] = i
	}
	for i, name := range classes {
		if last[name] == i { // of classes with one name the last counts
			ids = append(ids, member{name, i})
		}
	}
	return labels, ids
}

// member is a member of a JSON object.
type member struct {
	name  string
	value any
}

// orderedMembers is a JSON object whose members keep their order.
type orderedMembers []member

// MarshalJSON returns the object with its members in order.
func (o orderedMembers) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// hasClasses reports whether config.json is of a classifier of sequences with these classes.
func hasClasses(text []byte, classes []string) bool {
	var c struct {
		Architectures []string
		Names         map[string]string `json:"id2label"`
	}
	if json.Unmarshal(text, &c) != nil || len(c.Architectures) != 1 || len(c.Names) != len(classes) {
		return false
	}
	for i, name := range classes {
		if c.Names[strconv.Itoa(i)] != name {
			return false
		}
	}
	return strings.HasSuffix(c.Architectures[0], "ForSequenceClassification")
}

// CopyDescription copies the configuration, the tokenizer and the files beside them, without
// weights, from the folder from to the folder to. In config.json it sets the head that
// OpenClassifier reads for the classes; if classes is nil, a decoder without a head gets the head
// for next tokens. CopyDescription returns an error if config.json cannot be read, if the family
// has no such head, or if a file cannot be written.
func CopyDescription(to, from string, classes []string) error {
	text, err := infile.ReadBounded(filepath.Join(from, configFile), maxConfig)
	if err == nil && classes == nil {
		// The head that Open reads. A description has no weights, and its head already.
		if s, failed := openSource(from); failed == nil {
			text, _, err = resolveHead(text, s)
			s.close()
		}
	}
	if err == nil {
		text, err = headText(text, classes)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(from, configFile), err)
	}
	if err := CheckSides(from); err != nil {
		return err
	}
	if err := atomicfile.MakeFolder(to); err != nil {
		return err
	}
	for _, name := range slices.Concat(companions, tokenizerFiles) {
		if strings.Contains(name, "sentence") && name != "sentencepiece.bpe.model" || name == "modules.json" {
			continue // of vectors
		}
		if err := copyFile(from, to, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return atomicfile.WriteBytes(filepath.Join(to, configFile), text)
}

// WriteLike writes the model m to the folder dir, which transformers loads to the same outputs.
// description is a folder that CopyDescription wrote; it gives the configuration, the tokenizer and
// the names of the weights. A model with a linear head on pooled vectors, as training with frozen
// weights makes it, is no classifier of its family: it becomes a folder of sentence-transformers
// with a Dense module, whose vectors are the logits. WriteLike returns an error that names the
// differing field if m does not fit the description, if a layer has a function that no family has
// (model.Config.LayerMechanisms), if dir has weights, tokenizer files or files beside them that
// description lacks, or if a file cannot be read or written.
func WriteLike(dir, description string, m *model.Model) error {
	if err := checkWritable(m); err != nil {
		return err
	}
	path := filepath.Join(description, configFile)
	text, err := infile.ReadBounded(path, maxConfig)
	if err != nil {
		return err
	}
	_, p, err := readPlan(text, len(m.Params().All()))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c := m.Config()
	c.Context = p.config.Context // of the samples that the model is trained on
	if c.Loss == model.Squared && c.Outputs == 1 {
		c.Loss = ""
	}
	hasVectorHead := false
	if err := compareConfigs(p.config, c); err != nil {
		body, q, other := vectorBody(text, m)
		if other != nil {
			return fmt.Errorf("the model is no longer of its family: %w", err)
		}
		text, p, hasVectorHead = body, q, true
	}
	if text, err = setPrecision(text, m.Precision()); err != nil {
		return err
	}
	file := fileOf(m.Precision())
	err = checkTarget(dir, func(name string) bool {
		_, err := os.Stat(filepath.Join(description, name))
		switch name {
		case weightsFile, bytesFile: // another than the one that is written would be read in its place
			return name == file
		case indexFile:
			return err == nil && file == weightsFile
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if err := CopyDescription(dir, description, nil); err != nil {
		return err
	}
	if err := p.write(dir, m); err != nil {
		return err
	}
	if hasVectorHead {
		if err := writeVectorModules(dir, m); err != nil {
			return err
		}
	}
	return atomicfile.WriteBytes(filepath.Join(dir, configFile), text)
}
