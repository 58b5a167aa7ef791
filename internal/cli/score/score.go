// Package score implements the verb score: the bits of each line of a text.
package score

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/score"
)

const (
	rankBytes  = 16      // shorter lines are ranked as lines of this length
	keptText   = 1 << 12 // bytes of a line among the most surprising
	batchBytes = 1 << 16 // of lines that are scored together
)

// Command is the verb score: it prints how many bits a text takes, line by line.
type Command struct {
	File  string `arg:"" optional:"" placeholder:"FILE" help:"Text to score; - or nothing is standard input."`
	Model string `required:"" placeholder:"DIR" help:"Folder of a run, a checkpoint or a published model."`

	Lines     bool     `help:"Print every line with its bits."`
	Rank      string   `enum:"byte,total" default:"byte" help:"Rank lines by bits a byte or by total bits (${default})."`
	Threshold *float64 `name:"above" placeholder:"X" help:"Print only lines above X, in the unit of --rank."`
	Top       int      `placeholder:"K" default:"10" help:"Print the K most surprising lines at the end (${default})."`
	Beyond    bool     `name:"beyond-context" help:"Read a text longer than the trained context in one state, not in windows."`
	JSONL     bool     `name:"jsonl" help:"Score JSON lines; add bits, bytes and bits_per_byte."`
	JSON      bool     `name:"json" help:"Print the result as JSON; with --lines, an object a line."`
	flags.Opening
	Filter records.Filter `embed:""`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "The bits of a line say how badly the model predicts it: few if it has learned such lines, many if it is surprised. " +
		"A text longer than the trained context is read in windows of that length, because few models predict well beyond it; each window repeats a quarter of the one before. " +
		"It also prints the rarest line templates of a log: lines that differ only in their numbers share a template. They are counted without a model, so that you see whether the model finds more. " +
		"A published model whose tokenizer changes the text, for example to lower case, is refused, because the bits would belong to other bytes." + flags.JoinExamples(
		"farfield score --model run/001 notes.txt",
		"farfield score --model run/001 --lines --above 3 notes.txt",
		"farfield score --model run/001 --jsonl <records.jsonl >scored.jsonl",
		"farfield score --model run/001 --jsonl --out scored.jsonl records.jsonl",
	)
}

// Run scores a text or records. It returns an error if flags, model or
// input are invalid or the output fails.
func (c *Command) Run(e *env.Env) error {
	switch {
	case c.Top < 0:
		return env.InputErrorf("--top: %d is negative", c.Top)
	case c.JSONL && c.Lines:
		return env.InputErrorf("--jsonl: not with --lines: every record is for itself")
	case c.JSONL && c.JSON:
		return env.InputErrorf("--json: given beside --jsonl, which prints JSON lines itself")
	case c.JSONL && (c.Rank != "byte" || c.Top != 10):
		return env.InputErrorf("--rank, --top: not with --jsonl, which ranks no lines")
	case c.Threshold != nil && !c.Lines:
		return env.InputErrorf("--above: needs --lines")
	}
	if err := c.Filter.Check(c.JSONL); err != nil {
		return err
	}
	options, err := c.Chosen()
	if err != nil {
		return err
	}
	m, err := runs.OpenText(c.Model, options)
	if err != nil {
		return env.MarkInput(err)
	}
	runs.PrintNotes(e.Notes(), m.Published())
	scorer, err := c.newScorer(m)
	if err != nil {
		return env.MarkInput(err)
	}
	if c.JSONL {
		return c.records(e, m, scorer)
	}
	in, err := texts.OpenText(e, c.File)
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	t := &scoring{cmd: c, e: e, scorer: scorer, context: m.Config().TrainedContext(), holds: m.Config().ContextWindow() == 0, start: time.Now()}
	t.note = func(line []byte) { m.NoteTextDistance(e.Context, e.Notes(), string(line)) }
	return t.run(&texts.LineSource{Reader: in, Longest: texts.LongestLine, WholeRunes: true})
}

// newScorer returns the scorer of an empty text.
func (c *Command) newScorer(m *inference.Model) (*score.Scorer, error) {
	s, err := m.NewScorer()
	if err != nil || !c.Beyond {
		return s, err
	}
	if err := s.SetWindow(0); err != nil {
		return nil, fmt.Errorf("--beyond-context: %w", err)
	}
	return s, nil
}

// records scores JSON lines, each from an empty text.
func (c *Command) records(e *env.Env, m *inference.Model, s *score.Scorer) error {
	in, err := texts.OpenFiles(e, cmp.Or(c.File, "-"))
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	if err := c.Filter.BindModel("score", m.HashFiles); err != nil {
		return err
	}
	c.Opening.Bind(c.Filter.Bind)
	var long atomic.Int64 // records that are read in windows
	var fields []records.TextFunc
	for range par.Threads() {
		own, err := s.Clone()
		if err != nil {
			return err
		}
		fields = append(fields, func(text string) ([]records.Field, error) {
			m.NoteTextDistance(e.Context, e.Notes(), text)
			if err := own.Reset(); err != nil {
				return nil, err
			}
			l, err := own.ScoreText(e.Context, []byte(text))
			if own.InWindows() {
				long.Add(1)
			}
			return []records.Field{{Name: "bits", Value: l.Bits}, {Name: "bytes", Value: l.Bytes}, {Name: "bits_per_byte", Value: l.PerByte()}}, err
		})
	}
	err = c.Filter.FilterFile(e, in, fields...)
	if n := long.Load(); n > 0 {
		fmt.Fprintf(e.Notes(), "%s longer than the trained context of %d tokens: read in windows of it\n", display.Pluralise(int(n), "record"), s.Window())
	}
	return err
}

// ScoredLine is a line and its bits.
type ScoredLine struct {
	Number int64 `json:"line"` // from 1
	score.LineScore
	BitsPerByte float64 `json:"bits_per_byte"`
	Text        string  `json:"text"`
	Part        int64   `json:"part,omitempty"` // of a line that is scored in parts, from 2
}

// RankLine returns the number by which lines are ranked. Short lines count as rankBytes bytes, so
// that a line break alone is no surprise, however many bits it takes.
func (c *Command) RankLine(l score.LineScore) float64 {
	if c.Rank == "total" {
		return l.Bits
	}
	return l.Bits / float64(max(l.Bytes, rankBytes))
}

// scoring is a text that is being scored.
type scoring struct {
	note    func(line []byte) // notes a text of another kind than those of the exchange
	cmd     *Command
	e       *env.Env
	scorer  *score.Scorer
	context int  // tokens of the model's trained context
	holds   bool // the model predicts as well beyond it
	printed bytes.Buffer
	scored  []score.LineScore

	start     time.Time
	estimated bool // the time of the whole text was estimated

	number int64 // lines that were scored
	parts  int64 // parts of the last line, if its end was not scored
	total  score.LineScore
	top    []ScoredLine // the most surprising first

	templates templates
}

// run scores line after line until the text ends, and prints the report. After an interrupt the
// report is of the lines before it.
func (t *scoring) run(src *texts.LineSource) error {
	err := t.all(src)
	if err != nil && (t.e.Context.Err() == nil || !errors.Is(err, t.e.Context.Err())) {
		return err
	}
	return cmp.Or(t.print(), err)
}

// all scores the lines of a text. The last may have no line break.
func (t *scoring) all(src *texts.LineSource) error {
	var lines [][]byte
	for {
		if err := t.e.Context.Err(); err != nil {
			return err
		}
		var err error
		lines, err = src.NextLines(lines[:0], 1, batchBytes)
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		default:
			rest := src.Rest()
			if rest == nil {
				return nil
			}
			lines = append(lines, rest)
		}
		if err := t.lines(lines); err != nil {
			return err
		}
		t.estimate()
	}
}

const (
	estimateTime = 2 * time.Second  // of scoring, after which the time of a whole text is estimated
	longTime     = 10 * time.Minute // from which the time is printed
)

// estimate says once, after the first seconds, how long a large text will take.
func (t *scoring) estimate() {
	spent := time.Since(t.start)
	if t.estimated || spent < estimateTime {
		return
	}
	t.estimated = true
	if texts.IsStandard(t.cmd.File) {
		return
	}
	if note := describeLongText(t.cmd.File, texts.TextSize(t.e, t.cmd.File), int64(t.total.Bytes), spent); note != "" {
		fmt.Fprintln(t.e.Notes(), note)
	}
}

// describeLongText returns a line about the time that a text of size bytes takes, of which some were scored in
// the time that was spent; "": it is short, or its size is not known.
func describeLongText(file string, size, scored int64, spent time.Duration) string {
	if size <= 0 || scored <= 0 {
		return ""
	}
	whole := spent.Seconds() * float64(size) / float64(scored)
	if whole <= longTime.Seconds() {
		return ""
	}
	const count = "sed -E 's/[0-9]+/0/g' %s | sort | uniq -c | sort -n | head"
	return fmt.Sprintf("%d bytes will take about %.0f minutes, and Ctrl-C prints the report of the lines so far. Of a log, count line templates first, in seconds: "+count,
		size, whole/60, display.QuoteWord(file))
}

// lines scores lines and prints those that are to be printed.
func (t *scoring) lines(lines [][]byte) error {
	for _, line := range lines {
		t.note(line)
	}
	var refused error
	t.scored, refused = t.scorer.ScoreLines(t.e.Context, t.scored[:0], lines...)
	t.printed.Reset()
	for i, l := range t.scored {
		x := ScoredLine{LineScore: l, BitsPerByte: l.PerByte()}
		if t.parts++; t.parts > 1 {
			x.Part = t.parts
		} else {
			t.number++
		}
		if bytes.HasSuffix(lines[i], []byte("\n")) {
			t.parts = 0
		}
		x.Number = t.number
		if x.Part == 0 {
			t.templates.add(lines[i], t.number)
		}
		t.total = t.total.Add(l)
		surprise := t.cmd.RankLine(l)
		prints := t.cmd.Lines && (t.cmd.Threshold == nil || surprise > *t.cmd.Threshold)
		if prints || t.ranks(surprise) {
			x.Text = strings.TrimRight(string(lines[i]), "\r\n")
		}
		t.keep(x)
		if !prints {
			continue
		}
		if err := t.format(x); err != nil {
			return err
		}
	}
	if t.printed.Len() > 0 {
		if _, err := t.e.Stdout.Write(t.printed.Bytes()); err != nil {
			return err
		}
	}
	switch {
	case refused == nil:
		return nil
	case t.e.Context.Err() != nil && errors.Is(refused, t.e.Context.Err()):
		return refused
	}
	n := t.number
	if t.parts == 0 {
		n++
	}
	return env.InputErrorf("line %d: %w", n, refused)
}

// format appends a line to the output.
func (t *scoring) format(x ScoredLine) error {
	if !t.cmd.JSON {
		return x.print(&t.printed, progress.TerminalWidth(t.e.Stdout))
	}
	return display.PrintJSONLine(&t.printed, x)
}

// ranks reports whether a line is among the most surprising.
func (t *scoring) ranks(surprise float64) bool {
	n := len(t.top)
	return n < t.cmd.Top || n > 0 && surprise > t.cmd.RankLine(t.top[n-1].LineScore)
}

// keep puts a line among the most surprising, if it is one of them.
func (t *scoring) keep(x ScoredLine) {
	i, _ := slices.BinarySearchFunc(t.top, x, func(a, b ScoredLine) int {
		if t.cmd.RankLine(a.LineScore) >= t.cmd.RankLine(b.LineScore) { // of two that are equal the first stays in front
			return -1
		}
		return 1
	})
	if i < t.cmd.Top {
		x.Text = display.Beginning(x.Text, keptText)
		t.top = slices.Insert(t.top, i, x)
		t.top = t.top[:min(len(t.top), t.cmd.Top)]
	}
}

// Report is the JSON result of score.
type Report struct {
	Lines     int64  `json:"lines"`
	Precision string `json:"precision"` // of the weights
	score.LineScore
	BitsPerByte   float64      `json:"bits_per_byte"`
	Rank          string       `json:"rank"`
	Top           []ScoredLine `json:"most_surprising"`
	ContextWindow int          `json:"context_window,omitempty"` // tokens of the windows of a text beyond the trained context; 0: there are none
	Templates     int          `json:"templates,omitempty"`      // line templates of a log
	Rarest        []Template   `json:"rarest,omitempty"`         // of them
}

func (t *scoring) print() error {
	r := Report{Lines: t.number, Precision: t.cmd.Precision.Precision, LineScore: t.total, BitsPerByte: t.total.PerByte(), Rank: t.cmd.Rank, Top: append([]ScoredLine{}, t.top...)}
	if t.scorer.InWindows() {
		r.ContextWindow = t.scorer.Window()
		fmt.Fprintf(t.e.Notes(), "read in windows of %d tokens, the trained context of the model\n", r.ContextWindow)
	} else if t.holds && t.scorer.Tokens() > int64(t.context) {
		fmt.Fprintf(t.e.Notes(), "read in one state beyond the %d tokens that the model was trained with: its layers forget, so its quality holds\n", t.context)
	} else if t.scorer.Tokens() > int64(t.context) {
		fmt.Fprintf(t.e.Notes(), "the text has %d tokens, the model was trained with %d: bits grow where its quality does not hold\n", t.scorer.Tokens(), t.context)
	}
	if r.Rarest = t.templates.rarest(t.cmd.Top); len(r.Rarest) > 0 {
		r.Templates = len(t.templates.count)
	}
	w := t.e.Stdout
	switch {
	case t.cmd.JSON && t.cmd.Lines:
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
	if len(r.Rarest) > 0 {
		fmt.Fprintf(&b, "rarest of %s, counted without the model:\n", display.Pluralise(r.Templates, "line template"))
	}
	for _, x := range r.Rarest {
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
	head, text := fmt.Sprintf("%10.1f bits %6.2f a byte  %7d%s ", x.Bits, x.PerByte(), x.Number, mark), x.Text
	if width > 0 {
		text = display.Shown(text, max(width-len(head), 1))
	}
	_, err := fmt.Fprintln(w, head+text)
	return err
}
