// Package search implements the verb search: the vectors that are closest to a query.
package search

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/encoder"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/cli/vectors"
)

// Command is the verb search.
type Command struct {
	Vectors string   `arg:"" placeholder:"FILE" help:"Vectors that embed wrote: .npy, .safetensors or JSON lines."`
	Query   []string `arg:"" optional:"" placeholder:"TEXT" help:"Texts to search for, with --model."`
	Queries string   `placeholder:"FILE" help:"Vectors to search for; with --model, texts, one a line."`
	Model   string   `placeholder:"DIR" help:"Model of the vectors: run, published folder, or name."`
	Top     int      `default:"10" placeholder:"N" help:"Rows to find for each query (${default})."`
	Texts   string   `placeholder:"FILE" help:"File that embed read, to print the text of each row."`
	JSON    bool     `name:"json" help:"Print a JSON object for each query."`
}

// Help are examples.
func (c *Command) Help() string {
	return "Prints query, row, cosine similarity and text of the closest rows, with tabs between them, the closest first. " +
		"Rows and queries are counted from 0. The search is exact: every row is compared. Files may be larger than memory. " +
		"A vector of zeros, of an empty text, has the similarity 0." + flags.JoinExamples(
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
	if err := c.rankRows(e, r, in); err != nil {
		return err
	}
	list := make([]Found, len(r.best))
	for q := range list {
		list[q] = Found{Query: q, Hits: []Hit{}}
		if words != nil {
			list[q].Text = words[q]
		}
		for _, x := range r.best[q] {
			list[q].Hits = append(list[q].Hits, Hit{Row: x.row, Cosine: math.Round(float64(x.cosine)*1e6) / 1e6, Text: recordText(x.record)})
		}
	}
	if c.Texts != "" {
		if err := c.addTexts(e, list); err != nil {
			return env.MarkInput(err)
		}
	}
	return c.print(e, list)
}

// rankRows ranks all rows of in.
func (c *Command) rankRows(e *env.Env, r *ranking, in vectors.Reader) error {
	block := max(16, min(blockNumbers/in.Width(), blockNumbers/len(r.best), 1<<14))
	rows := make([]float32, block*in.Width())
	for first := int64(0); ; {
		if err := e.Context.Err(); err != nil {
			return err
		}
		n, err := in.ReadRows(rows)
		if err != nil {
			return env.MarkInput(err)
		}
		if n == 0 {
			return nil
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
		err := eachText(e, c.Queries, func(_ int64, text string) error {
			words = append(words, text)
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if len(words) == 0 {
		return nil, nil, fmt.Errorf("--queries: %s holds no text", c.Queries)
	}
	enc, err := encoder.Open(c.Model, 0)
	if err != nil {
		return nil, nil, err
	}
	if enc.Width() != width {
		return nil, nil, fmt.Errorf("%s: has vectors of width %d, the model %s makes width %d: search needs the model that made them", c.Vectors, width, c.Model, enc.Width())
	}
	if len(words) > maxQueryNumbers/width {
		return nil, nil, fmt.Errorf("--queries: has %d texts, at most %d fit", len(words), maxQueryNumbers/width)
	}
	list, err := enc.Encode(e.Context, words)
	if err != nil {
		return nil, nil, err
	}
	queries := make([]float32, len(words)*width)
	for i, x := range list {
		if x.Vector == nil {
			return nil, nil, fmt.Errorf("query %d: is empty", i)
		}
		copy(queries[i*width:], x.Vector)
	}
	return queries, words, nil
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

// addTexts adds the texts of rows from the file that embed read.
func (c *Command) addTexts(e *env.Env, list []Found) error {
	wanted := map[int64][]*Hit{}
	for q := range list {
		for i := range list[q].Hits {
			h := &list[q].Hits[i]
			wanted[h.Row] = append(wanted[h.Row], h)
		}
	}
	return eachText(e, c.Texts, func(row int64, text string) error {
		for _, h := range wanted[row] {
			h.Text = text
		}
		return nil
	})
}

// eachText calls f with each text of a file: a line, or the field text of a record.
func eachText(e *env.Env, path string, f func(row int64, text string) error) error {
	in, err := texts.OpenText(e, path)
	if err != nil {
		return err
	}
	defer in.Close()
	const longest = 1 << 26
	lines := &texts.LineSource{Reader: in, Longest: longest}
	row, isRecords := int64(0), false
	take := func(line []byte, number int64) error {
		text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		if number == 0 {
			isRecords = isRecord(line)
		}
		if isRecords {
			if len(bytes.TrimSpace(line)) == 0 {
				return nil
			}
			text = recordText(line)
		}
		row++
		return f(row-1, text)
	}
	var some [][]byte
	for number := int64(0); ; {
		some, err = lines.NextLines(some[:0], 1, 1)
		last := errors.Is(err, io.EOF)
		if last {
			rest := lines.Rest()
			if rest == nil {
				return nil
			}
			some = append(some, rest)
		} else if err != nil {
			return err
		}
		for _, line := range some {
			if err := take(line, number); err != nil {
				return err
			}
			number++
		}
		if last {
			return nil
		}
	}
}

// isRecord reports whether a line is a JSON object with the field text.
func isRecord(line []byte) bool {
	var x struct {
		Text *string `json:"text"`
	}
	return json.Unmarshal(line, &x) == nil && x.Text != nil
}

// recordText returns the field text of a JSON object; "" if there is none.
func recordText(record []byte) string {
	var x struct {
		Text string `json:"text"`
	}
	if len(record) == 0 || json.Unmarshal(record, &x) != nil {
		return ""
	}
	return x.Text
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
