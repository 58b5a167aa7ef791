package main

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// embedCmd is the verb embed: a vector for each text.
type embedCmd struct {
	File   string     `arg:"" optional:"" placeholder:"FILE" help:"JSON objects, one a line; - or nothing is standard input."`
	Model  string     `required:"" placeholder:"DIR" help:"Folder of a run, whose latest checkpoint is taken, or of a checkpoint."`
	Most   int        `name:"max-tokens" placeholder:"N" help:"Read the first N tokens of a text alone (65536, or the positions that the model has learned)."`
	JSONL  bool       `name:"jsonl" help:"Each line of the input is a JSON object, which is printed with the vector of its text added."`
	Filter jsonFilter `embed:""`
}

// Help are examples.
func (c *embedCmd) Help() string {
	return "A vector is the mean of what the last layer gives for the tokens of a text, or what the head of a classifier reads." + examples(
		"farfield embed --model run/001 --jsonl <records.jsonl >vectors.jsonl",
		"farfield embed --model run/001 --jsonl --shard $SLURM_ARRAY_TASK_ID/16 records.jsonl >vectors.$SLURM_ARRAY_TASK_ID.jsonl",
	)
}

// mostEmbedded is how many tokens a text is cut to unless asked otherwise.
const mostEmbedded = 1 << 16

func (c *embedCmd) Run(e *env) error {
	if !c.JSONL {
		return inputf("--jsonl: missing; it is the format that embed reads and writes")
	}
	if err := c.Filter.check(true); err != nil {
		return err
	}
	if c.Most < 0 {
		return inputf("--max-tokens: %d is negative", c.Most)
	}
	m, vocab, err := train.LoadText(c.Model)
	if err != nil {
		return input(err)
	}
	config := m.Config()
	most := mostEmbedded
	if config.Positions == model.Learned {
		most = config.Context
	}
	if c.Most > most && config.Positions == model.Learned {
		return inputf("--max-tokens: %d, the model learned %d positions", c.Most, most)
	}
	if c.Most > 0 {
		most = c.Most
	}
	in, err := openText(e, c.File)
	if err != nil {
		return input(err)
	}
	defer in.Close()
	var tokens []int32
	var vector []float32
	return c.Filter.run(e, in, func(text string) ([]jsonField, error) {
		if tokens, err = vocab.Encode(tokens[:0], []byte(text)); err != nil {
			return nil, err
		}
		if len(tokens) == 0 {
			return nil, fmt.Errorf("the text is empty")
		}
		tokens = tokens[:min(len(tokens), most)]
		vector, _, err = m.Vectors(vector[:0], &model.Batch{B: 1, N: len(tokens), Tokens: tokens})
		return []jsonField{{"vector", vector}}, err
	})
}
