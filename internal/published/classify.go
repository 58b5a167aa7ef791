package published

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/tokenizer"
)

// ClassKind says what a head of classes computes.
type ClassKind int

// The kinds of heads of classes.
const (
	NoClasses   ClassKind = iota // the model has no such head
	SingleLabel                  // probabilities of a text's classes add up to 1
	MultiLabel                   // each class has a probability of its own
	Regression                   // the outputs of a text are numbers
	TokenLabels                  // each token has a class
)

// ClassKind returns the kind of the head. A head with one output is a Regression, as with
// problem_type regression.
func (m *Model) ClassKind() ClassKind {
	switch m.plan.head {
	case tokenHead:
		return TokenLabels
	case sequenceHead:
		f, err := parseFields(m.text)
		if err != nil { // readPlan read the same text
			return SingleLabel
		}
		switch kind := f.text("problem_type", ""); {
		case kind == "multi_label_classification":
			return MultiLabel
		case kind == "regression" || m.plan.config.Outputs == 1:
			return Regression
		}
		return SingleLabel
	}
	return NoClasses
}

// Labels returns the names of the classes by id2label of config.json, with LABEL_i for a class
// without a name. It returns nil if the model has no head of classes.
func (m *Model) Labels() []string {
	if m.ClassKind() == NoClasses {
		return nil
	}
	names := map[string]string{}
	if f, err := parseFields(m.text); err == nil {
		f.decode("id2label", "an object of names", &names)
	}
	list := make([]string, m.plan.config.Outputs)
	for i := range list {
		name, ok := names[strconv.Itoa(i)]
		if !ok {
			name = "LABEL_" + strconv.Itoa(i)
		}
		list[i] = name
	}
	return list
}

// ClassScores holds the outputs of a head of classes for one text.
type ClassScores struct {
	Logits  []float32 // [classes], with TokenLabels [tokens·classes]
	Offsets [][2]int  // TokenLabels: first byte and end of each token in the text
	Tokens  int       // tokens of the text with special tokens, before it was cut

	IsTruncated bool // the text has more tokens than learned positions
}

// CheckClasses returns an error unless Classify can read texts: the model needs a head of classes
// and a tokenizer.
func (m *Model) CheckClasses() error {
	switch {
	case m.ClassKind() == NoClasses:
		if names := m.unreadHeads(); len(names) > 0 {
			return fmt.Errorf("%s: the %s has no head of classes: the files have %s, but architectures of %s does not name a head with it", m.dir, m.family, infile.Shorten(strings.Join(names, ", ")), configFile)
		}
		return fmt.Errorf("%s: the %s has no head of classes", m.dir, m.family)
	case m.plan.vision != nil:
		return fmt.Errorf("%s: the %s reads images; forward takes them as pixel_values", m.dir, m.family)
	case m.texts.words == nil:
		return m.texts.err
	}
	_, err := m.activation()
	return err
}

// Classify returns the outputs of the head for each text. A text with more tokens than
// learned positions is cut. Special tokens have no rows. Classify returns an error if
// CheckClasses does, a text has no tokens, an output is not finite, or ctx ends.
func (m *Model) Classify(ctx context.Context, texts []string) ([]ClassScores, error) {
	return m.classify(ctx, len(texts), func(i int) (tokenizer.Encoding, int, error) { return m.texts.encode(texts[i], m.texts.limit) })
}

// ClassifyPairs is Classify for pairs of texts. Models with token types get one type for each text
// of a pair. If a pair is too long, the longer text is cut first. ClassifyPairs returns an error
// where Classify does, and if the head labels tokens.
func (m *Model) ClassifyPairs(ctx context.Context, pairs [][2]string) ([]ClassScores, error) {
	if m.ClassKind() == TokenLabels {
		return nil, fmt.Errorf("%s: the %s labels tokens of a text, not pairs", m.dir, m.family)
	}
	return m.classify(ctx, len(pairs), func(i int) (tokenizer.Encoding, int, error) {
		return m.texts.encodePair(pairs[i][0], pairs[i][1], m.texts.limit)
	})
}

// classify returns the outputs of the head for n texts. encode returns the tokens of a text
// and their number before a cut.
func (m *Model) classify(ctx context.Context, n int, encode func(i int) (tokenizer.Encoding, int, error)) ([]ClassScores, error) {
	if err := m.CheckClasses(); err != nil {
		return nil, err
	}
	scores := make([]ClassScores, n)
	list := make([]tokenizer.Encoding, n)
	for i := range list {
		var err error
		if list[i], scores[i].Tokens, err = encode(i); err != nil {
			return nil, fmt.Errorf("text %d: %w", i, err)
		}
		scores[i].IsTruncated = scores[i].Tokens > len(list[i].IDs)
	}
	return scores, m.texts.eachBatch(list, func(texts []int, in *Input) error {
		out, err := m.Forward(ctx, in)
		if err != nil {
			return err
		}
		logits, err := out.Logits.Float32()
		if err != nil {
			return err
		}
		for _, x := range logits {
			if x-x != 0 {
				return errors.New("logits: one is not finite")
			}
		}
		for i, text := range texts {
			m.texts.setScores(&scores[text], &list[text], m.plan, logits[i*len(logits)/in.B:][:len(logits)/in.B])
		}
		return nil
	})
}

// setScores sets the scores of a text from the logits of its row of a batch.
func (r *textReader) setScores(s *ClassScores, e *tokenizer.Encoding, p *plan, logits []float32) {
	n := p.config.Outputs
	if p.head != tokenHead {
		s.Logits = append(s.Logits, logits...)
		return
	}
	for i := range e.IDs {
		if !r.isTemplate(e, i) {
			s.Logits = append(s.Logits, logits[i*n:][:n]...)
			s.Offsets = append(s.Offsets, e.Offsets[i])
		}
	}
}

// Numbers returns the outputs of a Regression for a text [outputs]: the logits, after the
// activation that the folder stores for a cross-encoder. If it stores none, a single output gets a
// sigmoid unless problem_type is regression, as in transformers and sentence-transformers.
// CheckClasses returns an error if the activation is not supported.
func (m *Model) Numbers(s *ClassScores) []float64 {
	// CheckClasses has returned the error, after which there are no scores.
	activation, _ := m.activation()
	numbers := make([]float64, len(s.Logits))
	for i, x := range s.Logits {
		if numbers[i] = float64(x); activation == sigmoidActivation {
			numbers[i] = sigmoid(numbers[i])
		}
	}
	return numbers
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// Probabilities returns the most probable class of a text, the first among equals, and the
// probabilities of all classes [classes]. They are a softmax of the logits. With MultiLabel, or if
// a cross-encoder stores a sigmoid, they are a sigmoid of each logit.
func (m *Model) Probabilities(s *ClassScores) (class int, probabilities []float64) {
	probabilities = make([]float64, len(s.Logits))
	for i, x := range s.Logits {
		if x > s.Logits[class] {
			class = i
		}
	}
	// CheckClasses has returned the error, after which there are no scores.
	activation, _ := m.activation()
	if m.ClassKind() == MultiLabel || activation == sigmoidActivation {
		for i, x := range s.Logits {
			probabilities[i] = sigmoid(float64(x))
		}
		return class, probabilities
	}
	sum := 0.
	for i, x := range s.Logits {
		probabilities[i] = math.Exp(float64(x) - float64(s.Logits[class]))
		sum += probabilities[i]
	}
	for i := range probabilities {
		probabilities[i] /= sum
	}
	return class, probabilities
}
