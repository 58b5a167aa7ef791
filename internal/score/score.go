package score

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
)

// LineScore holds the bits of a line or of another part of a text.
type LineScore struct {
	Bits  float64 `json:"bits"`  // bits of the line with its line break
	Bytes int64   `json:"bytes"` // bytes of the line with its line break
}

// PerByte returns the bits a byte, or 0 for an empty line.
func (l LineScore) PerByte() float64 { return l.Bits / float64(max(l.Bytes, 1)) }

// Add returns the score of two parts of a text together.
func (l LineScore) Add(next LineScore) LineScore {
	return LineScore{l.Bits + next.Bits, l.Bytes + next.Bytes}
}

// Scorer is a text in progress. It starts after the tokens with which the tokenizer begins a text,
// or, if there are none, after a line break. Its methods must not be called concurrently; a clone
// is independent.
//
// A model predicts badly beyond the number of tokens that it was trained with. A longer text is
// therefore read in windows of that number (SetWindow). Each window starts with the tokens that
// begin a text and repeats the last quarter of the window before, so that each token is predicted
// from at least a quarter of a window.
type Scorer struct {
	model   *model.Model // has memory of its own for passes
	vocab   *token.Vocabulary
	session *model.Session // reads a text that fits a window, or any text if there are no windows
	pending int32          // token that the session has not read yet
	begin   []int32        // tokens with which the tokenizer begins a text
	window  int            // tokens in a window; 0: the session reads the whole text

	tokens int64   // number of tokens of the text, without begin
	inputs []int32 // begin, and the tokens from the current window on
	first  int     // inputs after begin that are in the current window
	scored int     // inputs of the current window whose next tokens are scored

	failure error // error after which the text is lost; nil: it is not

	steps, targets []int32
	lineEnds       []int // end of each line in targets
	nats           []float64
	singleLine     [1]LineScore

	batch  model.Batch // batch of windows
	losses []float64
}

// batchTokens bounds the tokens between two checks of a context, in the windows of a pass or in the
// session.
const batchTokens = 1 << 11

// New returns the scorer of an empty text. It returns an error if m is not a decoder of the tokens
// of vocab, or if the tokens that begin a text leave no room in the trained context.
func New(m *model.Model, vocab *token.Vocabulary) (*Scorer, error) {
	if m == nil {
		return nil, errors.New("model: it is nil")
	}
	if vocab == nil {
		return nil, errors.New("vocabulary: missing; the model's is needed")
	}
	if n := m.Config().Vocab; vocab.Size() != n && vocab.Tokenizer() == nil {
		return nil, fmt.Errorf("vocabulary: has %d tokens, the model %d", vocab.Size(), n)
	}
	if c := m.Config(); c.Outputs != 0 && c.Outputs != c.Vocab || c.Loss != model.CrossEntropy {
		return nil, fmt.Errorf("model: has %d outputs and the loss %q, tokens are scored by the cross-entropy of %d", c.Outputs, c.Loss, c.Vocab)
	}
	session, err := m.NewSession(1)
	if err != nil {
		return nil, err
	}
	s := &Scorer{model: m.Share(), vocab: vocab, session: session}
	if words := vocab.Tokenizer(); words != nil {
		s.begin = words.AppendStart(nil)
	}
	return s, s.SetWindow(m.Config().ContextWindow())
}

// SetWindow sets the number of tokens that the model reads at once, and forgets the text. With 0 a
// session reads a text of any length, in constant memory if the mechanism streams, but few models
// predict well beyond their trained context. SetWindow returns an error if tokens is negative,
// leaves no room after the tokens that begin a text, or exceeds the learned positions.
func (s *Scorer) SetWindow(tokens int) error {
	c := s.model.Config()
	switch n := c.LearnedPositions(); {
	case c.Positions == model.Learned && (tokens > n || tokens == 0):
		return fmt.Errorf("window: is %d tokens, the model learned %d positions", tokens, n)
	case tokens != 0 && tokens <= len(s.begin):
		return fmt.Errorf("window: is %d tokens, %d tokens begin a text", tokens, len(s.begin))
	}
	s.window = tokens
	return s.Reset()
}

// Window returns the number of tokens that the model reads at once; 0: no limit.
func (s *Scorer) Window() int { return s.window }

// InWindows reports whether the text is so long that it is read in several windows.
func (s *Scorer) InWindows() bool {
	return s.window > 0 && s.tokens+int64(len(s.begin)) > int64(s.window)
}

// Reset forgets the text. It returns an error if the vocabulary has no line break, or the model
// cannot read the tokens that begin a text.
func (s *Scorer) Reset() error {
	s.session.Reset()
	s.failure, s.tokens, s.first, s.scored, s.inputs = nil, 0, 0, 0, s.inputs[:0]
	start := append(s.steps[:0], s.begin...)
	if len(start) == 0 {
		var err error
		if start, err = s.vocab.Encode(start, []byte("\n")); err != nil || len(start) == 0 {
			return errors.Join(errors.New("vocabulary: has no end of a line"), err)
		}
	}
	n := len(start) - 1
	if s.pending = start[n]; n == 0 {
		return nil
	}
	s.inputs, s.scored = append(s.inputs, start[:n]...), n
	_, err := s.session.Step(context.Background(), start[:n], n)
	return err
}

// Clone returns a scorer of an empty text with the same weights and window. It returns an error
// where Reset does.
func (s *Scorer) Clone() (*Scorer, error) {
	c := &Scorer{model: s.model.Share(), vocab: s.vocab, session: s.session.Clone(), begin: s.begin, window: s.window}
	return c, c.Reset()
}

// ScoreText adds text to the end and returns its score. text may be a part of a line or several
// lines. ScoreText returns an error, and adds nothing, if the text is not in the vocabulary. If a
// loss is not finite, or ctx ends, the text is lost, and every call returns the error until Reset.
func (s *Scorer) ScoreText(ctx context.Context, text []byte) (LineScore, error) {
	lines, err := s.ScoreLines(ctx, s.singleLine[:0], text)
	if err != nil {
		return LineScore{}, err
	}
	return lines[0], nil
}

// ScoreLines adds lines, which may be any successive parts of a text, and appends the score of each
// to dst. The scores are those of ScoreText, but lines together take less time. ScoreLines returns
// an error if a line is not in the vocabulary, or its tokenizer changes bytes; the lines before it
// are then added and appended. A loss that is not finite, and the end of ctx, are errors as in
// ScoreText.
func (s *Scorer) ScoreLines(ctx context.Context, dst []LineScore, lines ...[]byte) ([]LineScore, error) {
	if s.failure != nil {
		return dst, s.failure
	}
	s.targets, s.lineEnds = s.targets[:0], s.lineEnds[:0]
	var refused error
	isEmpty := s.tokens == 0
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
		s.steps = append(append(s.steps[:0], s.pending), s.targets[:n-1]...)
		s.nats = slices.Grow(s.nats[:0], n)[:n]
		if s.failure = s.setLosses(ctx, s.nats, s.steps, s.targets); s.failure != nil {
			return dst, s.failure
		}
		s.pending, s.tokens = s.targets[n-1], s.tokens+int64(n)
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

// setLosses adds inputs, and sets nats to the losses of their targets. The session reads the first
// window. Passes of many windows at once read those that follow, or the session if a window is
// long: a pass would take much memory, and for a line as much time as for a window.
func (s *Scorer) setLosses(ctx context.Context, nats []float64, inputs, targets []int32) error {
	if s.window > 0 {
		s.inputs = append(s.inputs, inputs...)
	}
	for len(targets) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := min(len(targets), batchTokens), error(nil)
		if s.window > 0 {
			n = min(n, s.window-int(s.session.Tokens()))
		}
		switch {
		case n > 0:
			err = s.session.Losses(ctx, nats[:n], inputs[:n], targets[:n], n)
			s.scored += n
		case s.window > batchTokens:
			s.nextWindow()
			s.session.Reset()
			window := append(s.begin[:len(s.begin):len(s.begin)], s.inputs[len(s.begin)+s.first:][:s.scored-len(s.begin)]...)
			_, err = s.session.Step(ctx, window, len(window))
		default:
			n, err = s.readWindows(ctx, nats, targets)
		}
		if err != nil {
			return err
		}
		nats, inputs, targets = nats[n:], inputs[n:], targets[n:]
	}
	if s.first > 0 {
		s.inputs = slices.Delete(s.inputs, len(s.begin), len(s.begin)+s.first)
		s.first = 0
	}
	return nil
}

// stride returns the tokens between the beginnings of two windows.
func (s *Scorer) stride() int {
	room := s.window - len(s.begin)
	return room - room/4
}

// nextWindow begins the window after a full one, which repeats its end.
func (s *Scorer) nextWindow() {
	s.first, s.scored = s.first+s.stride(), s.scored-s.stride()
}

// readWindows sets nats to the losses of the targets that fit a pass of windows, and returns their
// number. A window has all its positions, also if the text ends before it: the losses of a token
// then do not depend on the cuts of a text into calls.
func (s *Scorer) readWindows(ctx context.Context, nats []float64, targets []int32) (int, error) {
	if s.scored == s.window {
		s.nextWindow()
	}
	b, stride := &s.batch, s.stride()
	b.B, b.N, b.Tokens, b.Targets = 0, s.window, b.Tokens[:0], b.Targets[:0]
	n := 0 // targets in the windows of b
	for first, row := s.first, s.scored; n < len(targets) && (b.B+1)*b.N <= batchTokens; first += stride {
		// The targets of the rows before row are scored in the window before.
		end := min(s.window, row+len(targets)-n)
		b.Tokens = append(append(b.Tokens, s.begin...), s.inputs[len(s.begin)+first:first+end]...)
		b.Targets = append(slices.Grow(b.Targets, s.window), make([]int32, s.window)...)
		window := b.Targets[b.B*b.N:]
		for i := range window {
			window[i] = -1
		}
		n += copy(window[row:end], targets[n:])
		for range s.window - end {
			b.Tokens = append(b.Tokens, b.Tokens[len(b.Tokens)-1])
		}
		b.B++
		row = s.window - stride
	}
	s.losses = slices.Grow(s.losses[:0], b.B*b.N)[:b.B*b.N]
	if err := s.model.Losses(ctx, b, s.losses); err != nil {
		return 0, err
	}
	done := 0
	for i, t := range b.Targets {
		if t >= 0 {
			nats[done] = s.losses[i]
			done++
		}
	}
	last := (b.B - 1) * stride
	s.first, s.scored = s.first+last, s.scored+n-last
	return n, nil
}

// Err returns the error by which the text was lost, or nil.
func (s *Scorer) Err() error { return s.failure }

// Bytes returns the size of the recurrent state or KV cache.
func (s *Scorer) Bytes() int64 { return s.session.Bytes() }

// Tokens returns the number of tokens in the text.
func (s *Scorer) Tokens() int64 { return s.tokens }
