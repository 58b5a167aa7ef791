package generate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
)

// promptPiece is the bytes of a prompt that are in memory at a time.
const promptPiece = 1 << 20

// prefill reads the prompt into the text of g. A prompt of any length takes the memory
// of a piece and of the model's states, with a tokenizer the memory of its text.
func (c *Command) prefill(e *env.Env, g *generate.Generator, m *inference.Model) error {
	if m.Published() != nil || c.IDs != "" {
		return c.prefillWhole(e, g, m)
	}
	vocab, err := m.Vocabulary()
	if err != nil {
		return env.MarkInput(err)
	}
	in, from, size := io.Reader(bytes.NewReader([]byte(c.Prompt))), "--prompt", int64(len(c.Prompt))
	switch {
	case c.PromptFile != "":
		f, err := texts.OpenText(e, c.PromptFile)
		if err != nil {
			return env.MarkInput(err)
		}
		defer f.Close()
		if info, err := os.Stat(c.PromptFile); err == nil { // 0 for a pipe
			size = info.Size()
		}
		if in, from = f, c.PromptFile; from == "-" {
			from = "standard input"
		}
	case c.Prompt == "" && c.Resume == "":
		g.Append(inference.LineBreakTokens(vocab)...)
	}
	p := &promptReader{in: in, vocab: vocab, buffer: make([]byte, 0, min(max(size+utf8.UTFMax, 1<<16), promptPiece))}
	if resumed := g.Tokens(); c.Resume != "" {
		p.continueText = func(text string) ([]int32, error) { return m.EncodeContinuation(text, resumed) }
	}
	bar := progress.NewTransfer(e)
	defer bar.Finish()
	growth := 0.0   // of the model's states, in bytes for each byte of the last piece
	perToken := 0.0 // in bytes for each of its tokens
	for {
		var tokens []int32
		start := p.read
		err := e.RunInterruptibly(func() (err error) {
			tokens, err = p.next()
			return err
		})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if e.Context.Err() != nil {
				return err
			}
			return env.InputErrorf("%s: %w", from, err)
		}
		m.NoteKeyDistance(e.Context, e.Notes(), tokens)
		g.Append(tokens...)
		if err := c.fits(g, m.Config()); err != nil {
			return err
		}
		// States that grow by the token are refused before they fill the memory. The size of a pipe
		// is not known, and gzip is smaller than its text.
		more := growth * float64(max(size, p.read)-start)
		if err := machine.Check(from+": what the model remembers of the rest", more); err != nil {
			return env.MarkInput(err)
		}
		before := g.Bytes()
		if err := g.Prefill(e.Context); err != nil {
			return err
		}
		growth = float64(g.Bytes()-before) / float64(max(p.read-start, 1))
		perToken = float64(g.Bytes()-before) / float64(max(len(tokens), 1))
		bar.ShowBytes("prompt", p.read, size)
	}
	if p.read == 0 && c.Resume == "" && (c.Prompt != "" || c.PromptFile != "") {
		return env.InputErrorf("%s: is empty, there is nothing to continue", from)
	}
	what := fmt.Sprintf("--tokens: what the model remembers of %d more tokens", c.tokenCount())
	if err := machine.Check(what, perToken*float64(c.tokenCount())); err != nil {
		return env.MarkInput(err)
	}
	return c.fits(g, m.Config())
}

// fits returns an error if the text with its new tokens exceeds learned positions.
func (c *Command) fits(g *generate.Generator, m model.Config) error {
	if n, limit := g.Tokens()+int64(c.tokenCount()), int64(m.LearnedPositions()); m.Positions == model.Learned && n > limit {
		return env.InputErrorf("--tokens: the text would have %d tokens, the model learned %d positions", n, limit)
	}
	return nil
}

// promptReader reads a text as tokens, piece by piece.
type promptReader struct {
	in     io.Reader
	vocab  *token.Vocabulary
	buffer []byte // what is read and not encoded: an incomplete character, or all for a tokenizer
	read   int64  // bytes
	ended  bool

	continueText func(text string) ([]int32, error) // tokens of a resumed text's prompt from a tokenizer; nil: a text begins
}

// next returns the tokens of the next piece, at least one; io.EOF at the end. A tokenizer
// gets the text in one piece, since its tokens depend on what follows.
func (p *promptReader) next() ([]int32, error) {
	for !p.ended {
		if p.vocab.Kind() == token.KindWords && len(p.buffer) == cap(p.buffer) {
			p.buffer = slices.Grow(p.buffer, promptPiece)
		}
		n, err := io.ReadAtLeast(p.in, p.buffer[len(p.buffer):cap(p.buffer)], 1)
		start := p.read - int64(len(p.buffer)) // of the piece in the text
		p.buffer, p.read = p.buffer[:len(p.buffer)+n], p.read+int64(n)
		if p.ended = errors.Is(err, io.EOF); err != nil && !p.ended {
			return nil, err
		}
		whole := len(p.buffer)
		switch {
		case p.ended:
		case p.vocab.Kind() == token.KindWords:
			continue
		case p.vocab.Kind() == token.KindChars:
			whole = inference.WholeCharacters(p.buffer)
		}
		tokens, err := p.encode(p.buffer[:whole], start)
		if err != nil {
			return nil, err
		}
		p.buffer = p.buffer[:copy(p.buffer, p.buffer[whole:])]
		if len(tokens) > 0 {
			return tokens, nil
		}
	}
	return nil, io.EOF
}

// encode returns the tokens of a piece that starts at an offset. It returns an error if a
// character is outside the vocabulary.
func (p *promptReader) encode(text []byte, start int64) ([]int32, error) {
	if p.continueText != nil && p.vocab.Kind() == token.KindWords {
		return p.continueText(string(text))
	}
	return p.vocab.EncodeAt(nil, text, start)
}
