// Package search implements the verb search: the texts or vectors that are closest to a query.
package search

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
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

// Command is the verb search.
type Command struct {
	Vectors    string   `arg:"" placeholder:"FILE" help:"Vectors that embed wrote: .npy, .safetensors or JSON lines. With --index, texts."`
	Index      string   `placeholder:"FILE" help:"Keep the vectors of texts here: embed those alone that changed, with --model."`
	Query      []string `arg:"" optional:"" placeholder:"TEXT" help:"Texts to search for, with --model."`
	Queries    string   `placeholder:"FILE" help:"Vectors to search for; with --model, texts, one a line."`
	Model      string   `placeholder:"DIR" help:"Model of the vectors: run, published folder, or name."`
	Prompt     *string  `aliases:"prompt-name" placeholder:"NAME" help:"Prompt of the folder to put before queries; \"\": none (query)."`
	Dimensions int      `placeholder:"N" help:"Shorten vectors to N numbers, as embed --dimensions did (0: not)."`
	Top        int      `default:"10" placeholder:"N" help:"Rows to find for each query (${default})."`
	Texts      string   `placeholder:"FILE" help:"File that embed read, to print the text of each row."`
	Field      string   `placeholder:"NAME" help:"Field of a record that holds its text (text)."`
	JSONL      *bool    `name:"jsonl" negatable:"" help:"Texts are JSON lines, or lines (by the first line)."`
	JSON       bool     `name:"json" help:"Print a JSON object for each query."`
	flags.Opening

	model   *inference.Model // nil: there is none
	digests []vectors.Digest // of the texts of an index; nil: there is none
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "To search a file with a text in each line, name it and give --model and --index. The index keeps a vector for each text, and later searches embed only texts that are new or changed. " +
		"Without a query, search brings the index up to date. An index of another model, precision or prompt is refused. " +
		"Without --index the file has vectors that embed wrote, and --texts names the texts of its rows.\n\n" +
		"Prints query, row, cosine similarity and text of the closest rows, with tabs between them, the closest first. " +
		"Rows and queries are counted from 0. The search is exact: every row is compared. Files may be larger than memory. " +
		"An empty text has the similarity 0. A folder's prompt for queries is put before each query, with a note." + flags.JoinExamples(
		`farfield search --model all-MiniLM-L6-v2 --index notes.safetensors notes.txt "how to bake bread"`,
		`farfield search --model run/001 vectors.npy --texts lines.txt "to be"`,
		`farfield search --model run/001 vectors.jsonl "to be"`,
		"farfield search vectors.npy --queries vectors.npy --top 3 --json",
	)
}

// Found is the JSON result of a query.
type Found struct {
	Query     int    `json:"query"`
	Text      string `json:"text,omitempty"` // of the query
	Hits      []Hit  `json:"hits"`
	Precision string `json:"precision,omitempty"` // of the weights that made the vectors of the queries; "": f32
}

// Hit is a row that is close to a query.
type Hit struct {
	Row    int64   `json:"row"`
	Cosine float64 `json:"cosine"`
	Text   string  `json:"text,omitempty"`
}

// blockNumbers is how many numbers of rows, and of cosines, are held at a time.
const blockNumbers = 1 << 21

// maxQueryNumbers bounds the numbers of all queries.
const maxQueryNumbers = 1 << 28

// Run searches the vectors. It returns an error if flags or files are invalid, the model
// makes vectors of another width, or the output fails.
func (c *Command) Run(e *env.Env) error {
	if err := c.checkFlags(); err != nil {
		return err
	}
	var enc *inference.Embedder
	if c.Model != "" {
		var err error
		if enc, err = c.openModel(e); err != nil {
			return env.MarkInput(err)
		}
	}
	in, err := c.openVectors(e, enc)
	if err != nil {
		return err
	}
	defer in.Close()
	if !c.hasQueries() {
		return nil
	}
	queries, words, err := c.readQueries(e, enc, in.Width())
	if err != nil {
		return env.MarkInput(err)
	}
	r := newRanking(queries, in.Width(), c.Top)
	rows, err := c.rankRows(e, r, in)
	if err != nil {
		return err
	}
	list := make([]Found, len(r.best))
	for q := range list {
		list[q] = Found{Query: q, Hits: []Hit{}, Precision: c.Shown()}
		if words != nil {
			list[q].Text = words[q]
		}
		for _, x := range r.best[q] {
			list[q].Hits = append(list[q].Hits, Hit{Row: x.row, Cosine: math.Round(float64(x.cosine)*1e6) / 1e6, Text: c.recordText(x.record)})
		}
	}
	if c.Texts != "" {
		if err := c.addTexts(e, list, rows); err != nil {
			return env.MarkInput(err)
		}
	}
	return c.print(e, list)
}

// hasQueries reports whether there is something to search for.
func (c *Command) hasQueries() bool { return len(c.Query) > 0 || c.Queries != "" }

// checkFlags returns an error for flags that exclude or need each other. With --index the texts are FILE.
func (c *Command) checkFlags() error {
	if c.Index != "" {
		switch {
		case c.Model == "":
			return env.InputErrorf("--index: needs --model, which makes the vectors")
		case c.Texts != "":
			return env.InputErrorf("--texts: with --index the texts are %s", c.Vectors)
		case texts.IsStandard(c.Vectors):
			return env.InputErrorf("--index: needs a file of texts, which is read again; standard input is read once")
		}
		c.Texts = c.Vectors
	}
	switch isArray := vectors.IsArrayFile(c.Vectors); {
	case c.Top < 1:
		return env.InputErrorf("--top: %d is less than 1", c.Top)
	case len(c.Query) > 0 && c.Queries != "" || !c.hasQueries() && c.Index == "":
		return env.InputErrorf("needs either texts or --queries FILE to search for")
	case c.JSONL != nil && c.Texts == "":
		return env.InputErrorf("--jsonl: needs --texts")
	case c.JSONL != nil && !*c.JSONL && c.Field != "":
		return env.InputErrorf("--field: texts have no fields without --jsonl")
	case c.Field != "" && c.Texts == "" && (c.Queries == "" || c.Model == "") && isArray:
		return env.InputErrorf("--field: needs --texts, or records in FILE or --queries: %s has vectors alone", c.Vectors)
	case c.Prompt != nil && c.Model == "":
		return env.InputErrorf("--prompt: needs --model, whose folder has the prompts")
	case c.Dimensions != 0 && c.Model == "":
		return env.InputErrorf("--dimensions: needs --model, whose vectors are shortened")
	case c.Mechanism != "" && c.Model == "":
		return env.InputErrorf("--mechanism: needs --model, which has the layers")
	case len(c.Query) > 0 && c.Model == "":
		return env.InputErrorf("--model: is not given: texts need the model that made the vectors; --index FILE.safetensors with it searches a file of texts")
	}
	return nil
}

// openModel opens the model of the vectors.
func (c *Command) openModel(e *env.Env) (*inference.Embedder, error) {
	options, err := c.Chosen()
	if err != nil {
		return nil, err
	}
	if c.model, err = runs.OpenText(c.Model, options); err != nil {
		return nil, err
	}
	enc, err := c.model.NewEmbedder(0)
	if err != nil {
		return nil, err
	}
	if err := enc.Shorten(c.Dimensions); err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return enc, nil
}

// openVectors opens the vectors that are searched. It returns an input error unless writing an index fails.
func (c *Command) openVectors(e *env.Env, enc *inference.Embedder) (vectors.Reader, error) {
	if c.Index != "" {
		return c.openIndex(e, enc)
	}
	in, err := vectors.Open(e, c.Vectors)
	if err != nil && !vectors.IsArrayFile(c.Vectors) {
		err = fmt.Errorf("%w; to search a file of texts, give --index FILE.safetensors", err)
	}
	return in, env.MarkInput(err)
}

// rankRows ranks all rows of in, and returns their number.
func (c *Command) rankRows(e *env.Env, r *ranking, in vectors.Reader) (int64, error) {
	block := max(16, min(blockNumbers/in.Width(), blockNumbers/len(r.best), 1<<14))
	rows := make([]float32, block*in.Width())
	for first := int64(0); ; {
		if err := e.Context.Err(); err != nil {
			return first, err
		}
		n, err := in.ReadRows(rows)
		if err != nil {
			return first, env.MarkInput(err)
		}
		if n == 0 {
			return first, nil
		}
		r.addRows(rows[:n*in.Width()], first, in.Record)
		first += int64(n)
	}
}

// readQueries returns queries [n·width] and, if they are texts for enc, the texts.
func (c *Command) readQueries(e *env.Env, enc *inference.Embedder, width int) ([]float32, []string, error) {
	if c.Model == "" {
		queries, err := readVectors(e, c.Queries, width)
		return queries, nil, err
	}
	words := c.Query
	if c.Queries != "" {
		var jsonl *bool // nil: the first line decides
		if c.Field != "" && c.Texts == "" && vectors.IsArrayFile(c.Vectors) {
			jsonl = new(true) // --field is of the queries alone
		}
		err := c.eachText(e, c.Queries, jsonl, func(text string) error { words = append(words, text); return nil })
		if err != nil {
			return nil, nil, err
		}
	}
	if len(words) == 0 {
		return nil, nil, fmt.Errorf("--queries: %s holds no text", c.Queries)
	}
	for _, query := range words {
		c.model.NoteTextDistance(e.Context, e.Notes(), query)
	}
	if enc.Width() != width {
		return nil, nil, fmt.Errorf("%s: has vectors of width %d, the model %s makes width %d: search needs the model that made them", c.Vectors, width, c.Model, enc.Width())
	}
	if len(words) > maxQueryNumbers/width {
		return nil, nil, fmt.Errorf("--queries: has %d texts, at most %d fit", len(words), maxQueryNumbers/width)
	}
	prompt, err := c.choosePrompt(e, enc.Prompts())
	if err != nil {
		return nil, nil, err
	}
	list, err := enc.Embed(e.Context, prompt, words)
	if err != nil {
		return nil, nil, err
	}
	queries := make([]float32, len(words)*width)
	var lengths runs.Lengths
	for i, x := range list {
		lengths.Add(x)
		if x.Values == nil {
			return nil, nil, fmt.Errorf("query %d: is empty", i)
		}
		copy(queries[i*width:], x.Values)
	}
	lengths.Print(e.Notes(), enc)
	return queries, words, nil
}

// The names of prompts that sentence-transformers puts before queries and, the first that a
// folder has, before documents.
var (
	queryPrompt     = "query"
	documentPrompts = []string{"document", "passage", "corpus"}
)

// documentPrompt returns the name of the folder's prompt for documents; nil: there is none.
func documentPrompt(p *published.Prompts) *string {
	for _, name := range documentPrompts {
		if p.Texts[name] != "" {
			return &name
		}
	}
	return nil
}

// choosePrompt returns the name of the prompt of queries: --prompt, without it the folder's for
// queries, which a note says. It returns an error if the folder has no prompt of the name.
func (c *Command) choosePrompt(e *env.Env, p *published.Prompts) (*string, error) {
	if c.Prompt != nil {
		if err := p.Check(*c.Prompt); err != nil {
			return nil, fmt.Errorf("--%w", err)
		}
		return c.Prompt, nil
	}
	if _, has := p.Texts[queryPrompt]; !has {
		return nil, nil
	}
	note := fmt.Sprintf("queries have the folder's prompt %s: %q", queryPrompt, infile.Shorten(p.Texts[queryPrompt]))
	if name := documentPrompt(p); name != nil && c.Index == "" {
		note += fmt.Sprintf("; vectors of documents need embed --prompt %s", *name)
	}
	fmt.Fprintln(e.Notes(), note)
	return &queryPrompt, nil
}

// readVectors reads a file of queries [n·width].
func readVectors(e *env.Env, path string, width int) ([]float32, error) {
	in, err := vectors.Open(e, path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if in.Width() != width {
		return nil, fmt.Errorf("%s: has vectors of width %d, the file that is searched has %d", path, in.Width(), width)
	}
	var queries []float32
	rows := make([]float32, max(1, 1<<16/width)*width)
	for {
		n, err := in.ReadRows(rows)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if queries = append(queries, rows[:n*width]...); len(queries) > maxQueryNumbers {
			return nil, fmt.Errorf("%s: has more than the %d rows that fit", path, maxQueryNumbers/width)
		}
	}
	if len(queries) == 0 {
		return nil, fmt.Errorf("%s: holds no vector", path)
	}
	return queries, nil
}

// addTexts adds the texts of rows from the file that embed read. It returns an error if the file
// has more or fewer texts than there are rows.
func (c *Command) addTexts(e *env.Env, list []Found, rows int64) error {
	wanted := map[int64][]*Hit{}
	for q := range list {
		for i := range list[q].Hits {
			h := &list[q].Hits[i]
			wanted[h.Row] = append(wanted[h.Row], h)
		}
	}
	row := int64(0)
	err := c.eachText(e, c.Texts, c.hasRecords(), func(text string) error {
		if c.digests != nil && (row >= int64(len(c.digests)) || vectors.DigestText(text) != c.digests[row]) {
			return fmt.Errorf("%s: text %d changed while it was searched", c.Texts, row)
		}
		for _, h := range wanted[row] {
			h.Text = text
		}
		row++
		return nil
	})
	if err == nil && row != rows {
		err = fmt.Errorf("--texts: %s has %d texts, %s %d vectors", c.Texts, row, c.Vectors, rows)
	}
	return err
}

// hasRecords says whether the texts are records; nil: the first line does.
func (c *Command) hasRecords() *bool {
	if c.Field != "" {
		return new(true)
	}
	return c.JSONL
}

// fieldName returns the name of the field that holds a text.
func (c *Command) fieldName() string { return cmp.Or(c.Field, "text") }

// eachText calls f with each text of a file, which embed would read: a line, or a field of a record.
// jsonl says whether lines are records; nil: the first line does. An error of f ends it.
func (c *Command) eachText(e *env.Env, path string, jsonl *bool, f func(text string) error) error {
	in, err := texts.OpenFiles(e, path)
	if err != nil {
		return err
	}
	defer in.Close()
	start := bufio.NewReaderSize(in, 1<<16)
	isRecords := jsonl != nil && *jsonl
	if jsonl == nil {
		isRecords = records.IsFirstRecord(start, c.fieldName())
	}
	const longest = 1 << 26
	var elements *infile.Records
	lines := &texts.LineSource{Reader: start, Longest: longest}
	if isRecords {
		elements = infile.NewRecords(start)
		lines.Reader = elements
	}
	var some [][]byte
	for number := int64(1); ; number++ {
		some, err = lines.NextLines(some[:0], 1, 1)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		line := some[0]
		switch {
		case !isRecords:
			err = f(strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"))
		case len(bytes.TrimSpace(line)) > 0:
			text, failed := records.Text(bytes.TrimSpace(line), c.fieldName())
			if failed != nil {
				return fmt.Errorf("%s: %w", records.Place(in, elements, number), failed)
			}
			err = f(text)
		}
		if err != nil {
			return err
		}
	}
}

// recordText returns the text of a record of vectors; "" if there is none.
func (c *Command) recordText(record []byte) string {
	text, _ := records.Text(record, c.fieldName())
	return text
}

// print prints the hits of all queries.
func (c *Command) print(e *env.Env, list []Found) error {
	w := bufio.NewWriter(e.Stdout)
	for i := range list {
		if c.JSON {
			if err := display.PrintJSONLine(w, &list[i]); err != nil {
				return err
			}
			continue
		}
		for _, h := range list[i].Hits {
			fmt.Fprintf(w, "%d\t%d\t%.6f\t%s\n", i, h.Row, h.Cosine, display.Field(h.Text))
		}
	}
	return w.Flush()
}
