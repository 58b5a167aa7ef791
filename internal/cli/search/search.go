// Package search implements the verb search: the vectors that are closest to a query.
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
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/pretrained"
)

// Command is the verb search.
type Command struct {
	Vectors    string   `arg:"" placeholder:"FILE" help:"Vectors that embed wrote: .npy, .safetensors or JSON lines."`
	Query      []string `arg:"" optional:"" placeholder:"TEXT" help:"Texts to search for, with --model."`
	Queries    string   `placeholder:"FILE" help:"Vectors to search for; with --model, texts, one a line."`
	Model      string   `placeholder:"DIR" help:"Model of the vectors: run, published folder, or name."`
	Prompt     *string  `aliases:"prompt-name" placeholder:"NAME" help:"Prompt of the folder to put before queries; \"\": none (query)."`
	Dimensions int      `placeholder:"N" help:"Shorten the vectors of queries as embed --dimensions did (0: not)."`
	Top        int      `default:"10" placeholder:"N" help:"Rows to find for each query (${default})."`
	Texts      string   `placeholder:"FILE" help:"File that embed read, to print the text of each row."`
	Field      string   `placeholder:"NAME" help:"Field of a record that holds its text (text)."`
	JSONL      *bool    `name:"jsonl" negatable:"" help:"--texts are JSON lines, or texts (by the first line)."`
	JSON       bool     `name:"json" help:"Print a JSON object for each query."`
	flags.Opening
}

// Help are examples.
func (c *Command) Help() string {
	return "Prints query, row, cosine similarity and text of the closest rows, with tabs between them, the closest first. " +
		"Rows and queries are counted from 0. The search is exact: every row is compared. Files may be larger than memory. " +
		"A vector of zeros, of an empty text, has the similarity 0. " +
		"A folder's prompt for queries is put before each query, with a note." + flags.JoinExamples(
		`farfield search --model run/001 vectors.jsonl "to be"`,
		"farfield search vectors.npy --queries vectors.npy --top 3 --json",
		`farfield search --model run/001 vectors.npy --texts lines.txt "to be"`,
	)
}

// Found is the JSON result of a query.
type Found struct {
	Query int    `json:"query"`
	Text  string `json:"text,omitempty"` // of the query
	Hits  []Hit  `json:"hits"`
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
	if c.Top < 1 {
		return env.InputErrorf("--top: %d is less than 1", c.Top)
	}
	if (len(c.Query) > 0) == (c.Queries != "") {
		return env.InputErrorf("needs either texts or --queries FILE to search for")
	}
	if c.JSONL != nil && c.Texts == "" {
		return env.InputErrorf("--jsonl: needs --texts")
	}
	if c.JSONL != nil && !*c.JSONL && c.Field != "" {
		return env.InputErrorf("--field: texts have no fields without --jsonl")
	}
	if c.Field != "" && c.Texts == "" && (c.Queries == "" || c.Model == "") && vectors.IsArrayFile(c.Vectors) {
		return env.InputErrorf("--field: needs --texts, or records in FILE or --queries: %s has vectors alone", c.Vectors)
	}
	if c.Prompt != nil && c.Model == "" {
		return env.InputErrorf("--prompt: needs --model, whose folder has the prompts")
	}
	if c.Dimensions != 0 && c.Model == "" {
		return env.InputErrorf("--dimensions: needs --model, whose vectors are shortened")
	}
	if c.Mechanism != "" && c.Model == "" {
		return env.InputErrorf("--mechanism: needs --model, which has the layers")
	}
	if len(c.Query) > 0 && c.Model == "" {
		return env.InputErrorf("--model: is not given: texts need the model that made the vectors")
	}
	in, err := vectors.Open(e, c.Vectors)
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	queries, words, err := c.readQueries(e, in.Width())
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
		list[q] = Found{Query: q, Hits: []Hit{}}
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

// readQueries returns queries [n·width] and, if they are texts, the texts.
func (c *Command) readQueries(e *env.Env, width int) ([]float32, []string, error) {
	if c.Model == "" {
		queries, err := readVectors(e, c.Queries, width)
		return queries, nil, err
	}
	words := c.Query
	if c.Queries != "" {
		var jsonl *bool // nil: the first line tells
		if c.Field != "" && c.Texts == "" && vectors.IsArrayFile(c.Vectors) {
			jsonl = new(true) // --field is of the queries alone
		}
		err := c.eachText(e, c.Queries, jsonl, func(text string) { words = append(words, text) })
		if err != nil {
			return nil, nil, err
		}
	}
	if len(words) == 0 {
		return nil, nil, fmt.Errorf("--queries: %s holds no text", c.Queries)
	}
	options, err := c.Chosen()
	if err != nil {
		return nil, nil, err
	}
	m, err := runs.OpenText(c.Model, options)
	if err != nil {
		return nil, nil, err
	}
	enc, err := m.NewEmbedder(0)
	if err != nil {
		return nil, nil, err
	}
	if err := enc.Shorten(c.Dimensions); err != nil {
		return nil, nil, fmt.Errorf("--%w", err)
	}
	for _, query := range words {
		m.NoteTextDistance(e.Context, e.Notes(), query)
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

// choosePrompt returns the name of the prompt of queries: --prompt, without it the folder's for
// queries, which a note tells. It returns an error if the folder has no prompt of the name.
func (c *Command) choosePrompt(e *env.Env, p *pretrained.Prompts) (*string, error) {
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
	for _, name := range documentPrompts {
		if p.Texts[name] != "" {
			note += fmt.Sprintf("; vectors of documents need embed --prompt %s", name)
			break
		}
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
	row, jsonl := int64(0), c.JSONL
	if c.Field != "" {
		jsonl = new(bool)
		*jsonl = true
	}
	err := c.eachText(e, c.Texts, jsonl, func(text string) {
		for _, h := range wanted[row] {
			h.Text = text
		}
		row++
	})
	if err == nil && row != rows {
		err = fmt.Errorf("--texts: %s has %d texts, %s %d vectors", c.Texts, row, c.Vectors, rows)
	}
	return err
}

// fieldName returns the name of the field that holds a text.
func (c *Command) fieldName() string { return cmp.Or(c.Field, "text") }

// eachText calls f with each text of a file, which embed would read: a line, or a field of a record.
// jsonl says whether lines are records; nil: the first line does.
func (c *Command) eachText(e *env.Env, path string, jsonl *bool, f func(text string)) error {
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
			f(strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"))
		case len(bytes.TrimSpace(line)) > 0:
			text, err := records.Text(bytes.TrimSpace(line), c.fieldName())
			if err != nil {
				return fmt.Errorf("%s: %w", records.Place(in, elements, number), err)
			}
			f(text)
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
