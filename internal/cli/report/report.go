// Package report implements the verb report: a page of a run.
package report

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/cli/compare"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb report: a page of a run.
type Command struct {
	Out          string `short:"o" placeholder:"FILE" help:"Page to write (report.html in the folder of the run)."`
	SampleTokens int    `placeholder:"N" default:"400" help:"Tokens of a generated text; 0: no text (${default})."`

	Folder string `arg:"" name:"run" help:"Folder of a run, finished or not, or of the runs of --seeds."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "The page is one file, with its drawings in it." + flags.JoinExamples(
		"farfield report run/001",
		"farfield report --sample-tokens 0 --out page.html run/001",
	)
}

// Run writes the page of a run. It returns an error if the run cannot be read or the
// page cannot be written.
func (c *Command) Run(e *env.Env) error {
	if c.SampleTokens < 0 {
		return env.InputErrorf("--sample-tokens: %d is negative", c.SampleTokens)
	}
	out := c.Out
	if out == "" {
		out = filepath.Join(c.Folder, runs.ReportFile)
	}
	folders, err := compare.FindRuns(c.Folder)
	if err != nil {
		return env.MarkInput(err)
	}
	if err := compare.CheckPage(out, append(folders, c.Folder)...); err != nil {
		return env.InputErrorf("--out: %w", err)
	}
	if len(folders) > 1 || folders[0] != c.Folder {
		if _, err = compare.WriteComparison(out, c.Folder, folders); err != nil {
			return env.MarkInput(err)
		}
		_, err = fmt.Fprintln(e.Stdout, out)
		return err
	}
	config, err := runs.ReadRunConfig(c.Folder)
	if err != nil {
		return env.MarkInput(err)
	}
	var text string
	if c.SampleTokens > 0 {
		m, vocab, err := inference.LoadRun(c.Folder)
		switch {
		case errors.Is(err, train.ErrNoCheckpoint):
		case err != nil:
			return env.MarkInput(err)
		case vocab != nil && m.Config().HasSessions():
			if text, err = inference.SampleText(e.Context, m, vocab, inference.LineBreakTokens(vocab), c.SampleTokens, config.Seed); err != nil {
				return err
			}
		}
	}
	if err := runs.WriteReport(out, c.Folder, text); err != nil {
		return env.MarkInput(err)
	}
	_, err = fmt.Fprintln(e.Stdout, out)
	return err
}
