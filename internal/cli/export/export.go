// Package export implements the verb export: a model in the layout that transformers
// loads.
package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/tokenizer"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb export.
type Command struct {
	Model string `required:"" placeholder:"DIR" help:"Run, checkpoint, or folder in the Hugging Face layout."`
	Out   string `required:"" short:"o" placeholder:"DIR" help:"New folder to write."`

	flags.Precision

	IgnoreField []string `sep:"none" placeholder:"NAME" help:"Leave out a field of config.json that is unknown here and does not change the function (repeatable)."`
}

// Help says what is written.
func (c *Command) Help() string {
	return "Writes config.json, model.safetensors and the tokenizer. transformers loads them to the same outputs. " +
		"Weights of a published model that did not change keep their bytes. A fine-tuned model keeps family, tokenizer and names of classes. A frozen encoder with a linear head becomes a folder of sentence-transformers, whose vectors are the logits. A trained model is refused with the name of the field " +
		"that no family of transformers has: attention other than softmax, for example. --precision bf16 writes the weights in 16 bits, which transformers loads. --precision int8 writes model.int8.safetensors, integers beside scales, which farfield alone reads." + flags.JoinExamples(
		"farfield export --model run/tickets --out tickets-bert",
		"farfield export --model SmolLM --precision int8 --out smollm-int8",
	)
}

// Run writes the folder. It returns an error if no family has such a model, if --out is not empty,
// or if a file cannot be written.
func (c *Command) Run(e *env.Env) error {
	switch list, err := os.ReadDir(c.Out); {
	case len(list) > 0:
		return env.InputErrorf("--out: %s has files, %s among them; name a new folder", c.Out, list[0].Name())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return env.InputErrorf("--out: %w", err)
	}
	path, err := runs.ResolveModel(c.Model)
	if err != nil {
		return env.MarkInput(err)
	}
	precision, err := c.Precision.Parsed()
	if err != nil {
		return env.MarkInput(err)
	}
	if published.IsFolder(path) {
		m, err := published.OpenWith(path, published.Options{IgnoreFields: c.IgnoreField, Precision: precision})
		if err != nil {
			return env.MarkInput(err)
		}
		if err := published.CheckSides(path); err != nil {
			return env.MarkInput(err)
		}
		if err := m.Save(c.Out); err != nil {
			return env.MarkInput(err)
		}
		runs.PrintNotes(e.Notes(), m)
		fmt.Fprintf(e.Notes(), "%s: %s of %d weights\n", c.Out, m.Family(), m.Config().Params())
		return nil
	}
	if len(c.IgnoreField) > 0 {
		return env.InputErrorf("--ignore-field: needs a folder in the Hugging Face layout, %s is a run", path)
	}
	m, vocab, err := inference.LoadRun(path)
	if err != nil {
		return env.MarkInput(err)
	}
	if err := m.Compress(precision); err != nil {
		return env.InputErrorf("%s: %w", path, err)
	}
	if like := train.PublishedFolder(path); like != "" {
		if err := published.CheckSides(like); err != nil {
			return env.MarkInput(err)
		}
		err := published.WriteLike(c.Out, like, m)
		if err == nil && published.HasVectorHead(c.Out) {
			fmt.Fprintf(e.Notes(), "%s: the head is linear on the encoder's vectors: encode of sentence-transformers, and embed, give the logits of the classes of id2label\n", c.Out)
		}
		return env.MarkInput(err)
	}
	words, err := vocabularyTokenizer(e, vocab)
	if err != nil {
		return err
	}
	if err := published.Write(c.Out, m, words); err != nil {
		return env.MarkInput(err)
	}
	if words == nil {
		fmt.Fprintf(e.Notes(), "%s: no tokenizer.json, the tokens of this model are not of a text that it could read\n", c.Out)
	}
	return nil
}

// vocabularyTokenizer returns the tokenizer with the ids of a vocabulary; nil if there is
// none.
func vocabularyTokenizer(e *env.Env, v *token.Vocabulary) (*tokenizer.Tokenizer, error) {
	switch {
	case v == nil:
		return nil, nil
	case v.Kind() == token.KindBytes:
		// Byte-level BPE without merges.
		return tokenizer.Train(e.Context, nil, v.Size())
	}
	return v.Tokenizer(), nil
}
