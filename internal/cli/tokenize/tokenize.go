// Package tokenize implements the verb tokenize: the token ids of texts.
package tokenize

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/tokenizer"
)

// longestLine bounds the bytes of a line.
const longestLine = 64 << 20

// Command is the verb tokenize.
type Command struct {
	File      string `arg:"" optional:"" placeholder:"FILE" help:"Texts, a line each; - or nothing is standard input."`
	Model     string `placeholder:"DIR" xor:"tokenizer" required:"" help:"Folder of a model, with its tokenizer."`
	Tokenizer string `placeholder:"PATH" xor:"tokenizer" required:"" help:"File of a tokenizer, or a folder with one."`
	JSONL     bool   `name:"jsonl" help:"Read JSON lines, or a JSON array, with the fields text and pair."`
}

// Help says which files are read.
func (c *Command) Help() string {
	return "It prints a JSON object for each line: ids, and offsets, which are bytes of the input (of UTF-16, bytes of the same text in UTF-8). Special tokens have the offsets [0,0]. " +
		"Tokenizers are tokenizer.json, vocab.txt, vocab.json beside merges.txt, tokenizer.model, spiece.model, or sentencepiece.bpe.model. With --jsonl, the member \"pair\" adds a second text." + flags.JoinExamples(
		"farfield tokenize --tokenizer tokenizer.json notes.txt",
		"farfield tokenize --model all-MiniLM-L6-v2 --jsonl <records.jsonl >ids.jsonl",
	)
}

// Run prints the ids of each line. It returns an error if the tokenizer or a line is invalid,
// or the output fails.
func (c *Command) Run(e *env.Env) error {
	path := c.Tokenizer
	if path == "" {
		var err error
		if path, err = runs.ResolveModel(c.Model); err == nil {
			path = exchanged.Resolve(path)
		}
		if err != nil {
			return env.MarkInput(err)
		}
	}
	t, err := tokenizer.Open(path)
	if err != nil {
		return env.MarkInput(err)
	}
	in, err := texts.OpenText(e, c.File)
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	var lines io.Reader = in
	if c.JSONL {
		lines = infile.NewRecords(in)
	}
	out := bufio.NewWriterSize(e.Stdout, 1<<16)
	err = c.lines(e, t, lines, out)
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	return err
}

// lines prints the ids of each line of in. It returns an error if the context ends, a line is
// invalid, or reading or writing fails.
func (c *Command) lines(e *env.Env, t *tokenizer.Tokenizer, in io.Reader, out *bufio.Writer) (err error) {
	source := &texts.LineSource{Reader: in, Longest: longestLine}
	var lines [][]byte
	var b []byte
	for number, ended := 1, false; !ended; {
		lines, err = source.NextLines(lines[:0], 64, 1<<16)
		if ended = err == io.EOF; ended {
			if rest := source.Rest(); rest != nil {
				lines = append(lines, rest)
			}
		} else if malformed := (infile.FormatError{}); errors.As(err, &malformed) {
			return env.MarkInput(err)
		} else if err != nil {
			return err
		}
		for _, line := range lines {
			if err := e.Context.Err(); err != nil {
				return err
			}
			if len(line) >= longestLine {
				return env.InputErrorf("line %d has more than %d bytes", number, longestLine-1)
			}
			if b, err = c.appendRecord(b[:0], t, line); err != nil {
				unit := "line"
				if r, ok := in.(*infile.Records); ok && r.HasArray() {
					unit = "record"
				}
				return env.InputErrorf("%s %d: %w", unit, number, err)
			}
			if _, err := out.Write(b); err != nil {
				return err
			}
			number++
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// appendRecord appends the output of a line. An empty JSON line has none.
func (c *Command) appendRecord(dst []byte, t *tokenizer.Tokenizer, line []byte) ([]byte, error) {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	var encoded tokenizer.Encoding
	switch {
	case !c.JSONL:
		encoded = t.Encode(string(line))
	case len(bytes.TrimSpace(line)) == 0:
		return dst, nil
	default:
		text, pair, err := parseRecord(line)
		switch {
		case err != nil:
			return nil, err
		case text == nil:
			return nil, errors.New("field \"text\" is missing")
		case pair != nil:
			encoded = t.EncodePair(*text, *pair)
		default:
			encoded = t.Encode(*text)
		}
	}
	dst = append(dst, `{"ids":[`...)
	for i, id := range encoded.IDs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	dst = append(dst, `],"offsets":[`...)
	for i, o := range encoded.Offsets {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		dst = strconv.AppendInt(dst, int64(o[0]), 10)
		dst = append(dst, ',')
		dst = strconv.AppendInt(dst, int64(o[1]), 10)
		dst = append(dst, ']')
	}
	return append(dst, "]}\n"...), nil
}

// parseRecord returns the fields text and pair of a JSON line; nil for a field that is missing or
// null. It returns an error if the line is no JSON object in UTF-8, or a field is no string.
func parseRecord(line []byte) (text, pair *string, err error) {
	if !utf8.Valid(line) { // encoding/json would replace bytes
		return nil, nil, fmt.Errorf("is not UTF-8: %.60q", line)
	}
	var members map[string]json.RawMessage // keys of a struct would match in any case
	if err := json.Unmarshal(line, &members); err != nil || members == nil {
		return nil, nil, fmt.Errorf("is not a JSON object: %.60q", line)
	}
	for name, to := range map[string]**string{"text": &text, "pair": &pair} {
		if raw, ok := members[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return nil, nil, fmt.Errorf("%s: is not a string: %.60s", name, raw)
			}
		}
	}
	return text, pair, nil
}
