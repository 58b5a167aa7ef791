// Package embed implements the verb embed: a vector for each text.
package embed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/cli/vectors"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/published"
)

// Command is the verb embed: a vector for each text.
type Command struct {
	Files      []string `arg:"" optional:"" placeholder:"FILE" help:"Texts, one a line, or JSON lines (- for standard input)."`
	Model      string   `required:"" placeholder:"DIR" help:"Run, checkpoint, published folder, or name of a model."`
	MaxTokens  int      `name:"max-tokens" placeholder:"N" help:"Read at most N tokens of a text (65536, or the context)."`
	Prompt     *string  `aliases:"prompt-name" placeholder:"NAME" help:"Prompt of the folder to put before texts; \"\": none (its default)."`
	Dimensions int      `placeholder:"N" help:"Keep the first N numbers of a vector, and divide them by their length (all)."`
	JSONL      *bool    `name:"jsonl" negatable:"" help:"Lines are JSON objects, or texts (by the first line)."`
	flags.Opening
	Filter records.Filter `embed:""`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Prints each text, or each record, as a JSON object with its vector; --out FILE.npy or FILE.safetensors writes vectors [texts,width] alone. " +
		"A published model pools and normalises as its folder says, and its vectors find texts about a subject. " +
		"Some folders have prompts that belong before queries and documents: --prompt document, for texts that search finds. " +
		"The vector of a run is the mean of the last layer over the tokens of a text, or the input of a classifier's head. A text longer than the trained context is read in windows of it, and its vector is their mean. " +
		"Vectors of a run do not hold meaning, because the model has learned to predict bytes. They tell languages, formats and styles apart, and serve as " +
		"features for a small classifier. To find texts about a subject, take a published model. " +
		"An empty text has the vector null." + flags.JoinExamples(
		"farfield embed --model all-MiniLM-L6-v2 --out vectors.npy lines.txt",
		"farfield embed --model DIR --prompt document --out vectors.npy lines.txt",
		"farfield embed --model all-MiniLM-L6-v2 --mechanism local --set span=64 --out vectors.npy lines.txt",
		"farfield embed --model run/001 <lines.txt",
		"farfield embed --model run/001 --out vectors.npy lines.txt",
		"farfield embed --model run/001 --out vectors.jsonl records.jsonl",
		"farfield embed --model run/001 --shard $SLURM_ARRAY_TASK_ID/16 records.jsonl >vectors.$SLURM_ARRAY_TASK_ID.jsonl",
	)
}

// Run prints or writes a vector for each text. It returns an error if flags, model or
// input are invalid or the output fails.
func (c *Command) Run(e *env.Env) error {
	if c.MaxTokens < 0 {
		return env.InputErrorf("--max-tokens: %d is negative", c.MaxTokens)
	}
	if c.JSONL != nil && !*c.JSONL && c.Filter.Field != "" {
		return env.InputErrorf("--field: texts have no fields without --jsonl")
	}
	if err := c.Filter.Check(true); err != nil {
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
	enc, err := m.NewEmbedder(c.MaxTokens)
	if err != nil {
		return env.MarkInput(err)
	}
	if enc.MaxTokens() < c.MaxTokens {
		return env.InputErrorf("--max-tokens: %d, the model learned %d positions", c.MaxTokens, enc.MaxTokens())
	}
	if err := enc.Shorten(c.Dimensions); err != nil {
		return env.InputErrorf("--%w", err)
	}
	if len(c.Files) == 0 {
		c.Files = []string{"-"}
	}
	in, err := texts.OpenFiles(e, c.Files...)
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	x := &embedding{context: e.Context, embedder: enc, prompt: c.Prompt}
	x.note = func(text string) { m.NoteTextDistance(e.Context, e.Notes(), text) }
	if c.Prompt == nil {
		c.notePrompts(e, enc.Prompts())
	} else if err := enc.Prompts().Check(*c.Prompt); err != nil {
		return env.InputErrorf("--%w", err)
	}
	filter := c.Filter
	if vectors.IsArrayFile(filter.Out) {
		if err := env.CheckOutput(filter.Out, append(runs.ModelFiles(c.Model), c.Files...)...); err != nil {
			return env.InputErrorf("--out: %w", err)
		}
		filter.Out, x.rows = "", &vectors.Rows{Width: enc.Width()}
	}
	if err := filter.BindModel("embed", m.HashFiles); err != nil {
		return err
	}
	filter.Bind("--max-tokens", fmt.Sprint(enc.MaxTokens()))
	if c.Prompt != nil {
		filter.Bind("--prompt", *c.Prompt)
	}
	if c.Dimensions > 0 {
		filter.Bind("--dimensions", fmt.Sprint(c.Dimensions))
	}
	c.Opening.Bind(filter.Bind)
	if err := c.each(e, &filter, in, x); err != nil {
		return err
	}
	x.lengths.Print(e.Notes(), enc)
	if x.empty > 0 {
		what := "the vector null"
		if x.rows != nil {
			what = "a row of zeros"
		}
		fmt.Fprintf(e.Notes(), "%s empty: %s\n", display.Pluralise(x.empty, "text"), what)
	}
	if x.rows == nil {
		return nil
	}
	return x.rows.Write(c.Filter.Out)
}

// notePrompts names the prompts of a folder if none of them is put before texts.
func (c *Command) notePrompts(e *env.Env, p *published.Prompts) {
	var names []string
	for _, name := range p.Names() {
		if p.Texts[name] != "" {
			names = append(names, display.Field(name))
		}
	}
	if p.Texts[p.Default] == "" && len(names) > 0 {
		fmt.Fprintf(e.Notes(), "no prompt is put before texts; the folder has %s, which --prompt NAME asks for\n", infile.Shorten(strings.Join(names, ", ")))
	}
}

// each embeds lines as records or texts.
func (c *Command) each(e *env.Env, f *records.Filter, in *texts.JoinedFiles, x *embedding) error {
	start := bufio.NewReaderSize(in, 1<<16)
	jsonl := c.JSONL != nil && *c.JSONL || f.Field != ""
	if c.JSONL == nil && !jsonl {
		jsonl = records.IsFirstRecord(start, f.FieldName())
	}
	record, lines := records.ReadText, io.Reader(start)
	if jsonl {
		record, lines = records.ReadRecord, infile.NewRecords(start)
	}
	var take func([]records.Field)
	if x.rows != nil {
		take = x.addRow
	}
	return f.FilterBatches(e, in, lines, record, take, x.encode)
}

// embedding makes vectors.
type embedding struct {
	context  context.Context
	embedder *inference.Embedder
	note     func(text string) // notes a text of another kind than those of the exchange
	prompt   *string           // name; nil: the default
	lengths  runs.Lengths
	empty    int           // texts
	rows     *vectors.Rows // nil: records are printed
}

// encode returns the vectors of texts as fields.
func (x *embedding) encode(texts []string) ([][]records.Field, error) {
	for _, text := range texts {
		x.note(text)
	}
	list, err := x.embedder.Embed(x.context, x.prompt, texts)
	if err != nil {
		return nil, err
	}
	fields := make([][]records.Field, len(list))
	for i, y := range list {
		fields[i] = []records.Field{{Name: vectors.Field, Value: y.Values}}
		if y.Values == nil {
			x.empty++
			fields[i][0].Value = nil
		}
		x.lengths.Add(y)
		if y.IsTruncated {
			fields[i] = append(fields[i], records.Field{Name: "truncated", Value: true})
		}
	}
	return fields, nil
}

// addRow adds the vector of fields to the array: zeros, if there is none.
func (x *embedding) addRow(fields []records.Field) {
	vector, _ := fields[0].Value.([]float32)
	x.rows.Add(vector)
}
