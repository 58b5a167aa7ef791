package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/token"
	"github.com/farfield-ml/farfield/train"
)

// evalCmd is the verb eval: how well a model predicts a text.
type evalCmd struct {
	Model  string `required:"" placeholder:"DIR" help:"Folder of a run, whose latest checkpoint is taken, or of a checkpoint."`
	Data   string `placeholder:"FILE|FOLDER" help:"Text to predict. By default that of the run."`
	All    bool   `help:"Predict all of the text, not only its last tenth, the validation part."`
	Tokens int    `placeholder:"N" default:"0" help:"Predict about so many tokens, spread evenly; 0 for all."`
	JSON   bool   `name:"json" help:"Print the result as JSON."`
}

type evalReport struct {
	Model string `json:"model"`
	Data  string `json:"data"`
	train.Score
	Positions []train.Bucket `json:"by_position"`
}

func (c *evalCmd) Run(e *env) error {
	if c.Tokens < 0 {
		return inputf("--tokens: %d is negative", c.Tokens)
	}
	m, vocab, err := train.Load(c.Model)
	if err != nil {
		return input(err)
	}
	corpus, err := c.corpus(vocab)
	if err != nil {
		return input(err)
	}
	text, err := task.NewText(corpus, vocab)
	if err != nil {
		return input(err)
	}
	tokens := text.Valid
	if c.All {
		tokens = append(text.Train, text.Valid...)
	}
	r := evalReport{Model: c.Model, Data: corpus.Name}
	if r.Score, r.Positions, err = train.Evaluate(e.ctx, m, vocab, tokens, c.Tokens); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.stdout, r)
	}
	return r.print(e)
}

// corpus reads the text.
func (c *evalCmd) corpus(vocab *token.Vocabulary) (*task.Corpus, error) {
	data := c.Data
	if data == "" {
		config, err := train.RunConfig(train.RunFolder(c.Model))
		if err != nil {
			return nil, fmt.Errorf("--data is not given, and the run does not tell: %w", err)
		}
		data = config.Data
	}
	return task.Read(data, vocab.Kind())
}

func (r *evalReport) print(e *env) error {
	fmt.Fprintf(e.stdout, "data        %s\n", r.Data)
	fmt.Fprintf(e.stdout, "loss        %.4f nats a token, %.4f bits per byte over %d tokens, %d bytes\n", r.Loss, r.Bits, r.Tokens, r.Bytes)
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tokens before\tloss\ttokens\t")
	for _, b := range r.Positions {
		fmt.Fprintf(w, "%d–%d\t%.4f\t%d\t\n", b.First, b.Last, b.Loss, b.Tokens)
	}
	return w.Flush()
}
