package attend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/stream"
)

// ofModel makes c the stream of a layer of a model, and reports flags that it has no
// use for.
func (c *Command) ofModel() error {
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"--raw", c.RawShape != ""}, {"--synthetic", c.Synthetic != ""}, {"--check", c.Check != 0}, {"--order", c.Order != nil},
		{"--set", len(c.Set) > 0}, {"--allow-nonfinite", c.AllowNonfinite},
	} {
		if x.given {
			return env.InputErrorf("%s: not with --model", x.name)
		}
	}
	c.Stream, c.Causal = true, true
	return nil
}

// openLayer returns the source of a layer for a text, and its mechanism. The caller closes the closer.
func openLayer(e *env.Env, s *streamed, in string) (stream.Source, attention.Mechanism, io.Closer, error) {
	m, vocab, err := inference.LoadRun(s.Model)
	if err == nil && vocab == nil {
		err = fmt.Errorf("%s: the model has no vocabulary: it did not learn a text", s.Model)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	from, err := texts.OpenText(e, in)
	if err != nil {
		return nil, nil, nil, err
	}
	n := int64(-1)
	if in != "-" && vocab.Kind() == token.KindBytes {
		n = texts.TextSize(e, in)
	}
	layer := 0
	if s.Layer != nil {
		layer = *s.Layer
	}
	text := &textTokens{ctx: e.Context, vocab: vocab, r: bufio.NewReader(from)}
	context := m.Config().TrainedContext()
	text.room, text.full = context, func() {
		fmt.Fprintf(e.Notes(), "the text is longer than the %d tokens that the model was trained with: rows after them may not be as it learned\n", context)
	}
	src, mechanism, err := model.NewProjections(m, layer, n, text.read)
	if err != nil {
		from.Close()
		return nil, nil, nil, fmt.Errorf("%s: %w", s.Model, err)
	}
	return src, mechanism, from, nil
}

// textTokens are the tokens of a text that is read as they are wanted.
type textTokens struct {
	ctx   context.Context
	vocab *token.Vocabulary
	r     *bufio.Reader
	text  []byte
	line  []int32 // tokens of a line that are not read yet
	begun bool    // a line has been read

	room int // tokens that may be read until full is called, once
	full func()
}

// read reads tokens, and calls full after the first room tokens.
func (t *textTokens) read(dst []int32) (int, error) {
	n, err := t.readTokens(dst)
	if t.room -= n; t.room < 0 && t.full != nil {
		t.full()
		t.full = nil
	}
	return n, err
}

func (t *textTokens) readTokens(dst []int32) (int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, err
	}
	if t.vocab.Kind() == token.KindWords {
		return t.readWords(dst)
	}
	t.text = t.text[:0]
	for range dst { // a token each
		err := t.one()
		if err == io.EOF && len(t.text) > 0 {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	list, err := t.vocab.Encode(dst[:0], t.text)
	if err != nil {
		return 0, fault.Mark(fault.ErrInput, err)
	}
	return copy(dst, list), nil // Encode may have wanted more room
}

// readWords reads tokens of a tokenizer, which do not depend on len(dst): it encodes line by
// line, as package score does.
func (t *textTokens) readWords(dst []int32) (int, error) {
	for len(t.line) == 0 {
		if err := t.readLine(); err != nil {
			return 0, err
		}
		line, err := t.vocab.EncodeExact(nil, t.text, t.begun)
		if err != nil { // the tokens have other bytes than the text
			if line, err = t.vocab.Encode(nil, t.text); err != nil {
				return 0, fault.Mark(fault.ErrInput, err)
			}
		}
		t.line, t.begun = line, true
	}
	n := copy(dst, t.line)
	t.line = t.line[n:]
	return n, nil
}

// maxLine is the number of bytes after which a line is cut, before its next blank.
const maxLine = 1 << 16

// readLine reads a line or, of a long line, the next part.
func (t *textTokens) readLine() error {
	t.text = t.text[:0]
	for {
		b, err := t.r.ReadByte()
		if err == io.EOF && len(t.text) > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		t.text = append(t.text, b)
		if b == '\n' || len(t.text) == 16*maxLine {
			return nil
		}
		if len(t.text) >= maxLine {
			if next, _ := t.r.Peek(1); len(next) > 0 && next[0] == ' ' {
				return nil
			}
		}
	}
}

// one reads the bytes of a token.
func (t *textTokens) one() error {
	b, err := t.r.ReadByte()
	if err != nil {
		return err
	}
	if t.text = append(t.text, b); t.vocab.Kind() == token.KindBytes {
		return nil
	}
	at := len(t.text) - 1
	for !utf8.FullRune(t.text[at:]) {
		if b, err = t.r.ReadByte(); err == io.EOF {
			return nil // it is not UTF-8, which Encode says
		} else if err != nil {
			return err
		}
		t.text = append(t.text, b)
	}
	return nil
}
