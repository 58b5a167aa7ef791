package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/lab/reproduce"
)

// reproduceCmd is the verb reproduce: published tables and figures, made again.
type reproduceCmd struct {
	Name   string      `complete:"reproductions" arg:"" help:"Reproduction, all, or list."`
	Budget string      `complete:"quick,hour,full" default:"quick" placeholder:"quick|hour|full" help:"Budget: quick (15 minutes), hour (half an hour to half a day), full (published numbers of updates)."`
	IsFull bool        `name:"full" help:"The same as --budget full."`
	Seeds  flags.Count `placeholder:"N" help:"Repeat with seeds 1 to N (by the budget)."`
	Tune   bool        `help:"Tune the learning rate of every mechanism."`
	Text   string      `placeholder:"PATH" help:"Text for bytelm, a file or folder (its data sets)."`
	Pieces string      `placeholder:"PATTERN" help:"Run only the pieces whose names match a regular expression."`
	Out    string      `short:"o" default:"out" placeholder:"DIR" help:"Folder of results; existing results are kept."`
	Page   string      `placeholder:"DIR" help:"Also write NAME.md in this folder once every piece is made, or with --saved (../docs/results)."`
	Repeat bool        `name:"again" xor:"again" help:"Make existing results once more."`
	Saved  bool        `xor:"again" help:"Run nothing: print, and with --page write, what existing results say."`
	JSON   bool        `name:"json" help:"Print JSON instead of tables."`
	flags.DataFolder
}

// Help returns the long help text with examples.
func (c *reproduceCmd) Help() string {
	return "Every finished piece of a reproduction is saved: after Ctrl-C the same command continues. " +
		"Times are measured in turns; other work on the machine makes them unreliable. " +
		"report.html, its figures and report.md lie in a folder for each reproduction and budget. " +
		"hour took two cores 33 minutes (fast-fig2 of 500 images) to two hours in most rows, and 9 to 11 hours in fast-fig5, listops and bytelm; fast-fig6 and arena take longer. " +
		"full trains models of the published size for the published number of updates, with smaller batches in arena and without what \"No budget makes\" in list names; nobody has run it: most rows would take days to months of two cores. list predicts the hours of each. --tune tries the same learning rates for every mechanism and takes the best." + flags.JoinExamples(
		"farfield-lab reproduce list",
		"farfield-lab reproduce fast-fig2",
		"farfield-lab reproduce fast-table1 --budget hour --seeds 3 --out results",
	)
}

// options returns the options that the flags select.
func (c *reproduceCmd) options() (*reproduce.Options, error) {
	b, err := reproduce.ParseBudget(c.Budget)
	if err != nil {
		return nil, env.InputErrorf("--budget: %w", err)
	}
	if c.IsFull {
		if b == reproduce.Hour {
			return nil, env.InputErrorf("--full: --budget hour says something else")
		}
		b = reproduce.Full
	}
	data, err := c.DataFolder.Path()
	if err != nil {
		return nil, err
	}
	if c.Text != "" {
		info, err := os.Stat(c.Text)
		if err != nil {
			return nil, env.InputErrorf("--text: %w", err)
		}
		if info.Mode().IsRegular() && info.Size() == 0 {
			return nil, env.InputErrorf("--text: %s: the file is empty", c.Text)
		}
	}
	if info, err := os.Stat(c.Out); err == nil && !info.IsDir() {
		return nil, env.InputErrorf("--out: %s: not a folder", c.Out)
	}
	if info, err := os.Stat(c.Page); c.Page != "" && (err != nil || !info.IsDir()) {
		return nil, env.InputErrorf("--page: %s: not a folder", c.Page)
	}
	o := &reproduce.Options{Budget: b, Seeds: int(c.Seeds), Tune: c.Tune, Text: c.Text, Out: c.Out, Data: data, Build: reproduce.ThisBuild()}
	if c.Pieces != "" {
		if o.Only, err = regexp.Compile(c.Pieces); err != nil {
			return nil, env.InputErrorf("--pieces: %w", err)
		}
	}
	if c.Repeat {
		o.Remake = func(*reproduce.Record) bool { return true }
	}
	return o, nil
}

func (c *reproduceCmd) Run(e *env.Env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	switch c.Name {
	case "list":
		return c.list(e, o)
	case "all":
		var failed []error
		for _, r := range reproduce.Rows() {
			err := c.one(e, r, suited(o, r))
			if e.Context.Err() != nil {
				return err
			}
			if err != nil {
				fmt.Fprintln(e.Stderr, "farfield:", env.JoinLines(err))
				failed = append(failed, err)
			}
		}
		if len(failed) > 0 {
			return fmt.Errorf("%d of %d reproductions failed: %w", len(failed), len(reproduce.Rows()), errors.Join(failed...))
		}
		return nil
	}
	r, err := reproduce.Lookup(c.Name)
	if err != nil {
		return env.MarkInput(err)
	}
	if o.Seeds > 0 && !r.Seeds {
		return env.InputErrorf("--seeds: %s draws nothing", r.Name)
	}
	if o.Tune && !r.Tunes {
		return env.InputErrorf("--tune: %s trains nothing", r.Name)
	}
	if o.Text != "" && !r.Text {
		return env.InputErrorf("--text: %s reads no texts", r.Name)
	}
	return c.one(e, r, o)
}

// suited returns the options as far as a row has them.
func suited(o *reproduce.Options, r *reproduce.Row) *reproduce.Options {
	of := *o
	if !r.Seeds {
		of.Seeds = 0
	}
	of.Tune = o.Tune && r.Tunes
	if !r.Text {
		of.Text = ""
	}
	return &of
}

// one makes a reproduction and prints its outcome.
func (c *reproduceCmd) one(e *env.Env, r *reproduce.Row, o *reproduce.Options) error {
	p := newReproduceProgress(e)
	var absent []string // data that is not at hand
	if c.Saved {
		out, err := r.Saved(o)
		if err != nil {
			return err
		}
		return c.write(e, r, o, out)
	}
	out, err := r.Run(e.Context, o, reproduce.Observer{Progress: p.show, Saved: p.saved, Skipped: func(_ string, why error) {
		if text := env.JoinLines(why); !slices.Contains(absent, text) {
			absent = append(absent, text)
		}
	}})
	progress.ClearBar(p.bar)
	if e.Context.Err() != nil && errors.Is(err, e.Context.Err()) {
		return env.Interruption{Err: err, Text: "interrupted; the same command goes on after the pieces that are done"}
	}
	if errors.Is(err, task.ErrNoData) {
		return env.MarkInput(err)
	}
	if err != nil {
		return err
	}
	for _, why := range absent {
		fmt.Fprintln(e.Notes(), "left out:", why)
	}
	return c.write(e, r, o, out)
}

// write writes and prints an outcome.
func (c *reproduceCmd) write(e *env.Env, r *reproduce.Row, o *reproduce.Options, out *reproduce.Outcome) error {
	dir, err := out.Write(o)
	if err != nil {
		return err
	}
	if c.Page != "" && (len(out.Missing) == 0 || c.Saved) {
		path := filepath.Join(c.Page, r.Name+".md")
		if err := out.WritePage(path); err != nil {
			return err
		}
		fmt.Fprintf(e.Notes(), "wrote %s\n", path)
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, out)
	}
	if err := out.WriteMarkdown(e.Stdout); err != nil {
		return err
	}
	fmt.Fprintf(e.Notes(), "written to %s\n", dir)
	return nil
}

// reproduction is an entry of the list.
type reproduction struct {
	Name         string  `json:"name"`
	Doc          string  `json:"doc"`
	Source       string  `json:"source"`
	Published    string  `json:"published"`
	Lacks        string  `json:"lacks,omitempty"`
	QuickSeconds float64 `json:"quick_seconds"`
	HourSeconds  float64 `json:"hour_seconds"`
	FullSeconds  float64 `json:"full_seconds"`
}

// list prints the published results and the predicted cost of each reproduction.
func (c *reproduceCmd) list(e *env.Env, o *reproduce.Options) error {
	m := bench.DescribeMachine(50 * time.Millisecond)
	var list []reproduction
	for _, r := range reproduce.Rows() {
		x := reproduction{Name: r.Name, Doc: r.Doc, Source: r.Source, Published: r.Claim, Lacks: r.Lacks}
		for b, seconds := range map[reproduce.Budget]*float64{reproduce.Quick: &x.QuickSeconds, reproduce.Hour: &x.HourSeconds, reproduce.Full: &x.FullSeconds} {
			of := suited(o, r)
			of.Budget = b
			pieces, err := r.Pieces(of)
			if err != nil {
				return err
			}
			for i := range pieces {
				*seconds += pieces[i].Seconds(m)
			}
		}
		list = append(list, x)
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, list)
	}
	fmt.Fprintf(e.Stdout, "%v\n\n", m)
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tQUICK\tHOUR\tFULL\tWHAT")
	for _, x := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", x.Name, display.Span(x.QuickSeconds), display.Span(x.HourSeconds), display.Span(x.FullSeconds), x.Doc)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, x := range list {
		fmt.Fprintf(e.Stdout, "\n%s: %s\n  %s\n", x.Name, x.Source, x.Published)
		if x.Lacks != "" {
			fmt.Fprintf(e.Stdout, "  No budget makes: %s.\n", x.Lacks)
		}
	}
	_, err := fmt.Fprintln(e.Stdout, "\nTimes are for the counted operations at half of the peak above, and for timed measurements; short sequences and busy machines take up to three times as long.")
	return err
}

// reproduceProgress says on standard error how far a reproduction is: a bar on
// a terminal, lines every few seconds elsewhere.
type reproduceProgress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	spoke time.Time
}

func newReproduceProgress(e *env.Env) *reproduceProgress {
	p := &reproduceProgress{w: e.Notes(), spoke: time.Now()}
	if e.IsTerminal {
		p.bar = progress.NewBar(e.Notes(), 1000, progressbar.OptionSetPredictTime(false))
	}
	return p
}

// show is called as a piece goes on.
func (p *reproduceProgress) show(x reproduce.Progress) {
	text := fmt.Sprintf("%s %s, piece %d of %d, %s left", x.Row, x.Piece, x.Finished+1, x.Total, x.TimeLeft.Round(time.Second))
	if p.bar != nil {
		// A bar that cannot be drawn is no reason to stop.
		p.bar.Describe(text)
		_ = p.bar.Set(int(999 * (float64(x.Finished) + min(x.Share, 1)) / float64(x.Total)))
	} else if now := time.Now(); now.Sub(p.spoke) >= progress.LinePeriod {
		p.spoke = now
		fmt.Fprintln(p.w, text)
	}
}

// saved is called after each piece.
func (p *reproduceProgress) saved(r *reproduce.Record) {
	if p.bar == nil && r.Seconds >= progress.LinePeriod.Seconds() {
		fmt.Fprintf(p.w, "%s took %s\n", r.Piece, display.Span(r.Seconds))
	}
}
