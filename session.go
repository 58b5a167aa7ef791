package farfield

import (
	"cmp"
	"context"
	"fmt"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/model"
)

// DefaultTokens is the number of new tokens if GenerateOptions.Tokens is 0.
const DefaultTokens = 256

// GenerateOptions says how a text is continued. The zero value takes the most likely token each
// time.
type GenerateOptions struct {
	Tokens      int     // most new tokens; 0: DefaultTokens
	Temperature float64 // divisor of the logits; 0: the most likely token
	TopK        int     // draw from the K most likely tokens; 0: all. Temperature 0 draws nothing
	TopP        float64 // of these, draw from the most likely tokens whose probabilities add up to P; 0 or 1: all. Temperature 0 draws nothing
	Seed        uint64  // seed of the random numbers
	// Stream is called with the new text as it is drawn, in whole characters; nil: it is not
	// called. It must not call methods of the Session. If it returns an error, the text ends and
	// Generate returns the error.
	Stream func(text string) error
}

// sampling returns the settings of the draws.
func (o GenerateOptions) sampling() generate.Sampling {
	return generate.Sampling{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, Seed: o.Seed}
}

// tokens returns the number of new tokens at most.
func (o GenerateOptions) tokens() int { return cmp.Or(o.Tokens, DefaultTokens) }

// check returns an error for the first option that is out of its range.
func (o GenerateOptions) check() error {
	if o.Tokens < 0 {
		return refuse("Tokens is %d, needs 0 or more", o.Tokens)
	}
	if err := o.sampling().Validate(); err != nil {
		return fmt.Errorf("farfield: %w", err)
	}
	return nil
}

// refuse returns an error that is ErrInput.
func refuse(format string, a ...any) error {
	return fault.Mark(fault.ErrInput, fmt.Errorf("farfield: "+format, a...))
}

// Generate continues a text and returns the new part. It stops after the number of tokens in the
// options, at a token that ends a text, or at the last position of a model with learned positions.
// For an encoder-decoder the prompt is the source, such as a text to translate. Other models read
// a text longer than the trained context in windows, as a Session does. If ctx ends, Generate
// returns the text so far together with the error.
func (m *Model) Generate(ctx context.Context, prompt string, o GenerateOptions) (string, error) {
	x, err := m.begin(ctx, "Generate")
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return "", err
	}
	if x.Config().Kind == model.EncoderDecoder {
		return generateTarget(ctx, x.Model, prompt, o)
	}
	s, err := newSession(x.Model)
	if err != nil {
		return "", err
	}
	if err := s.Append(ctx, prompt); err != nil {
		return "", err
	}
	return s.Generate(ctx, o)
}

// generateTarget writes the target of a source.
func generateTarget(ctx context.Context, x *inference.Model, source string, o GenerateOptions) (string, error) {
	n := o.tokens()
	ids, err := x.EncodePrompt(source)
	if err != nil {
		return "", fmt.Errorf("farfield: prompt: %w", err)
	}
	g, forced, err := x.NewTarget(ids, o.sampling(), n)
	if err != nil {
		return "", err
	}
	g.Append(forced...)
	out := output{model: x, stream: o.Stream}
	for _, id := range forced {
		if err := out.add(id); err != nil {
			return out.end(err)
		}
	}
	return out.end(x.Continue(ctx, g, n-len(forced), out.add))
}

// Session is a text in progress: the state of a decoder after its tokens. If the text becomes
// longer than the trained context, the session keeps a window of its last tokens and forgets those
// before it, so its memory is bounded. There are two exceptions. With learned positions, a text
// cannot be longer than their table: Append returns an error, and Generate stops. If all layers
// forget by themselves (mamba-2, retnet, local), the session keeps the whole text in one state.
//
// Methods may be called concurrently, and wait for each other. Those that take a context wait no
// longer than it lasts; Tokens, Bytes, Fork and Save wait until a running Generate has ended.
type Session struct {
	model *inference.Model

	turn chan struct{} // holds an element while a method runs
	text *generate.Generator
}

// Session returns a session with an empty text.
func (m *Model) Session(ctx context.Context) (*Session, error) {
	x, err := m.begin(ctx, "Session")
	if err != nil {
		return nil, err
	}
	return newSession(x.Model)
}

// newSession returns the session of an empty text.
func newSession(x *inference.Model) (*Session, error) {
	g, err := x.NewText(inference.TextOptions{})
	if err != nil {
		return nil, err
	}
	return startSession(x, g), nil
}

// LoadSession returns the session that Save wrote to the file, to the same bits. It returns an
// error if the file is damaged (ErrDamaged), or belongs to a model with other weights (ErrMismatch).
func (m *Model) LoadSession(ctx context.Context, path string) (*Session, error) {
	x, err := m.begin(ctx, "Session")
	if err != nil {
		return nil, err
	}
	g, err := generate.LoadGenerator(path, x.Model.Model())
	if err != nil {
		return nil, err
	}
	return startSession(x.Model, g), nil
}

// startSession returns the session of a text.
func startSession(x *inference.Model, g *generate.Generator) *Session {
	return &Session{model: x, turn: make(chan struct{}, 1), text: g}
}

// wait waits until no other method runs. It returns an error if ctx has ended.
func (s *Session) wait(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := ctx.Err() // of two ready cases, select chooses any
	if err != nil {
		s.leave()
	}
	return err
}

// leave lets the next method run.
func (s *Session) leave() { <-s.turn }

// Append adds text to the end of the session's text. The text of one call is tokenized as Tokenize
// does it; a text that is divided among several calls may give other tokens. While Append reads a
// long text, it needs as much additional memory as a Fork. It returns an error, and adds nothing,
// if the vocabulary lacks a character, if the learned positions are used up, if a number is not
// finite, or if ctx ends. Texts of up to 256 tokens may wait for the next Generate, which then
// returns the error of a number that is not finite.
func (s *Session) Append(ctx context.Context, text string) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	defer s.leave()
	var ids []int32
	var err error
	if s.text.Tokens() == 0 {
		ids, err = s.model.EncodePrompt(text)
	} else {
		ids, err = s.model.EncodeContinuation(text, s.text.Tokens())
	}
	if err != nil {
		return fmt.Errorf("farfield: text: %w", err)
	}
	return s.append(ctx, ids)
}

// AppendIDs adds tokens to the end of the session's text. The model needs no vocabulary for it.
// AppendIDs returns an error, and adds nothing, if an id is out of range, and where Append does.
func (s *Session) AppendIDs(ctx context.Context, ids ...int32) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.append(ctx, ids)
}

// append is AppendIDs of a session that waits for no other call.
func (s *Session) append(ctx context.Context, ids []int32) error {
	c := s.model.Config()
	for i, id := range ids {
		if id < 0 || int(id) >= c.Vocab {
			return refuse("token %d is %d, the vocabulary has %d", i, id, c.Vocab)
		}
	}
	if n, most := s.text.Tokens()+int64(len(ids)), int64(c.LearnedPositions()); c.Positions == model.Learned && n > most {
		return refuse("the text has %d tokens, the model learned %d positions", n, most)
	}
	return s.text.AppendAll(ctx, ids...)
}

// Generate continues the text and returns the new part, as Model.Generate does. The session then
// contains the new tokens, including a token that ended the text. Equal texts, seeds and options
// give equal tokens, and two calls of 10 tokens draw the same as one call of 20.
func (s *Session) Generate(ctx context.Context, o GenerateOptions) (string, error) {
	if _, err := s.model.Vocabulary(); err != nil {
		return "", err
	}
	out := output{model: s.model, stream: o.Stream}
	return out.end(s.generate(ctx, o, out.add))
}

// GenerateIDs continues the text as Generate does and returns the new tokens. The model needs no
// vocabulary for it. It does not call Stream of the options.
func (s *Session) GenerateIDs(ctx context.Context, o GenerateOptions) (ids []int32, err error) {
	err = s.generate(ctx, o, func(id int32) error {
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

// generate draws tokens and calls emit with each.
func (s *Session) generate(ctx context.Context, o GenerateOptions, emit func(id int32) error) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	defer s.leave()
	if s.text.Tokens() == 0 {
		return refuse("the text is empty, there is nothing to continue")
	}
	if err := s.text.SetSampling(o.sampling()); err != nil {
		return fmt.Errorf("farfield: %w", err)
	}
	return s.model.Continue(ctx, s.text, o.tokens(), emit)
}

// Fork returns a copy of the session, which is independent of it.
func (s *Session) Fork() *Session {
	s.turn <- struct{}{}
	defer s.leave()
	g, _ := s.text.Clone() // its error is always nil
	return startSession(s.model, g)
}

// Tokens returns the number of tokens in the text.
func (s *Session) Tokens() int64 {
	s.turn <- struct{}{}
	defer s.leave()
	return s.text.Tokens()
}

// Bytes returns the memory that the session takes. It is constant if Info.FixedState is set, and
// otherwise grows up to a window of tokens.
func (s *Session) Bytes() int64 {
	s.turn <- struct{}{}
	defer s.leave()
	return s.text.Bytes()
}

// Save writes the session to a file, atomically; LoadSession reads it. Save returns an error if the
// file cannot be written, or another process or object is writing it (ErrInUse).
func (s *Session) Save(path string) error {
	l, err := lock.LockFile(path)
	if err != nil {
		return err
	}
	defer l.Release()
	s.turn <- struct{}{}
	defer s.leave()
	return s.text.Save(path)
}

// output gathers a text and streams it.
type output struct {
	model  *inference.Model
	stream func(text string) error
	text   []byte
	sent   int // bytes of text that were streamed
}

// add adds a token, and streams the characters that are whole.
func (o *output) add(id int32) (err error) {
	if o.text, err = o.model.Bytes(o.text, id); err != nil {
		return err
	}
	return o.send(o.sent + inference.WholeCharacters(o.text[o.sent:]))
}

// send streams the text up to a byte.
func (o *output) send(end int) error {
	if o.stream == nil || end == o.sent {
		return nil
	}
	piece := string(o.text[o.sent:end])
	o.sent = end
	return o.stream(piece)
}

// end returns the whole text and the error that ended it, or that of streaming its rest.
func (o *output) end(err error) (string, error) {
	if err == nil {
		err = o.send(len(o.text))
	}
	return string(o.text), err
}
