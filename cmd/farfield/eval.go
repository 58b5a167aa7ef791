package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// evalCmd is the verb eval: how well a model predicts a text, or does its task.
type evalCmd struct {
	Model string `required:"" placeholder:"DIR" help:"Folder of a run, whose best checkpoint is taken, or its latest if none is kept, or of a checkpoint."`
	Data  string `placeholder:"FILE|FOLDER" help:"Text to predict, with a model that learned one. By default that of the run."`
	dataFolder
	All   bool   `help:"Predict all of the text, not only its last tenth, the validation part."`
	Split string `complete:"valid,test" placeholder:"NAME" help:"Part of the task's samples: valid or test. By default test, where there is one."`
	Limit int    `placeholder:"N" default:"0" help:"Take N samples, of a text windows of the model's context, spread evenly; 0 for all."`
	JSON  bool   `name:"json" help:"Print the result as JSON."`
}

// Help are examples.
func (c *evalCmd) Help() string {
	return "Without --data a run is judged by what it kept back." + examples(
		"farfield eval --model run/001",
		"farfield eval --model run/001 --data notes.txt --all --json",
		"farfield eval --model run/001 --limit 100",
	)
}

type evalReport struct {
	Model string `json:"model"`
	Data  string `json:"data"`
	Split string `json:"split,omitempty"` // "": the whole text
	train.Score
	train.Detail
	Classes []string `json:"classes,omitempty"` // names of the rows and columns of Confusion, if they have any
	Verdict *verdict `json:"verdict,omitempty"` // where the baselines of the part are known
}

func (c *evalCmd) Run(e *env) error {
	if c.Limit < 0 {
		return inputf("--limit: %d is negative", c.Limit)
	}
	m, vocab, err := train.LoadModel(c.Model)
	if err != nil {
		return input(err)
	}
	r := evalReport{Model: c.Model}
	var src task.Source
	err = e.interruptible(func() (err error) {
		if vocab != nil {
			src, r.Data, err = c.text(m, vocab)
		} else {
			src, r.Data, err = c.samples()
		}
		return input(err)
	})
	if err != nil {
		return err
	}
	spec := src.Spec()
	split := spec.JudgedSplit()
	switch {
	case c.Split == "" || c.Split == split.String():
	case c.All:
		return inputf("--split: given beside --all")
	case c.Split == task.Valid.String():
		split = task.Valid
	default:
		return inputf("--split: %q is none of %v, %v with samples", c.Split, task.Valid, task.Test)
	}
	if spec.Count[split] == 0 {
		return inputf("--split: %s has no samples to validate by", spec.Name)
	}
	if !c.All {
		r.Split = split.String()
	}
	if r.Score, r.Detail, err = train.Evaluate(e.ctx, m, src, split, c.Limit); err != nil {
		return err
	}
	if named, ok := src.(task.ClassNamer); ok && len(r.Confusion) > 0 {
		r.Classes = named.ClassNames()
	}
	if c.Data == "" && !c.All {
		// Of a folder that is no run there is no result.
		if trained, err := readResult(train.RunFolder(c.Model)); err == nil && trained != nil && trained.Split == r.Split {
			r.Verdict = judge(r.Score, trained.baselines())
		}
	}
	if c.JSON {
		return printJSON(e.stdout, r)
	}
	return r.print(e)
}

// text returns the text to predict, and where it came from.
func (c *evalCmd) text(m *model.Model[float32], vocab *token.Vocabulary) (task.Source, string, error) {
	text, err := c.openText(vocab)
	if err != nil {
		return nil, "", err
	}
	keepHeapTight(text)
	name := text.Corpus.Name
	if c.All {
		text = text.ValidationOnly()
	}
	return text.WithWindow(m.Config().Context), name, nil
}

// openText reads a text, by default that of the run.
func (c *evalCmd) openText(vocab *token.Vocabulary) (*task.Text, error) {
	if c.Data != "" {
		corpus, err := task.ReadCorpus(c.Data, vocab.Kind() == token.KindChars)
		if err != nil {
			return nil, err
		}
		return task.NewText(corpus, vocab)
	}
	src, _, err := c.open()
	if err != nil {
		return nil, fmt.Errorf("--data is not given, and the run does not tell: %w", err)
	}
	text, ok := src.(*task.Text)
	if !ok || text.Vocab.Size() != vocab.Size() {
		return nil, fmt.Errorf("%s: the text of the run has changed: its vocabulary is another", c.Model)
	}
	return text, nil
}

// samples returns the task of the run, as the model learned it.
func (c *evalCmd) samples() (task.Source, string, error) {
	if c.Data != "" || c.All {
		return nil, "", fmt.Errorf("--data, --all: %s learned no text", c.Model)
	}
	src, config, err := c.open()
	if err != nil {
		return nil, "", err
	}
	config, src, err = config.PrepareTask(src)
	if err != nil {
		return nil, "", err
	}
	return src, describeData(config, src.Spec()), nil
}

// open opens the task of the run.
func (c *evalCmd) open() (task.Source, train.Config, error) {
	config, err := train.RunConfig(train.RunFolder(c.Model))
	if err != nil {
		return nil, config, err
	}
	if c.Folder != "" { // the data sets may have moved
		config.Folder = c.Folder
	}
	src, err := config.OpenTask()
	return src, config, err
}

func (r *evalReport) print(e *env) error {
	r.Verdict.print(e)
	fmt.Fprintf(e.stdout, "data        %s\n", escaped(r.Data))
	if r.Bits > 0 {
		fmt.Fprintf(e.stdout, "loss        %.4f nats a token, %.4f bits per byte over %d tokens, %d bytes\n", r.Loss, r.Bits, r.Tokens, r.Bytes)
	} else {
		fmt.Fprintf(e.stdout, "%-12s%s %.4f, loss %.4f over %d targets of %d samples\n", r.Split, r.Metric, r.Value, r.Loss, r.Tokens, r.Samples)
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Positions) > 0 {
		fmt.Fprintln(w, "tokens before\tloss\ttokens\t")
		for _, b := range r.Positions {
			fmt.Fprintf(w, "%d–%d\t%.4f\t%d\t\n", b.First, b.Last, b.Loss, b.Tokens)
		}
	}
	r.printConfusion(w)
	return w.Flush()
}

// printConfusion prints how many targets of each class, a row, were taken for which,
// the columns, and the share that was taken right.
func (r *evalReport) printConfusion(w io.Writer) {
	if len(r.Confusion) == 0 {
		return
	}
	name := func(class int) string {
		if r.Classes == nil {
			return fmt.Sprint(class)
		}
		return field(r.Classes[class])
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
