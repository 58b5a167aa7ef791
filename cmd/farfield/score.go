package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/score"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// scoreCmd is the verb score: how many bits a text takes, line by line.
type scoreCmd struct {
	File  string `arg:"" optional:"" placeholder:"FILE" help:"Text to score; - or nothing is standard input."`
	Model string `required:"" placeholder:"DIR" help:"Folder of a run, whose latest checkpoint is taken, or of a checkpoint."`

	Lines  bool       `help:"Print every line with the bits that it takes; implied by --follow."`
	Above  float64    `placeholder:"BITS" help:"Of every line, print only those that take more."`
	Top    int        `placeholder:"K" default:"10" help:"Print the K most surprising lines at the end (${default}), those that take most bits."`
	Follow bool       `help:"Wait for what is added to FILE, until an interrupt. Lines that are not complete wait, too."`
	State  string     `placeholder:"FILE" help:"Keep in a file how far the text is, and go on from there: no line is scored twice. With --follow by default FILE with .score behind it."`
	JSONL  bool       `name:"jsonl" help:"Each line of the input is a JSON object, whose text is scored for itself; it is printed with bits, bytes and bits_per_byte added."`
	JSON   bool       `name:"json" help:"Print the result, or every line, as JSON."`
	Filter jsonFilter `embed:""`
}

// Help are examples.
func (c *scoreCmd) Help() string {
	return "A line is odd where it takes many more bits than others do." + examples(
		"farfield score --model run/001 notes.txt",
		"farfield score --model run/001 --follow --above 200 service.log",
		"farfield score --model run/001 --jsonl <records.jsonl >scored.jsonl",
		"farfield score --model run/001 --jsonl --skip $(wc -l <scored.jsonl) <records.jsonl >>scored.jsonl",
	)
}

func (c *scoreCmd) Run(e *env) error {
	switch {
	case c.Top < 0:
		return inputf("--top: %d is negative", c.Top)
	case c.Follow && (c.File == "" || c.File == "-"):
		return inputf("--follow: needs a file")
	case c.JSONL && (c.Follow || c.Lines || c.State != ""):
		return inputf("--jsonl: not with --follow, --lines or --state: every record is for itself")
	}
	if err := c.Filter.check(c.JSONL); err != nil {
		return err
	}
	m, vocab, err := train.LoadText(c.Model)
	if err != nil {
		return input(err)
	}
	in, err := openText(e, c.File)
	if err != nil {
		return input(err)
	}
	defer in.Close()
	if c.JSONL {
		s, err := score.New(m, vocab)
		if err != nil {
			return input(err)
		}
		return c.Filter.run(e, in, func(text string) ([]jsonField, error) {
			if err := s.Reset(); err != nil {
				return nil, err
			}
			l, err := s.Score([]byte(text))
			return []jsonField{{"bits", l.Bits}, {"bytes", l.Bytes}, {"bits_per_byte", l.PerByte()}}, err
		})
	}
	t := &scoring{cmd: c, e: e, in: in, saved: time.Now()}
	if err := t.begin(m, vocab); err != nil {
		return input(err)
	}
	return t.run()
}

// openText opens a file or standard input.
func openText(e *env, path string) (io.ReadCloser, error) {
	if path == "" || path == "-" {
		return io.NopCloser(e.stdin), nil
	}
	return os.Open(path)
}

// scoring is a text that is being scored.
type scoring struct {
	cmd    *scoreCmd
	e      *env
	in     io.ReadCloser
	scorer *score.Scorer
	state  string // file; "": none
	saved  time.Time
	scorePlace
}

// scorePlace is how far a text is, and what was found.
type scorePlace struct {
	Offset int64        `json:"offset"` // bytes that were scored
	Number int64        `json:"lines"`  // lines among them
	Head   uint32       `json:"head"`   // CRC-32C of its first bytes, up to headBytes
	Total  score.Line   `json:"total"`
	Top    []scoredLine `json:"top"` // most bits first
}

// scoredLine is a line and what it takes.
type scoredLine struct {
	Number int64 `json:"line"` // from 1
	score.Line
	Text string `json:"text"` // its beginning
}

const (
	scoreSuffix = ".score"
	headBytes   = 1 << 12 // that tell a file from another of its name
	longestLine = 1 << 20 // longer ones are scored in parts
	shownText   = 160     // characters of a line that are shown
	saveEvery   = 10 * time.Second
	pollEvery   = 300 * time.Millisecond
)

// begin starts a text, or goes on with it.
func (t *scoring) begin(m *model.Model[float32], vocab *token.Vocabulary) (err error) {
	c := t.cmd
	if t.state = c.State; t.state == "" && c.Follow {
		t.state = c.File + scoreSuffix
	}
	if mixer, err := m.Config().Mixer(); c.Follow && err == nil && !mixer.Traits().Streaming {
		return fmt.Errorf("--follow: the state of %s grows with the text", m.Config().Mechanism)
	}
	if t.state != "" {
		if c.File == "" || c.File == "-" {
			return errors.New("--state: what came from standard input cannot be read again; it needs a file")
		}
		if err := checkOutput(t.state, c.File); err != nil {
			return fmt.Errorf("--state: %w", err)
		}
		data, err := os.ReadFile(t.state)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		default:
			if t.scorer, err = score.Restore(data, m, vocab, &t.scorePlace); err != nil {
				return fmt.Errorf("%s: %w", t.state, err)
			}
			same, err := t.sameFile()
			if err != nil {
				return err
			}
			if same {
				fmt.Fprintf(t.e.notes(), "goes on after line %d\n", t.Number)
				_, err = t.in.(io.Seeker).Seek(t.Offset, io.SeekStart)
				return err
			}
			fmt.Fprintf(t.e.notes(), "%s is another file than before: begins anew\n", c.File)
			t.scorePlace = scorePlace{}
		}
	}
	t.scorer, err = score.New(m, vocab)
	return err
}

// sameFile reports whether the file still has what was scored.
func (t *scoring) sameFile() (bool, error) {
	f := t.in.(*os.File)
	info, err := f.Stat()
	if err != nil || info.Size() < t.Offset {
		return false, err
	}
	head, err := t.head(f)
	return head == t.Head, err
}

// head is the checksum of the first bytes of what was scored.
func (t *scoring) head(f *os.File) (uint32, error) {
	b := make([]byte, min(t.Offset, headBytes))
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, err
	}
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)), nil
}

// run scores line after line until the text ends, or an interrupt.
func (t *scoring) run() error {
	r := bufio.NewReaderSize(t.in, longestLine)
	err := t.lines(r)
	stopped := err != nil && t.e.ctx.Err() != nil && errors.Is(err, t.e.ctx.Err())
	if err != nil && !stopped {
		return err
	}
	if t.state != "" {
		if err := t.save(); err != nil {
			return err
		}
	}
	if err := t.print(); err != nil {
		return err
	}
	if stopped && t.state != "" {
		return interruption{err, fmt.Sprintf("stopped after line %d; the same command goes on", t.Number)}
	}
	return err
}

func (t *scoring) lines(r *bufio.Reader) error {
	var waiting []byte // the beginning of a line whose end is not there yet
	for {
		if err := t.e.ctx.Err(); err != nil {
			return err
		}
		part, err := r.ReadSlice('\n')
		switch {
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
			line := part
			if len(waiting) > 0 {
				line = append(waiting, part...)
			}
			if err := t.line(line); err != nil {
				return err
			}
			waiting = waiting[:0]
		case !errors.Is(err, io.EOF):
			return err
		case t.cmd.Follow:
			waiting = append(waiting, part...)
			if err := t.wait(); err != nil {
				return err
			}
		default:
			if len(part) > 0 {
				return t.line(part)
			}
			return nil
		}
	}
}

// line scores one line.
func (t *scoring) line(text []byte) error {
	l, err := t.scorer.Score(text)
	if err != nil {
		return inputf("line %d: %w", t.Number+1, err)
	}
	t.Number++
	t.Offset += int64(len(text))
	t.Total = t.Total.Add(l)
	x := scoredLine{Number: t.Number, Line: l, Text: shown(text)}
	t.keep(x)
	if (t.cmd.Lines || t.cmd.Follow) && l.Bits > t.cmd.Above {
		if t.cmd.JSON {
			err = printJSON(t.e.stdout, x)
		} else {
			err = x.print(t.e.stdout)
		}
		if err != nil {
			return err
		}
	}
	if t.state != "" && time.Since(t.saved) >= saveEvery {
		return t.save()
	}
	return nil
}

// keep puts a line among the most surprising, if it is one of them.
func (t *scoring) keep(x scoredLine) {
	i, _ := slices.BinarySearchFunc(t.Top, x, func(a, b scoredLine) int {
		if a.Bits >= b.Bits { // of two that are equal the first stays in front
			return -1
		}
		return 1
	})
	if i < t.cmd.Top {
		t.Top = slices.Insert(t.Top, i, x)
		t.Top = t.Top[:min(len(t.Top), t.cmd.Top)]
	}
}

// wait is where the end of a growing file is met.
func (t *scoring) wait() error {
	if t.state != "" && time.Since(t.saved) >= saveEvery {
		if err := t.save(); err != nil {
			return err
		}
	}
	if info, err := os.Stat(t.cmd.File); err == nil && info.Size() < t.Offset {
		return inputf("%s: had %d bytes that were scored, has %d; start again to score what it has become", t.cmd.File, t.Offset, info.Size())
	}
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-t.e.ctx.Done():
		return context.Cause(t.e.ctx)
	case <-timer.C:
		return nil
	}
}

// save keeps how far the text is.
func (t *scoring) save() (err error) {
	t.saved = time.Now()
	if t.Head, err = t.head(t.in.(*os.File)); err != nil {
		return err
	}
	data, err := t.scorer.AppendBinary(nil, t.scorePlace)
	if err != nil {
		return err
	}
	return atomicfile.Write(t.state, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// scoreReport is what a text took.
type scoreReport struct {
	Lines int64 `json:"lines"`
	score.Line
	PerByte float64      `json:"bits_per_byte"`
	Top     []scoredLine `json:"most_surprising"`
}

func (t *scoring) print() error {
	r := scoreReport{Lines: t.Number, Line: t.Total, PerByte: t.Total.PerByte(), Top: t.Top}
	w := t.e.stdout
	if t.cmd.JSON {
		return printJSON(w, r)
	}
	fmt.Fprintf(w, "%d lines, %d bytes: %.4f bits per byte\n", r.Lines, r.Bytes, r.PerByte)
	if len(r.Top) > 0 {
		fmt.Fprintln(w, "most surprising:")
	}
	for _, x := range r.Top {
		if err := x.print(w); err != nil {
			return err
		}
	}
	return nil
}

func (x scoredLine) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%10.1f bits %6.2f a byte  %7d: %s\n", x.Bits, x.PerByte(), x.Number, x.Text)
	return err
}

// shown is the beginning of a line, in characters that a terminal may have.
func shown(line []byte) string {
	text := strings.TrimRight(string(line), "\r\n")
	n := 0
	var b strings.Builder
	for _, r := range text {
		if n++; n > shownText {
			b.WriteString("…")
			break
		}
		if r == '\t' {
			r = ' '
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}
