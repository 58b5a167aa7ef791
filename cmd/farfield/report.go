package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
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

	Folder string `arg:"" name:"run" help:"Folder of a run, finished or not, or of the runs of --seeds."`
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
	if err := checkOutput(c.Out); err != nil {
		return inputf("--out: %w", err)
	}
	out := c.Out
	if out == "" {
		out = filepath.Join(c.Folder, reportFile)
	}
	runs, err := findRuns(c.Folder)
	if err != nil {
		return input(err)
	}
	if len(runs) > 1 || runs[0] != c.Folder {
		if _, err = writeComparison(out, c.Folder); err != nil {
			return input(err)
		}
		_, err = fmt.Fprintln(e.stdout, out)
		return err
	}
	config, err := runConfig(c.Folder)
	if err != nil {
		return input(err)
	}
	var text string
	if c.SampleTokens > 0 {
		m, vocab, err := train.LoadModel(c.Folder)
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
	if err := writeReport(out, c.Folder, text); err != nil {
		return input(err)
	}
	_, err = fmt.Fprintln(e.stdout, out)
	return err
}

// trainedRun is what the folder of a run tells of it so far.
type trainedRun struct {
	dir, name string
	config    train.Config
	history   *train.History
	final     *train.Eval  // that the run is judged by; nil: it has not ended
	result    *trainReport // nil: it has not ended, or another program trained it
}

func readRun(dir string) (*trainedRun, error) {
	config, err := runConfig(dir)
	if err != nil {
		return nil, err
	}
	r := &trainedRun{dir: dir, name: filepath.Base(filepath.Clean(dir)), config: config}
	if r.history, err = train.ReadHistory(dir); err != nil {
		return nil, err
	}
	if n := len(r.history.Evals); n > 0 && r.history.Evals[n-1].Eval != train.EvalLook && r.history.Evals[n-1].Step == r.updates() {
		r.final = &r.history.Evals[n-1]
	}
	result, err := readResult(dir)
	if err == nil && result != nil && r.final != nil && result.Steps == r.final.Step { // not of a run that went on
		r.result = result
	}
	return r, err
}

// updates are how many were made.
func (r *trainedRun) updates() int {
	if n := len(r.history.Steps); n > 0 {
		return r.history.Steps[n-1].Step
	}
	return 0
}

// seconds are how long it took so far.
func (r *trainedRun) seconds() float64 {
	var s float64
	if n := len(r.history.Steps); n > 0 {
		s = r.history.Steps[n-1].Elapsed
	}
	if n := len(r.history.Evals); n > 0 {
		s = max(s, r.history.Evals[n-1].Elapsed)
	}
	return s
}

// looks are the evaluations of the validation part while the model learned.
func (r *trainedRun) looks() (list []train.Eval) {
	for _, v := range r.history.Evals {
		if v.Eval == train.EvalLook {
			list = append(list, v)
		}
	}
	return list
}

// verdict is a sentence on how good the model is.
func (r *trainedRun) verdict() string {
	if r.result != nil && r.result.Verdict != nil {
		return r.result.Verdict.Text
	}
	if r.final != nil {
		x, m := judged(r.final.Score)
		return fmt.Sprintf("%s: %s on %d samples (%s). No baseline is known.", upperFirst(m.name), m.number(x), r.final.Samples, r.final.Split)
	}
	text := fmt.Sprintf("Not finished: %d of %d updates", r.updates(), r.config.Steps)
	if looks := r.looks(); len(looks) > 0 {
		x, m := judged(looks[len(looks)-1].Score)
		text += fmt.Sprintf(", validation %s %s so far", m.name, m.number(x))
	}
	return text + "."
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// writeReport writes the page of the run in the folder dir, with a text that its
// model wrote, "" if there is none.
func writeReport(out, dir, text string) error {
	r, err := readRun(dir)
	if err != nil {
		return err
	}
	page := r.page()
	if text != "" {
		page.Sections = append(page.Sections, report.Section{Title: "Sample", Text: "By the checkpoint that the run is judged by.", Code: text})
	}
	return atomicfile.Write(out, page.WriteHTML)
}

// page is the page of the run: verdict, scores, curves.
func (r *trainedRun) page() *report.Page {
	c := &r.config
	page := &report.Page{Title: "Training of " + r.name, Verdict: r.verdict(), About: report.DescribeBuild("farfield train --config config.json")}
	page.About.Config, page.About.Seeds = *c, []uint64{c.Seed}
	page.About.Took = time.Duration(r.seconds() * float64(time.Second))
	page.Lead = fmt.Sprintf("%s by %s, layers %d, width %d, context %d: %d of %d updates.",
		c.Task, cmp.Or(c.Model.Mechanism, "no attention"), c.Model.Layers, c.Model.Width, c.Model.Context, r.updates(), c.Steps)
	add := func(title string, t *report.Table) {
		if len(t.Rows) > 0 {
			page.Sections = append(page.Sections, report.Section{Title: title, Table: t})
		}
	}
	if r.result != nil {
		x, m := judged(r.result.Score)
		add("Score", scoreTable(r.result.Split, x, m, r.result.baselines()))
		add("By class", classTable(r.result.Confusion, r.result.Classes))
	}
	page.Sections = append(page.Sections, r.curves()...)
	table := &report.Table{Head: []string{"update", "part", "loss", "score", "seconds"}}
	all := r.history.Evals
	every := (len(all) + mostEvaluations - 1) / mostEvaluations
	if every > 1 {
		table.Note = fmt.Sprintf("One of %d; all %d are in metrics.jsonl.", every, len(all))
	}
	for i, v := range all {
		x, m := judged(v.Score)
		if (i+1)%max(every, 1) != 0 && v.Eval == train.EvalLook {
			continue
		}
		part := v.Split
		if v.Eval != train.EvalLook {
			part += ", " + v.Eval
		}
		table.Head[3] = m.name
		table.Rows = append(table.Rows, []string{strconv.Itoa(v.Step), part, fmt.Sprintf("%.4f", v.Loss), m.number(x), fmt.Sprintf("%.0f", v.Elapsed)})
	}
	add("Evaluations", table)
	return page
}

// scoreTable has a score above those of the baselines.
func scoreTable(split string, x float64, m measure, baselines []task.Baseline) *report.Table {
	t := &report.Table{Head: []string{"", m.name}, Rows: [][]string{{"this model", m.number(x)}}, Note: "On the " + split + " part."}
	for _, b := range baselines {
		t.Rows = append(t.Rows, []string{b.Name, m.number(b.Score)})
	}
	return t
}

// classTable has a row for each class.
func classTable(confusion [][]int64, names []string) *report.Table {
	t := &report.Table{Head: []string{"class", "targets", "recall", "precision", "mistaken for"},
		Note: "Recall is the share of a class that is taken for it, precision the share of what is taken for the class that is. The last column is the commonest mistake."}
	for _, s := range classScores(confusion, names) {
		t.Rows = append(t.Rows, []string{s.Name, strconv.FormatInt(s.Targets, 10), share(s.Recall), share(s.Precision), s.Mistaken})
	}
	return t
}

// lossUnit is what losses are told in.
func (r *trainedRun) lossUnit() string {
	for _, v := range r.history.Evals {
		if v.Bits > 0 {
			return "nats a token"
		}
	}
	return "loss"
}

// curves are figures over the updates.
func (r *trainedRun) curves() (list []report.Section) {
	var loss, rate, norm, checked, score report.Series
	loss.Name, checked.Name = "training", "validation"
	rate.Style, norm.Style, loss.Style = report.PlainLine, report.PlainLine, report.PlainLine
	for _, some := range stretches(r.history.Steps) {
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
	var m measure
	for _, v := range r.history.Evals {
		if v.Split != task.Valid.String() {
			continue
		}
		checked.X, checked.Y = append(checked.X, float64(v.Step)), append(checked.Y, v.Loss)
		var x float64
		x, m = judged(v.Score)
		score.Name = "validation"
		score.X, score.Y = append(score.X, float64(v.Step)), append(score.Y, x)
	}
	add := func(title, unit string, all ...report.Series) {
		f := &report.Figure{Title: title, XLabel: "updates", YLabel: unit, XLinear: true, YLinear: true}
		for _, s := range all {
			if len(s.X) > 0 {
				f.Series = append(f.Series, s)
			}
		}
		if len(f.Series) > 0 {
			list = append(list, report.Section{Figure: f})
		}
	}
	add("Loss", r.lossUnit(), loss, checked)
	if m.Metric == task.Accuracy && r.result != nil {
		add("Score", m.name, append([]report.Series{score}, levels(r.result.baselines(), m, 1, float64(r.updates()))...)...)
	} else if m.Metric == task.Accuracy {
		add("Score", m.name, score)
	}
	add("Learning rate", "", rate)
	add("Norm of the gradient before clipping", "", norm)
	if len(list) > 0 {
		list[0].Title = "Curves"
	}
	return list
}

// levels is a line for the best baseline.
func levels(baselines []task.Baseline, m measure, from, to float64) []report.Series {
	best, ok := bestBaseline(baselines, m)
	if !ok {
		return nil
	}
	return []report.Series{{Name: "baseline " + best.Name, X: []float64{from, to}, Y: []float64{best.Score, best.Score}, Style: report.LevelLine}}
}

// What a page shows at most.
const (
	curvePoints     = 500
	mostEvaluations = 15 // rows
)

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
