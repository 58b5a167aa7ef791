package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/score"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// scoreCmd is the verb score: how many bits a text takes, line by line.
type scoreCmd struct {
	File  string `arg:"" optional:"" placeholder:"FILE" help:"Text to score; - or nothing is standard input."`
	Model string `required:"" placeholder:"DIR" help:"Folder of a run, whose latest checkpoint is taken, or of a checkpoint."`

	Lines  bool       `help:"Print every line with its bits; implied by --follow."`
	Rank   string     `enum:"byte,total" default:"byte" help:"Rank lines by bits a byte or by total bits (${default})."`
	Above  float64    `placeholder:"X" help:"Print only lines above X, in the unit of --rank."`
	Top    int        `placeholder:"K" default:"10" help:"Print the K most surprising lines at the end (${default})."`
	Follow bool       `help:"Wait for new lines of FILE, across rotations, until an interrupt. Incomplete lines wait, too."`
	State  string     `placeholder:"FILE" help:"Keep in a file how far the text is, and go on from there (with --follow: FILE.score)."`
	JSONL  bool       `name:"jsonl" help:"Score each record of JSON lines for itself; add bits, bytes and bits_per_byte to it."`
	JSON   bool       `name:"json" help:"Print the result as JSON; with --lines, an object a line."`
	Filter jsonFilter `embed:""`
}

// Help are examples.
func (c *scoreCmd) Help() string {
	return "A line is odd where it takes many more bits a byte than others do. --out continues where a run was cut off, each line once." + examples(
		"farfield score --model run/001 notes.txt",
		"farfield score --model run/001 --follow --above 3 service.log",
		"farfield score --model run/001 --jsonl <records.jsonl >scored.jsonl",
		"farfield score --model run/001 --jsonl --out scored.jsonl records.jsonl",
		"farfield score --model run/001 --lines --json --state log.state --out log.jsonl notes.txt",
	)
}

func (c *scoreCmd) Run(e *env) error {
	filter := c.Filter
	switch {
	case c.Top < 0:
		return inputf("--top: %d is negative", c.Top)
	case c.Follow && (c.File == "" || c.File == "-"):
		return inputf("--follow: needs a file")
	case c.JSONL && (c.Follow || c.Lines || c.State != ""):
		return inputf("--jsonl: not with --follow, --lines or --state: every record is for itself")
	case filter.Out != "" && !c.JSONL && (c.State == "" || !c.Lines) && !c.Follow:
		return inputf("--out: needs --jsonl, --follow, or --lines with --state")
	case !c.JSONL:
		filter.Out = ""
	}
	if err := filter.check(c.JSONL); err != nil {
		return err
	}
	m, vocab, err := train.LoadTextModel(c.Model)
	if err != nil {
		return input(err)
	}
	if c.JSONL {
		return c.records(e, m, vocab)
	}
	t := &scoring{cmd: c, e: e}
	defer t.close()
	if err := t.begin(m, vocab); err != nil {
		return input(err)
	}
	return t.run()
}

// records scores JSON lines, each from an empty text.
func (c *scoreCmd) records(e *env, m *model.Model[float32], vocab *token.Vocabulary) error {
	in, err := openText(e, c.File)
	if err != nil {
		return input(err)
	}
	defer in.Close()
	s, err := score.New(m, vocab)
	if err != nil {
		return input(err)
	}
	var fields []textFunc
	for range par.Threads() {
		own, err := s.Clone()
		if err != nil {
			return err
		}
		fields = append(fields, func(text string) ([]jsonField, error) {
			if err := own.Reset(); err != nil {
				return nil, err
			}
			l, err := own.ScoreText([]byte(text))
			return []jsonField{{"bits", l.Bits}, {"bytes", l.Bytes}, {"bits_per_byte", l.PerByte()}}, err
		})
	}
	return c.Filter.run(e, in, fields...)
}

// scoredLine is a line and its bits.
type scoredLine struct {
	Number int64 `json:"line"` // from 1, of all files that were followed
	score.LineScore
	BitsPerByte float64 `json:"bits_per_byte"`
	Text        string  `json:"text"`
	MayRepeat   bool    `json:"may_repeat,omitempty"` // a run that was killed may have printed it
}

const (
	rankBytes   = 16      // shorter lines are ranked as if they had so many
	keptText    = 1 << 12 // bytes of a line among the most surprising
	longestLine = 1 << 20 // longer ones are scored in parts
	batchBytes  = 1 << 13 // of lines that are scored together
)

// rank returns the number by which lines are ranked. A line break alone is no surprise,
// however many bits its byte has.
func (c *scoreCmd) rank(l score.LineScore) float64 {
	if c.Rank == "total" {
		return l.Bits
	}
	return l.Bits / float64(max(l.Bytes, rankBytes))
}

// lines scores lines and prints those that are to be printed.
func (t *scoring) lines(lines [][]byte) error {
	if err := t.claim(int64(len(lines))); err != nil {
		return err
	}
	var refused error
	t.scored, refused = t.scorer.ScoreLines(t.scored[:0], lines...)
	t.printed.Reset()
	printed := int64(0)
	for i, l := range t.scored {
		t.Number++
		t.Total = t.Total.Add(l)
		t.passed(lines[i])
		x := scoredLine{Number: t.Number, LineScore: l, BitsPerByte: l.PerByte()}
		surprise := t.cmd.rank(l)
		prints := (t.cmd.Lines || t.cmd.Follow) && surprise > t.cmd.Above
		if prints || t.ranks(surprise) {
			x.Text = strings.TrimRight(string(lines[i]), "\r\n")
		}
		t.keep(x)
		if !prints {
			continue
		}
		printed++
		x.MayRepeat = t.Printed+printed <= t.doubtful
		if err := t.format(x); err != nil {
			return err
		}
	}
	if t.printed.Len() > 0 {
		if _, err := t.to.Write(t.printed.Bytes()); err != nil {
			return err
		}
		t.Printed += printed
		if t.out != nil {
			t.OutBytes += int64(t.printed.Len())
		}
	}
	if refused != nil {
		return inputf("line %d: %w", t.Number+1, refused)
	}
	return nil
}

// format appends a line to what is printed.
func (t *scoring) format(x scoredLine) error {
	if !t.cmd.JSON {
		return x.print(&t.printed, terminalWidth(t.to))
	}
	return printJSONLine(&t.printed, x)
}

// printJSONLine prints a value on one line.
func printJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// ranks reports whether a line is among the most surprising.
func (t *scoring) ranks(surprise float64) bool {
	n := len(t.Top)
	return n < t.cmd.Top || n > 0 && surprise > t.cmd.rank(t.Top[n-1].LineScore)
}

// keep puts a line among the most surprising, if it is one of them.
func (t *scoring) keep(x scoredLine) {
	i, _ := slices.BinarySearchFunc(t.Top, x, func(a, b scoredLine) int {
		if t.cmd.rank(a.LineScore) >= t.cmd.rank(b.LineScore) { // of two that are equal the first stays in front
			return -1
		}
		return 1
	})
	if i < t.cmd.Top {
		x.Text = beginning(x.Text, keptText)
		t.Top = slices.Insert(t.Top, i, x)
		t.Top = t.Top[:min(len(t.Top), t.cmd.Top)]
	}
}

// beginning cuts a text to about so many bytes, between two characters.
func beginning(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// scoreReport is what a text took.
type scoreReport struct {
	Lines int64 `json:"lines"`
	score.LineScore
	BitsPerByte float64      `json:"bits_per_byte"`
	Rank        string       `json:"rank"`
	Top         []scoredLine `json:"most_surprising"`
}

func (t *scoring) print() error {
	r := scoreReport{Lines: t.Number, LineScore: t.Total, BitsPerByte: t.Total.PerByte(), Rank: t.cmd.Rank, Top: t.Top}
	w := t.e.stdout
	switch {
	case t.cmd.JSON && (t.cmd.Lines || t.cmd.Follow):
		return printJSONLine(w, r)
	case t.cmd.JSON:
		return printJSON(w, r)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d lines, %d bytes: %.4f bits per byte\n", r.Lines, r.Bytes, r.BitsPerByte)
	if len(r.Top) > 0 {
		fmt.Fprintln(&b, "most surprising:")
	}
	for _, x := range r.Top {
		if err := x.print(&b, terminalWidth(w)); err != nil {
			return err
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// print prints a line, cut to the width of a terminal; 0: there is none.
func (x scoredLine) print(w io.Writer, width int) error {
	mark := ":"
	if x.MayRepeat {
		mark = ": (may repeat)"
	}
	text := fmt.Sprintf("%10.1f bits %6.2f a byte  %7d%s ", x.Bits, x.PerByte(), x.Number, mark)
	most := 0
	if width > 0 {
		most = max(width-len(text), 1)
	}
	_, err := fmt.Fprintln(w, text+shown(x.Text, most))
	return err
}

// shown is a line in characters that a terminal may have, at most so many; 0: all.
func shown(text string, most int) string {
	n := 0
	var b strings.Builder
	for _, r := range text {
		if n++; n == most && most > 0 && n < len(text) {
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
