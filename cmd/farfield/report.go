package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/report"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// reportFile is the page in the folder of a run.
const reportFile = "report.html"

// reportCmd is the verb report: a page of a run.
type reportCmd struct {
	Out          string `short:"o" placeholder:"FILE" help:"Where it goes, by default report.html in the run's folder, where train writes it at its end."`
	SampleTokens int    `placeholder:"N" default:"400" help:"Tokens of a text from the latest checkpoint, if there is one; 0 for none (${default})."`

	Folder string `arg:"" name:"run" help:"Folder of a run, finished or not."`
}

// Help are examples.
func (c *reportCmd) Help() string {
	return "The page is one file, with its drawings in it." + examples(
		"farfield report run/001",
		"farfield report --sample-tokens 0 --out page.html run/001",
	)
}

func (c *reportCmd) Run(e *env) error {
	if c.SampleTokens < 0 {
		return inputf("--sample-tokens: %d is negative", c.SampleTokens)
	}
	config, err := runConfig(c.Folder)
	if err != nil {
		return input(err)
	}
	if err := checkOutput(c.Out); err != nil {
		return inputf("--out: %w", err)
	}
	var text string
	if c.SampleTokens > 0 {
		m, vocab, err := train.Load(c.Folder)
		switch {
		case errors.Is(err, train.ErrNoCheckpoint):
		case err != nil:
			return input(err)
		case vocab != nil:
			if text, err = sample(e.ctx, m, vocab, lineBreak(vocab), c.SampleTokens, config.Seed); err != nil {
				return err
			}
		}
	}
	out := c.Out
	if out == "" {
		out = filepath.Join(c.Folder, reportFile)
	}
	if err := writeReport(out, c.Folder, text); err != nil {
		return input(err)
	}
	_, err = fmt.Fprintln(e.stdout, out)
	return err
}

// writeReport writes the page of the run in the folder dir, with a text that its
// model wrote, "" if there is none.
func writeReport(out, dir, text string) error {
	config, err := train.RunConfig(dir)
	if err != nil {
		return err
	}
	history, err := train.ReadHistory(dir)
	if err != nil {
		return err
	}
	page := runPage(filepath.Base(filepath.Clean(dir)), config, history)
	if text != "" {
		page.Sections = append(page.Sections, report.Section{Title: "Sample", Text: "By the checkpoint that the run is judged by.", Code: text})
	}
	return atomicfile.Write(out, page.WriteHTML)
}

// runPage is the page of a run, by what it has written so far.
func runPage(name string, config train.Config, h *train.History) *report.Page {
	page := &report.Page{Title: "Training of " + name, About: report.Here("farfield train --config config.json")}
	page.About.Config, page.About.Seeds = config, []uint64{config.Seed}
	page.Lead = fmt.Sprintf("%s by %s, %d layers of width %d, context %d: %d of %d updates.",
		config.Task, cmp.Or(config.Model.Mechanism, "no attention"), config.Model.Layers, config.Model.Width, config.Model.Context, len(h.Steps), config.Steps)
	var loss, rate, norm, checked report.Series
	loss.Name, checked.Name = "training", "validation"
	rate.Style, norm.Style, loss.Style = report.Bare, report.Bare, report.Bare
	for _, some := range stretches(h.Steps) {
		var mean train.Step
		for _, s := range some {
			mean.Loss += s.Loss / float64(len(some))
			mean.Rate += s.Rate / float64(len(some))
			mean.GradNorm += s.GradNorm / float64(len(some))
		}
		at := float64(some[len(some)-1].Step)
		for _, to := range []struct {
			s *report.Series
			y float64
		}{{&loss, mean.Loss}, {&rate, mean.Rate}, {&norm, mean.GradNorm}} {
			to.s.X, to.s.Y = append(to.s.X, at), append(to.s.Y, to.y)
		}
	}
	unit := "loss"
	table := &report.Table{Head: []string{"update", "samples", "of the part", "loss", "score", "targets", "seconds"}}
	for _, v := range h.Evals {
		if v.Split == task.Valid.String() {
			checked.X, checked.Y = append(checked.X, float64(v.Step)), append(checked.Y, v.Loss)
		}
		score := fmt.Sprintf("%.4f", v.Value)
		table.Head[4] = string(v.Metric)
		if v.Bits > 0 {
			unit, table.Head[4], score = "nats a token", "bits per byte", fmt.Sprintf("%.4f", v.Bits)
		}
		table.Rows = append(table.Rows, []string{strconv.Itoa(v.Step), v.Eval, v.Split, fmt.Sprintf("%.4f", v.Loss), score,
			strconv.FormatInt(v.Tokens, 10), fmt.Sprintf("%.0f", v.Elapsed)})
	}
	curves := func(title, unit string, list ...report.Series) {
		f := &report.Figure{Title: title, XLabel: "updates", YLabel: unit, XLinear: true, YLinear: true}
		for _, s := range list {
			if len(s.X) > 0 {
				f.Series = append(f.Series, s)
			}
		}
		if len(f.Series) > 0 {
			page.Sections = append(page.Sections, report.Section{Figure: f})
		}
	}
	curves("Loss", unit, loss, checked)
	curves("Learning rate", "", rate)
	curves("Norm of the gradient before clipping", "", norm)
	if len(table.Rows) > 0 {
		page.Sections = append(page.Sections, report.Section{Title: "Evaluation", Table: table})
	}
	if n := len(h.Steps); n > 0 {
		page.About.Took = time.Duration(h.Steps[n-1].Elapsed * float64(time.Second))
	}
	return page
}

// curvePoints are the most points of a curve.
const curvePoints = 500

// stretches cuts the updates into as many pieces as a curve has points at most,
// of which means are drawn.
func stretches(steps []train.Step) [][]train.Step {
	n := min(len(steps), curvePoints)
	list := make([][]train.Step, n)
	for i := range list {
		list[i] = steps[i*len(steps)/n : (i+1)*len(steps)/n]
	}
	return list
}
