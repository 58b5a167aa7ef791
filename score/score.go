package score

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/token"
)

// LineScore is the score of a line or of another part of a text.
type LineScore struct {
	Bits  float64 `json:"bits"`  // of the line and its line break
	Bytes int64   `json:"bytes"` // likewise
}

// PerByte returns the bits of a byte, 0 for an empty line.
func (l LineScore) PerByte() float64 { return l.Bits / float64(max(l.Bytes, 1)) }

// Add returns the score of two parts of a text together.
func (l LineScore) Add(next LineScore) LineScore {
	return LineScore{l.Bits + next.Bits, l.Bytes + next.Bytes}
}

// Scorer is a text in progress, which begins after the tokens with which the tokenizer
// begins a text, without them after a line break. Its methods must not run
// concurrently; clones may.
//
// A model with a table of learned positions sees windows of their number. When a window is
// full, the next one begins half a window later, so that each token follows half a window
// at least, as far as the text has it.
type Scorer struct {
	model     *model.Model[float32]
	vocab     *token.Vocabulary
	session   *model.Session[float32]
	pending   int32  // token not yet in the session
	starting  int64  // tokens in the session of an empty text
	weightSum string // model.WeightSum; "": not computed yet

	window  int     // learned positions; 0: a text has any length
	history []int32 // tokens in the session of a model with a window
	dropped int64   // tokens of the text that the session no longer has

	failure error // after which the session does not have the text; nil: it has

	tokens, targets []int32
	lineEnds        []int // end of each line in targets
	nats            []float64
	singleLine      [1]LineScore
}

// New returns the scorer of an empty text. It returns an error if m is no decoder of the
// tokens of vocab, or if it learned fewer than two positions.
func New(m *model.Model[float32], vocab *token.Vocabulary) (*Scorer, error) {
	if m == nil {
		return nil, errors.New("model: it is nil")
	}
	if vocab == nil {
		return nil, errors.New("vocabulary: missing; the model's is needed")
	}
	if n := m.Config().Vocab; vocab.Size() > n || vocab.Size() < n && vocab.Tokenizer() == nil {
		return nil, fmt.Errorf("vocabulary: has %d tokens, the model %d", vocab.Size(), n)
	}
	if c := m.Config(); c.Outputs != 0 && c.Outputs != c.Vocab || c.Loss != model.CrossEntropy {
		return nil, fmt.Errorf("model: has %d outputs and the loss %q, tokens are scored by the cross-entropy of %d", c.Outputs, c.Loss, c.Vocab)
	}
	window := 0
	if m.Config().Positions == model.Learned {
		if window = m.Config().LearnedPositions(); window < 2 {
			return nil, fmt.Errorf("positions: the model learned %d, a window needs 2", window)
		}
	}
	session, err := m.NewSession(1)
	if err != nil {
		return nil, err
	}
	s := &Scorer{model: m, vocab: vocab, session: session, window: window}
	if err := s.Reset(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reset forgets the text. It returns an error if the vocabulary has no line break, or the
// tokens that begin a text fail.
func (s *Scorer) Reset() error {
	s.session.Reset()
	s.failure = nil
	start := s.tokens[:0]
	if words := s.vocab.Tokenizer(); words != nil {
		start = words.AppendStart(start)
	}
	if len(start) == 0 {
		var err error
		if start, err = s.vocab.Encode(start, []byte("\n")); err != nil || len(start) == 0 {
			return errors.Join(errors.New("vocabulary: has no end of a line"), err)
		}
	}
	n := len(start) - 1
	s.pending, s.starting, s.dropped = start[n], int64(n), 0
	if s.history = s.history[:0]; n == 0 {
		return nil
	}
	if s.window > 0 {
		s.history = append(s.history, start[:n]...)
	}
	_, err := s.session.Step(start[:n], n)
	return err
}

// Clone returns a scorer of an empty text with the same weights. It returns an error if
// Reset does.
func (s *Scorer) Clone() (*Scorer, error) {
	c := &Scorer{model: s.model, vocab: s.vocab, session: s.session.Clone(), weightSum: s.weightSum, window: s.window}
	return c, c.Reset()
}

// ScoreText adds text, any part of a line or of several lines, and returns its score. It
// returns an error, and adds nothing, if the text is not in the vocabulary. After a loss
// that is not finite the text is lost: every call returns its error until Reset.
func (s *Scorer) ScoreText(text []byte) (LineScore, error) {
	lines, err := s.ScoreLines(s.singleLine[:0], text)
	if err != nil {
		return LineScore{}, err
	}
	return lines[0], nil
}

// ScoreLines adds lines, any successive parts of a text, and appends the score of each to
// dst. Scores equal the scores of ScoreText; lines together take less time. It returns an
// error if a line is not in the vocabulary, or its tokenizer changes bytes; the lines
// before it are added and appended. A loss that is not finite is an error as for ScoreText.
func (s *Scorer) ScoreLines(dst []LineScore, lines ...[]byte) ([]LineScore, error) {
	if s.failure != nil {
		return dst, s.failure
	}
	s.targets, s.lineEnds = s.targets[:0], s.lineEnds[:0]
	var refused error
	isEmpty := s.Tokens() == s.starting
	for _, text := range lines {
		all, err := s.vocab.EncodeExact(s.targets, text, !isEmpty || len(s.targets) > 0)
		if err != nil {
			refused = err
			break
		}
		s.targets, s.lineEnds = all, append(s.lineEnds, len(all))
	}
	n := len(s.targets)
	if n > 0 {
		s.tokens = append(append(s.tokens[:0], s.pending), s.targets[:n-1]...)
		s.nats = slices.Grow(s.nats[:0], n)[:n]
		if s.failure = s.setLosses(s.nats, s.tokens, s.targets); s.failure != nil {
			return dst, s.failure
		}
		s.pending = s.targets[n-1]
	}
	first := 0
	for i, end := range s.lineEnds {
		l := LineScore{Bytes: int64(len(lines[i]))}
		for _, x := range s.nats[first:end] {
			l.Bits += x / math.Ln2
		}
		dst, first = append(dst, l), end
	}
	return dst, refused
}

// setLosses adds tokens to the session, and sets nats to the losses of targets. It begins a
// new window where the session's is full.
func (s *Scorer) setLosses(nats []float64, tokens, targets []int32) error {
	if s.window == 0 {
		return s.session.Losses(nats, tokens, targets, len(tokens))
	}
	for len(tokens) > 0 {
		room := s.window - 1 - len(s.history) // the last position has the last target
		if room <= 0 {
			if err := s.slide(); err != nil {
				return err
			}
			continue
		}
		n := min(room, len(tokens))
		if err := s.session.Losses(nats[:n], tokens[:n], targets[:n], n); err != nil {
			return err
		}
		s.history = append(s.history, tokens[:n]...)
		nats, tokens, targets = nats[n:], tokens[n:], targets[n:]
	}
	return nil
}

// slide begins the window half a window later.
func (s *Scorer) slide() error {
	stride := s.window / 2
	s.dropped += int64(stride)
	s.history = append(s.history[:0], s.history[stride:]...)
	s.session.Reset()
	if len(s.history) == 0 {
		return nil
	}
	_, err := s.session.Step(s.history, len(s.history))
	return err
}

// Bytes returns the memory of the recurrent state or KV cache.
func (s *Scorer) Bytes() int64 { return s.session.Bytes() }

// Tokens returns the length of the text.
func (s *Scorer) Tokens() int64 { return s.dropped + s.session.Tokens() }
