package search

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/vectors"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/machine"
)

const (
	batchTexts = 256     // texts that are embedded together, or
	batchBytes = 1 << 18 // fewer of about so many bytes
	leastSaved = 1 << 12 // new vectors before the index is written on the way
)

// indexing brings an index up to date.
type indexing struct {
	c        *Command
	e        *env.Env
	embedder *inference.Embedder
	prompt   *string // of texts; nil: the folder's default
	settings []records.Setting

	digests []vectors.Digest
	first   map[vectors.Digest]int // row of the first text with a digest
	known   []bool                 // the row has its vector
	rows    []float32              // [digests,width]
	found   int                    // vectors of different texts, that are known
	saved   int                    // of them, in the file
	bytes   int64                  // of different texts

	texts    []string // that are embedded next
	at       []int    // their rows
	pending  int      // bytes of texts
	lengths  runs.Lengths
	progress *progress.Records
}

// openIndex opens the index after it has brought it up to date with the texts. It returns an error if
// the index is of another command, a text or a file cannot be read, or the context ends.
func (c *Command) openIndex(e *env.Env, enc *inference.Embedder) (vectors.Reader, error) {
	x := &indexing{c: c, e: e, embedder: enc, first: map[vectors.Digest]int{}}
	if err := env.CheckOutput(c.Index, append(runs.ModelFiles(c.Model), c.Vectors)...); err != nil {
		return nil, env.InputErrorf("--index: %w", err)
	}
	if err := x.bind(); err != nil {
		return nil, env.MarkInput(err)
	}
	if err := c.eachText(e, c.Vectors, c.hasRecords(), x.addDigest); err != nil {
		return nil, env.MarkInput(err)
	}
	if len(x.digests) == 0 {
		return nil, env.InputErrorf("%s: holds no text", c.Vectors)
	}
	old, err := vectors.OpenIndex(c.Index)
	if errors.Is(err, fs.ErrNotExist) {
		old, err = &vectors.Index{}, nil
	} else if err == nil {
		err = x.check(old)
	}
	if err != nil {
		return nil, env.InputErrorf("--index: %w", err)
	}
	c.digests = x.digests
	if slices.Equal(old.Digests, x.digests) {
		return old, nil
	}
	if err := x.take(old); err != nil {
		return nil, err
	}
	if err := x.update(); err != nil {
		return nil, err
	}
	written, err := vectors.OpenIndex(c.Index)
	if err != nil {
		return nil, err
	}
	if err := x.check(written); err != nil { // closes it
		return nil, env.InputErrorf("--index: %w", err)
	}
	if !slices.Equal(written.Digests, x.digests) {
		written.Close()
		return nil, env.InputErrorf("--index: %s was written by another command meanwhile; repeat this one", c.Index)
	}
	return written, nil
}

// bind sets what the vectors depend on beside the texts.
func (x *indexing) bind() error {
	sum, err := x.c.model.HashFiles()
	if err != nil {
		return err
	}
	bind := func(name, value string) { x.settings = append(x.settings, records.Setting{Name: name, Value: value}) }
	bind("--model", sum)
	prompts := x.embedder.Prompts()
	x.prompt = documentPrompt(prompts)
	text := prompts.Texts[prompts.Default]
	if x.prompt != nil {
		text = prompts.Texts[*x.prompt]
	}
	bind("prompt of texts", text)
	bind("--dimensions", fmt.Sprint(x.embedder.Width()))
	x.c.Opening.Bind(bind)
	return nil
}

// check returns an error, with both values, if an index was made with other settings.
func (x *indexing) check(old *vectors.Index) error {
	for i := range max(len(old.Settings), len(x.settings)) {
		was, now := records.Setting{}, records.Setting{}
		if i < len(old.Settings) {
			was = old.Settings[i]
		}
		if i < len(x.settings) {
			now = x.settings[i]
		}
		if was != now {
			old.Close()
			return fmt.Errorf("%s: was made with %s, this command has %s; name another file", x.c.Index, formatSetting(was), formatSetting(now))
		}
	}
	if width := x.embedder.Width(); old.Width() != width {
		old.Close()
		return fmt.Errorf("%s: has vectors of width %d, the model makes width %d; name another file", x.c.Index, old.Width(), width)
	}
	return nil
}

// formatSetting returns a setting for an error.
func formatSetting(x records.Setting) string {
	if x.Name == "" {
		return "no other setting"
	}
	return fmt.Sprintf("%s %q", x.Name, display.Beginning(x.Value, 12))
}

// addDigest adds the digest of the next text.
func (x *indexing) addDigest(text string) error {
	d := vectors.DigestText(text)
	if _, seen := x.first[d]; !seen {
		x.first[d] = len(x.digests)
		x.bytes += int64(len(text))
	}
	x.digests = append(x.digests, d)
	return x.e.Context.Err()
}

// take takes the vectors of texts that old has, and closes it.
func (x *indexing) take(old *vectors.Index) error {
	width := x.embedder.Width()
	if err := machine.Check("vectors of texts", 8*float64(len(x.digests))*float64(width)); err != nil {
		return env.InputErrorf("--index: %w", err)
	}
	x.known, x.rows = make([]bool, len(x.digests)), make([]float32, len(x.digests)*width)
	if old.Reader == nil {
		return nil
	}
	defer old.Close()
	block := make([]float32, max(1, blockNumbers/width)*width)
	for row := 0; ; {
		n, err := old.ReadRows(block)
		if err != nil {
			return env.MarkInput(err)
		}
		if n == 0 {
			x.saved = x.found
			return nil
		}
		for i := range n {
			if at, wanted := x.first[old.Digests[row+i]]; wanted && !x.known[at] {
				x.set(at, block[i*width:][:width])
			}
		}
		row += n
	}
}

// set sets the vector of a row; nil: zeros.
func (x *indexing) set(row int, vector []float32) {
	copy(x.rows[row*x.embedder.Width():], vector)
	x.known[row] = true
	x.found++
}

// update embeds the texts that have no vector, and writes the index. An interruption and an error keep
// the vectors there are.
func (x *indexing) update() error {
	missing := len(x.first) - x.found
	if x.prompt != nil && missing > 0 {
		fmt.Fprintf(x.e.Notes(), "texts have the folder's prompt %s\n", *x.prompt)
	}
	x.progress = progress.NewRecords(x.e, x.bytes, false)
	row := 0
	err := x.c.eachText(x.e, x.c.Vectors, x.c.hasRecords(), func(text string) error {
		at := row
		row++
		if at >= len(x.digests) || vectors.DigestText(text) != x.digests[at] {
			return fmt.Errorf("%s: text %d changed while it was read", x.c.Vectors, at)
		}
		if x.first[x.digests[at]] != at {
			return nil
		}
		if x.known[at] {
			x.progress.Read += int64(len(text))
			x.progress.Skip()
			return nil
		}
		x.texts, x.at, x.pending = append(x.texts, text), append(x.at, at), x.pending+len(text)
		if len(x.texts) < batchTexts && x.pending < batchBytes {
			return nil
		}
		return x.embed()
	})
	if err == nil && row < len(x.digests) {
		err = fmt.Errorf("%s: has %d texts, before it had %d", x.c.Vectors, row, len(x.digests))
	}
	if err == nil {
		err = x.embed()
	}
	x.progress.Clear()
	if failed := x.save(); failed != nil {
		return failed
	}
	x.lengths.Print(x.e.Notes(), x.embedder)
	stopped := x.e.Context.Err()
	switch {
	case err != nil && stopped != nil && errors.Is(err, stopped):
		return env.Interruption{Err: err, Text: fmt.Sprintf("stopped; %s has %d of %s; the same command goes on", x.c.Index, x.found, display.Pluralise(len(x.first), "vector"))}
	case err != nil:
		return env.MarkInput(err)
	}
	fmt.Fprintf(x.e.Notes(), "index  %s: %s, %d of them embedded now\n", display.Field(x.c.Index), display.Pluralise(len(x.digests), "text"), missing)
	return nil
}

// embed embeds the texts that are read. It writes the index when it has got longer by a half.
func (x *indexing) embed() error {
	if len(x.texts) == 0 {
		return nil
	}
	for _, text := range x.texts {
		x.c.model.NoteTextDistance(x.e.Context, x.e.Notes(), text)
	}
	list, err := x.embedder.Embed(x.e.Context, x.prompt, x.texts)
	var one *inference.TextError
	if errors.As(err, &one) {
		return fmt.Errorf("%s: text %d, counted from 0: %w", x.c.Vectors, x.at[one.Text], err)
	} else if err != nil {
		return err
	}
	for i, y := range list {
		x.set(x.at[i], y.Values)
		x.lengths.Add(y)
		x.progress.Read += int64(len(x.texts[i]))
	}
	x.progress.Show(int64(x.found))
	x.texts, x.at, x.pending = x.texts[:0], x.at[:0], 0
	if x.found-x.saved >= max(leastSaved, x.saved/2) && x.found < len(x.first) {
		return x.save()
	}
	return nil
}

// save writes the vectors there are. Rows of a text that comes again have the vector of the first. Without a
// vector it leaves the file as it is.
func (x *indexing) save() error {
	if x.found == 0 {
		return nil
	}
	width := x.embedder.Width()
	digests, rows := x.digests, x.rows
	if x.found < len(x.first) {
		digests, rows = make([]vectors.Digest, 0, x.found), make([]float32, 0, x.found*width)
	}
	for i, d := range x.digests {
		vector := x.rows[x.first[d]*width:][:width]
		switch {
		case x.found == len(x.first):
			copy(rows[i*width:], vector)
		case x.known[i]:
			digests, rows = append(digests, d), append(rows, vector...)
		}
	}
	x.saved = x.found
	return vectors.WriteIndex(x.c.Index, x.settings, digests, rows, width)
}
