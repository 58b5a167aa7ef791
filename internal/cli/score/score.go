// Package score implements the verb score: the bits of each line of a text.
package score

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/score"
	"github.com/farfield-ml/farfield/token"
)

const (
	rankBytes  = 16      // shorter lines are ranked as lines of this length
	keptText   = 1 << 12 // bytes of a line among the most surprising
	batchBytes = 1 << 13 // of lines that are scored together
)

// Command is the verb score: how many bits a text takes, line by line.
type Command struct {
	File  string `arg:"" optional:"" placeholder:"FILE" help:"Text to score; - or nothing is standard input."`
	Model string `required:"" placeholder:"DIR" help:"Folder of a run, a checkpoint or a published model."`

	Lines     bool           `help:"Print every line with its bits; implied by --follow."`
	Rank      string         `enum:"byte,total" default:"byte" help:"Rank lines by bits a byte or by total bits (${default})."`
	Threshold *float64       `name:"above" placeholder:"X" help:"Print only lines above X, in the unit of --rank."`
	Top       int            `placeholder:"K" default:"10" help:"Print the K most surprising lines at the end (${default})."`
	Follow    bool           `help:"Wait for new lines of FILE, across rotations."`
	State     string         `placeholder:"FILE" help:"File of the progress, to continue (--follow: FILE.score)."`
	JSONL     bool           `name:"jsonl" help:"Score JSON lines; add bits, bytes and bits_per_byte."`
	JSON      bool           `name:"json" help:"Print the result as JSON; with --lines, an object a line."`
	Filter    records.Filter `embed:""`
}

// Help are examples.
func (c *Command) Help() string {
	return "A line is odd if it takes many more bits a byte than other lines. --out continues an interrupted run, with each line once. " +
		"--follow ends with an interrupt; an incomplete last line waits for its end. Other states do not count it: the next run scores it whole, of a line above 1 MiB the last part. " +
		"A model with a table of learned positions reads windows of their number; each begins half a window after the one before. " +
		"A text that the tokenizer of a published model changes is refused: its bits would be of other bytes." + flags.JoinExamples(
		"farfield score --model run/001 notes.txt",
		"farfield score --model run/001 --follow --above 3 service.log",
		"farfield score --model run/001 --jsonl <records.jsonl >scored.jsonl",
		"farfield score --model run/001 --jsonl --out scored.jsonl records.jsonl",
		"farfield score --model run/001 --lines --json --state log.state --out log.jsonl notes.txt",
	)
}

// Run scores a text, records or a followed file. It returns an error if flags, model or
// input are invalid or the output fails.
func (c *Command) Run(e *env.Env) error {
	filter := c.Filter
	switch {
	case c.Top < 0:
		return env.InputErrorf("--top: %d is negative", c.Top)
	case c.Follow && (c.File == "" || c.File == "-"):
		return env.InputErrorf("--follow: needs a file")
	case c.JSONL && (c.Follow || c.Lines || c.State != ""):
		return env.InputErrorf("--jsonl: not with --follow, --lines or --state: every record is for itself")
	case c.JSONL && c.JSON:
		return env.InputErrorf("--json: given beside --jsonl, which prints JSON lines itself")
	case c.JSONL && (c.Rank != "byte" || c.Top != 10):
		return env.InputErrorf("--rank, --top: not with --jsonl, which ranks no lines")
	case c.Threshold != nil && !c.Lines && !c.Follow:
		return env.InputErrorf("--above: needs --lines or --follow")
	case filter.Out != "" && !c.JSONL && (c.State == "" || !c.Lines) && !c.Follow:
		return env.InputErrorf("--out: needs --jsonl, --follow, or --lines with --state")
	case !c.JSONL:
		filter.Out = ""
	}
	if err := filter.Check(c.JSONL); err != nil {
		return err
	}
	text, err := runs.OpenText(c.Model)
	if err != nil {
		return env.MarkInput(err)
	}
	if err := text.CheckNextTokens(); err != nil {
		return env.MarkInput(err)
	}
	vocab, err := text.Vocabulary()
	if err != nil {
		return env.MarkInput(err)
	}
	m := text.Model()
	if c.JSONL {
		return c.records(e, m, vocab)
	}
	t := &scoring{cmd: c, e: e}
	defer t.close()
	if err := t.begin(m, vocab); err != nil {
		return env.MarkInput(err)
	}
	return t.run()
}

// records scores JSON lines, each from an empty text.
func (c *Command) records(e *env.Env, m *model.Model[float32], vocab *token.Vocabulary) error {
	in, err := texts.OpenFiles(e, cmp.Or(c.File, "-"))
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	if err := c.Filter.BindModel("score", c.Model, runs.HashModel); err != nil {
		return err
	}
	s, err := score.New(m, vocab)
	if err != nil {
		return env.MarkInput(err)
	}
	var fields []records.TextFunc
	for range par.Threads() {
		own, err := s.Clone()
		if err != nil {
			return err
		}
		fields = append(fields, func(text string) ([]records.Field, error) {
			if err := own.Reset(); err != nil {
				return nil, err
			}
			l, err := own.ScoreText([]byte(text))
			return []records.Field{{Name: "bits", Value: l.Bits}, {Name: "bytes", Value: l.Bytes}, {Name: "bits_per_byte", Value: l.PerByte()}}, err
		})
	}
	return c.Filter.FilterFile(e, in, fields...)
}

// ScoredLine is a line and its bits.
type ScoredLine struct {
	Number int64 `json:"line"` // from 1, of all files that were followed
	score.LineScore
	BitsPerByte float64 `json:"bits_per_byte"`
	Text        string  `json:"text"`
	Part        int64   `json:"part,omitempty"`       // of a line that is scored in parts, from 2
	MayRepeat   bool    `json:"may_repeat,omitempty"` // the run before may have printed it
}

// RankLine returns the number by which lines are ranked. A line break alone is no surprise,
// however many bits its byte has.
func (c *Command) RankLine(l score.LineScore) float64 {
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
		x := ScoredLine{LineScore: l, BitsPerByte: l.PerByte()}
		if t.Parts++; t.Parts > 1 {
			x.Part = t.Parts
		} else {
			t.Number++
		}
		if bytes.HasSuffix(lines[i], []byte("\n")) {
			t.Parts = 0
		}
		x.Number = t.Number
		t.Total = t.Total.Add(l)
		t.passed(lines[i])
		surprise := t.cmd.RankLine(l)
		prints := (t.cmd.Lines || t.cmd.Follow) && (t.cmd.Threshold == nil || surprise > *t.cmd.Threshold)
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
		if _, err := t.w.Write(t.printed.Bytes()); err != nil {
			return err
		}
		t.Printed += printed
		if t.out != nil {
			t.OutBytes += int64(t.printed.Len())
		}
	}
	if refused != nil {
		n := t.Number
		if t.Parts == 0 {
			n++
		}
		return env.InputErrorf("line %d: %w", n, refused)
	}
	return nil
}

// format appends a line to the output.
func (t *scoring) format(x ScoredLine) error {
	if !t.cmd.JSON {
		return x.print(&t.printed, progress.TerminalWidth(t.w))
	}
	return display.PrintJSONLine(&t.printed, x)
}

// ranks reports whether a line is among the most surprising.
func (t *scoring) ranks(surprise float64) bool {
	n := len(t.Top)
	return n < t.cmd.Top || n > 0 && surprise > t.cmd.RankLine(t.Top[n-1].LineScore)
}

// keep puts a line among the most surprising, if it is one of them.
func (t *scoring) keep(x ScoredLine) {
	i, _ := slices.BinarySearchFunc(t.Top, x, func(a, b ScoredLine) int {
		if t.cmd.RankLine(a.LineScore) >= t.cmd.RankLine(b.LineScore) { // of two that are equal the first stays in front
			return -1
		}
		return 1
	})
	if i < t.cmd.Top {
		x.Text = display.Beginning(x.Text, keptText)
		t.Top = slices.Insert(t.Top, i, x)
		t.Top = t.Top[:min(len(t.Top), t.cmd.Top)]
	}
}

// Report is the JSON result of score.
type Report struct {
	Lines int64 `json:"lines"`
	score.LineScore
	BitsPerByte float64      `json:"bits_per_byte"`
	Rank        string       `json:"rank"`
	Top         []ScoredLine `json:"most_surprising"`
}

func (t *scoring) print() error {
	r := Report{Lines: t.Number, LineScore: t.Total, BitsPerByte: t.Total.PerByte(), Rank: t.cmd.Rank, Top: append([]ScoredLine{}, t.Top...)}
	w := t.e.Stdout
	switch {
	case t.cmd.JSON && (t.cmd.Lines || t.cmd.Follow):
		return display.PrintJSONLine(w, r)
	case t.cmd.JSON:
		return display.PrintJSON(w, r)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %d bytes: %.4f bits per byte\n", display.Pluralise(int(r.Lines), "line"), r.Bytes, r.BitsPerByte)
	if len(r.Top) > 0 {
		fmt.Fprintln(&b, "most surprising:")
	}
	for _, x := range r.Top {
		if err := x.print(&b, progress.TerminalWidth(w)); err != nil {
			return err
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// print prints a line, cut to the width of a terminal; 0: there is none.
func (x ScoredLine) print(w io.Writer, width int) error {
	mark := ":"
	if x.Part > 0 {
		mark += fmt.Sprintf(" (part %d)", x.Part)
	}
	if x.MayRepeat {
		mark += " (may repeat)"
	}
	head, text := fmt.Sprintf("%10.1f bits %6.2f a byte  %7d%s ", x.Bits, x.PerByte(), x.Number, mark), x.Text
	if width > 0 {
		text = display.Shown(text, max(width-len(head), 1))
	}
	_, err := fmt.Fprintln(w, head+text)
	return err
}
