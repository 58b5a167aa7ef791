// Package eval implements the verb eval: the scores of a model on a text or a task.
package eval

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb eval: it measures how well a model predicts a text, or does its task.
type Command struct {
	Model   string            `required:"" placeholder:"DIR" help:"Folder of a run, a checkpoint or a published model."`
	Data    string            `placeholder:"FILE|FOLDER" help:"Text to predict, or labelled data (the data of the run)."`
	Task    string            `complete:"tasks" placeholder:"NAME" help:"Task of labelled data: file or picture."`
	TaskSet map[string]string `complete:"task-settings" mapsep:"none" placeholder:"NAME=VALUE" help:"Setting of the task; may be repeated."`
	Pairs   bool              `help:"Read a second text a row, from the column pair."`
	flags.DataFolder
	All    bool   `help:"Score the whole text or all labelled texts."`
	Stride *int   `placeholder:"N" help:"Read a text in overlapping windows that begin N tokens after each other, and score the last N tokens of each (windows side by side)."`
	Split  string `complete:"valid,test" placeholder:"NAME" help:"Split of the task: valid or test (test if it exists)."`
	Limit  int    `placeholder:"N" default:"0" help:"Take N samples or windows, spread evenly; 0: all."`
	JSON   bool   `name:"json" help:"Print the result as JSON."`
	flags.Opening
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Without --data a run is scored on its held-out data, which must be unchanged; of a text, that is the last tenth. " +
		"A text is read in windows of the model's context, side by side, so the first tokens of each window have little text before them. With --stride N windows overlap: each begins N tokens after the one before, and only its last N tokens are scored. This is the perplexity of sliding windows, and takes context/N times as long. " +
		"--data may name other data, if the task reads files of yours; its classes are found by name. If it has no test set, a tenth of it is scored, and baselines learn from the rest; with --all everything is scored, and baselines learn from the data of the run.\n\n" +
		"A model of task pairs also writes targets for the sources. They are compared with the true targets by the share that is equal and by ROUGE-1, -2 and -L (F1 of words in lower case, without stemming), beside the whole source and its first three sentences (lead-3).\n\n" +
		"A published model needs --data. A decoder predicts a text in windows of its positions, at most 2048, each after the tokens that begin a text. " +
		"A classifier is scored on labelled texts, in the files and folders that train --task file reads, beside baselines that learn from the same data. " +
		"With --pairs a row has text, pair and label; --task-set text=NAME, pair=NAME and label=NAME name other columns. " +
		"A model of images reads a folder with a folder of PNG or JPEG files for each class. " +
		"Either all labels are names of classes, or all are their numbers.\n\n" +
		"With --limit there are no baselines, because they are scored on all samples." + flags.JoinExamples(
		"farfield eval --model run/001",
		"farfield eval --model run/001 --data notes.txt --all --json",
		"farfield eval --model run/001 --limit 100",
		"farfield eval --model run/001 --stride 32",
		"farfield eval --model distilbert-sst2 --task file --data labelled.tsv --all",
		"farfield eval --model nli --pairs --data pairs.jsonl --all",
		"farfield eval --model vit --data pictures --all",
	)
}

// Report is the JSON result of eval.
type Report struct {
	Model     string `json:"model"`
	Data      string `json:"data"`
	Precision string `json:"precision"`        // of the weights
	Split     string `json:"split,omitempty"`  // "": the whole text
	Stride    int    `json:"stride,omitempty"` // tokens from a window of a text to the next; 0: windows side by side
	train.Score
	train.Detail
	Classes []string      `json:"classes,omitempty"` // names of the rows and columns of Confusion, if they have any
	Verdict *runs.Verdict `json:"verdict,omitempty"` // where the baselines of the part are known

	Targets []task.TextScore `json:"targets,omitempty"` // of task pairs: what the model writes, and what needs no model

	Baselines      []task.Baseline `json:"baselines,omitempty"`       // of labelled data
	BaselinesError string          `json:"baselines_error,omitempty"` // why there are none
}

// Run scores a model on a split of its task. It returns an error if flags, model or
// data are invalid.
func (c *Command) Run(e *env.Env) error {
	if c.Limit < 0 {
		return env.InputErrorf("--limit: %d is negative", c.Limit)
	}
	if c.Stride != nil && *c.Stride < 1 {
		return env.InputErrorf("--stride: %d is below 1", *c.Stride)
	}
	path, err := runs.ResolveModel(c.Model)
	if err != nil {
		return env.MarkInput(err)
	}
	options, err := c.Chosen()
	if err != nil {
		return err
	}
	if err := c.checkFlags(published.IsFolder(path)); err != nil {
		return err
	}
	opened, err := inference.Open(path, options)
	if err != nil {
		return env.MarkInput(err)
	}
	if opened.Published() != nil {
		return c.published(e, opened)
	}
	m := opened.Model()
	vocab, _ := opened.Vocabulary() // nil: a task without one
	r := Report{Model: c.Model, Precision: c.Precision.Precision}
	var src task.Source
	writer, err := opened.PairWriter()
	if err != nil {
		return env.MarkInput(err)
	}
	isText := vocab != nil && m.Config().Pool == "" && writer == nil
	if c.Stride != nil && !isText {
		return env.InputErrorf("--stride: %s predicts no text", c.Model)
	}
	err = e.RunInterruptibly(func() (err error) {
		if isText {
			src, r.Data, err = c.text(m, vocab)
		} else {
			src, r.Data, err = c.samples()
		}
		return env.MarkInput(err)
	})
	if err != nil {
		return err
	}
	noteKeys(e, opened, src)
	if err := c.evaluate(e, &r, m, src); err != nil {
		return err
	}
	if writer != nil {
		if err := c.writeTargets(e, &r, writer, src); err != nil {
			return err
		}
	}
	if c.Data != "" && !isText {
		return c.judge(e, &r, src, func() ([]task.Baseline, error) { return c.otherBaselines(src) })
	}
	if c.Data == "" && !c.All && c.Limit == 0 { // baselines are of the whole part
		// Of a folder that is no run there is no result.
		if trained, err := runs.ReadResult(train.RunFolder(c.Model)); err == nil && trained != nil && trained.Split == r.Split {
			r.Verdict = runs.JudgeScore(r.Score, trained.WholeBaselines())
		}
	}
	return c.write(e, &r)
}

// noteKeys warns if keys of the first samples lie far from the centres of an exchanged model.
func noteKeys(e *env.Env, m *inference.Model, src task.Source) {
	if m.Calibration() == nil {
		return
	}
	spec := src.Spec()
	for i := range min(8, spec.Count[spec.JudgedSplit()]) {
		var s task.Sample
		if src.Sample(&s, spec.JudgedSplit(), i) != nil {
			return // the evaluation reports it
		}
		m.NoteKeyDistance(e.Context, e.Notes(), s.Tokens)
	}
}

// otherBaselines returns the baselines of src, other data for the run. With --all they learn from the
// data of the run as the run did, if it is there unchanged.
func (c *Command) otherBaselines(src task.Source) (list []task.Baseline, err error) {
	config, err := train.RunConfig(train.RunFolder(c.Model))
	if err != nil {
		return nil, err
	}
	defer func() { runs.FitAdvice(&config, list) }()
	if c.All {
		if learned, _, err := runs.OpenRunTask(c.Model, c.Folder); err == nil {
			if list, ok, err := task.BaselinesFrom(learned, src); ok || err != nil {
				return list, err
			}
		}
	}
	return task.Baselines(src, 0)
}

// evaluate sets the score of m on the split of src that the flags name. It returns an
// error if they name none with samples, or the evaluation fails.
func (c *Command) evaluate(e *env.Env, r *Report, m *model.Model, src task.Source) (err error) {
	spec := src.Spec()
	split := spec.JudgedSplit()
	switch {
	case c.Split == "" || c.Split == split.String():
	case c.All:
		return env.InputErrorf("--split: given beside --all")
	case c.Split == task.Valid.String():
		split = task.Valid
	default:
		return env.InputErrorf("--split: %q is none of %v, %v with samples", c.Split, task.Valid, task.Test)
	}
	if spec.Count[split] == 0 {
		switch {
		case c.All:
			return env.InputErrorf("--data: %s has no samples", spec.Name)
		case c.Split == "":
			return env.InputErrorf("--data: %s has no samples to validate by; --all scores everything", spec.Name)
		}
		return env.InputErrorf("--split: %s has no samples to validate by", spec.Name)
	}
	if !c.All {
		r.Split = split.String()
	}
	watch := c.watch(e, &spec, split)
	if c.Stride != nil {
		r.Stride = *c.Stride
	}
	r.Score, r.Detail, err = train.Job{Progress: watch.show}.Evaluate(e.Context, m, src, split, c.Limit)
	watch.bar.Finish()
	if err != nil {
		return err
	}
	if named, ok := src.(task.ClassNamer); ok && len(r.Confusion) > 0 {
		r.Classes = named.ClassNames()
	}
	return nil
}

// judge writes the report with baselines of the split that it scores, or with the error that
// they end with. It returns an error if the context ends before they do, or the output fails.
func (c *Command) judge(e *env.Env, r *Report, src task.Source, baselines func() ([]task.Baseline, error)) error {
	if spec := src.Spec(); c.Limit > 0 || !c.All && r.Split != spec.JudgedSplit().String() {
		return c.write(e, r) // baselines are of all samples of the judged split
	}
	var list []task.Baseline
	err := e.RunInterruptibly(func() (err error) {
		list, err = baselines()
		return err
	})
	ended := e.Context.Err()
	switch {
	case err == nil:
		r.Baselines, r.Verdict = list, runs.JudgeScore(r.Score, list)
		return c.write(e, r)
	case ended != nil:
		r.BaselinesError = "interrupted"
	default:
		r.BaselinesError = env.JoinLines(err)
	}
	return cmp.Or(c.write(e, r), ended)
}

// write prints the report. It returns an error if the output fails.
func (c *Command) write(e *env.Env, r *Report) error {
	if c.JSON {
		return display.PrintJSON(e.Stdout, r)
	}
	return r.print(e)
}

// text returns the text to predict, and where it came from.
func (c *Command) text(m *model.Model, vocab *token.Vocabulary) (task.Source, string, error) {
	text, err := runs.OpenRunText(c.Model, c.Data, c.Folder, vocab, c.All)
	if err != nil {
		return nil, "", adviseData(err)
	}
	runs.KeepHeapTight(text)
	src, err := c.windows(text.ForModel(m.Config().Vocab, nil), m.Config().Context)
	return src, text.Corpus.Name, err
}

// windows returns text in windows of length tokens, with the stride of the flag.
func (c *Command) windows(text *task.Text, length int) (task.Source, error) {
	text = text.WithWindow(length).(*task.Text)
	if c.Stride == nil {
		return text, nil
	}
	if *c.Stride > length {
		return nil, fmt.Errorf("--stride: %d tokens, a window has %d", *c.Stride, length)
	}
	return text.WithStride(*c.Stride)
}

// longTime is the time from which an evaluation says how long it will take.
const longTime = time.Minute

// watch shows how far an evaluation is.
type watch struct {
	e         *env.Env
	bar       *progress.Transfer
	what      string
	start     time.Time
	estimated bool
}

// watch returns the progress of an evaluation. With a stride it first prints how many tokens will be read.
func (c *Command) watch(e *env.Env, spec *task.Spec, split task.Split) *watch {
	w := &watch{e: e, bar: progress.NewTransfer(e), what: "samples", start: time.Now()}
	if c.Stride == nil {
		return w
	}
	w.what = "windows"
	n := spec.Count[split]
	if c.Limit > 0 {
		n = min(n, c.Limit)
	}
	fmt.Fprintf(e.Notes(), "%s of up to %d tokens, of which all but the first score their last %d\n", display.Pluralise(n, "window"), spec.Length, *c.Stride)
	return w
}

// show is called after each batch.
func (w *watch) show(done, all int) {
	w.bar.ShowItems(w.what, done, all)
	past := time.Since(w.start)
	if w.estimated || w.e.IsTerminal || past < 2*time.Second { // the bar of a terminal tells it
		return
	}
	w.estimated = true
	if left := time.Duration(float64(past) / float64(done) * float64(all-done)); left > longTime {
		fmt.Fprintf(w.e.Notes(), "%d of %d %s done, about %s left\n", done, all, w.what, display.Span(left.Seconds()))
	}
}

// samples returns the task of the run, as the model learned it, or with --data other data
// of the user for it.
func (c *Command) samples() (task.Source, string, error) {
	if c.Data != "" {
		dir := train.RunFolder(c.Model)
		config, err := train.RunConfig(dir)
		if err != nil {
			return nil, "", err
		}
		src, err := config.OpenOtherData(dir, c.Data, c.All)
		if err != nil {
			err = fmt.Errorf("--data: %w", err)
		}
		return src, c.Data, err
	}
	if c.All {
		return nil, "", fmt.Errorf("--all: %s learned from most of its data; --data names other data", c.Model)
	}
	src, config, err := runs.OpenRunTask(c.Model, c.Folder)
	if row, other := task.Lookup(config.Task); other == nil && row.ReadsOwnData() {
		err = adviseData(err)
	}
	if err != nil {
		return nil, "", err
	}
	config, src, err = config.PrepareTask(src)
	if err != nil {
		return nil, "", err
	}
	return src, runs.DescribeData(config, src.Spec()), nil
}

// adviseData adds to an error about data that has changed how other data is scored.
func adviseData(err error) error {
	if errors.Is(err, train.ErrDataChanged) {
		err = fmt.Errorf("%w; with --data it is scored as other data, even what the run may have learned", err)
	}
	return err
}

func (r *Report) print(e *env.Env) error {
	r.Verdict.Print(e)
	fmt.Fprintf(e.Stdout, "data        %s\n", display.Escape(r.Data))
	if r.HasBits() {
		fmt.Fprintf(e.Stdout, "loss        %.4f nats a token, %.4f bits per byte over %d tokens, %d bytes\n", r.Loss, r.Bits, r.Tokens, r.Bytes)
	} else {
		fmt.Fprintf(e.Stdout, "%-12s%s %s, loss %s over %d targets of %d samples\n", cmp.Or(r.Split, "all"), r.Metric, display.FormatValue(r.Metric, r.Value), display.FormatValue(r.Metric, r.Loss), r.Tokens, r.Samples)
		runs.PrintBaselines(e, r.Metric, r.Baselines, r.BaselinesError)
	}
	if err := r.printTargets(e); err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Positions) > 0 {
		fmt.Fprintln(w, "positions\tloss\ttokens\t")
		for _, b := range r.Positions {
			fmt.Fprintf(w, "%d–%d\t%.4f\t%d\t\n", b.First, b.Last, b.Loss, b.Tokens)
		}
	}
	r.printConfusion(w)
	return w.Flush()
}

// printConfusion prints how many targets of each class, a row, were taken for which,
// the columns, and the share that was taken right.
func (r *Report) printConfusion(w io.Writer) {
	if len(r.Confusion) == 0 {
		return
	}
	name := func(class int) string {
		if r.Classes == nil {
			return fmt.Sprint(class)
		}
		return display.Field(r.Classes[class])
	}
	fmt.Fprint(w, "class\tright\t")
	for class := range r.Confusion {
		fmt.Fprintf(w, "%s\t", name(class))
	}
	fmt.Fprintln(w)
	for class, row := range r.Confusion {
		var all int64
		for _, n := range row {
			all += n
		}
		right := "–"
		if all > 0 {
			right = fmt.Sprintf("%.3f", float64(row[class])/float64(all))
		}
		fmt.Fprintf(w, "%s\t%s\t", name(class), right)
		for _, n := range row {
			fmt.Fprintf(w, "%d\t", n)
		}
		fmt.Fprintln(w)
	}
}
