// Package predict implements the verb predict: the answers of a model for new inputs.
package predict

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// Command is the verb predict: it prints a model's predictions for new inputs.
type Command struct {
	Files []string `arg:"" optional:"" name:"file" placeholder:"FILE" help:"Inputs: one a line, or one a file; - is standard input."`
	Model string   `required:"" placeholder:"DIR" help:"Folder of a run, a checkpoint or a published model."`
	Pairs bool     `help:"Read two texts a line, or records with text and pair."`
	JSON  bool     `name:"json" help:"Print a JSON object for each input."`
	JSONL bool     `name:"jsonl" help:"Read JSON lines; print each with the prediction added."`
	flags.Opening
	Filter records.Filter `embed:""`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "The model is a run that farfield train made, for example with --task file, or a published classifier. " +
		"Prints label, probability and input of each input, or numbers and input, or labels and input, with tabs between them. " +
		"For an empty line it prints a line with empty fields. An input that is longer than the model can read is cut; a series whose rows have labels (ask=each) is read whole, in windows. " +
		"If the inputs are texts or tokens, each line of the given files is one; without files the lines come from standard input. If the inputs are sounds, pictures or sequences, each given file is one; without arguments standard input lists the files, one a line. " +
		"With --jsonl each input is a JSON object in a line, or an element of a JSON array, with a text or the name of a file. " +
		"A published classifier labels texts, or each of their tokens with its offsets in bytes. For a model of pairs, --pairs reads two texts from each line, with a tab between them; with --jsonl the object has text and pair. " +
		"A model of task pairs writes the target of each text, in the records of --jsonl as the field written. " +
		"A published model of images reads PNG and JPEG files, and the array pixel_values of .npz files. " +
		"JSON output has the keys text or file, pair, name (of a record in a file), label, probability, probabilities (of up to 32 classes), number, numbers, labels, offsets, written, truncated." + flags.JoinExamples(
		"farfield predict --model out/labels lines.txt",
		"farfield predict --model out/labels --json lines.txt",
		"farfield predict --model out/labels --jsonl <records.jsonl >predicted.jsonl",
		"farfield predict --model out/sounds new/1.wav new/2.wav",
		"farfield predict --model vit photo.jpg",
	)
}

// mostProbabilities is how many classes are listed with each record.
const mostProbabilities = 32

// Run prints the prediction for each text or record. It returns an error if flags,
// model or input are invalid or the output fails.
func (c *Command) Run(e *env.Env) error {
	if err := c.Filter.Check(c.JSONL); err != nil {
		return err
	}
	if c.JSON && c.JSONL {
		return env.InputErrorf("--json: given beside --jsonl, which prints JSON lines itself")
	}
	options, err := c.Chosen()
	if err != nil {
		return err
	}
	m, err := runs.Open(c.Model, options)
	if err != nil {
		return env.MarkInput(err)
	}
	if writer, err := m.PairWriter(); err != nil || writer != nil {
		if err != nil {
			return env.MarkInput(err)
		}
		return c.targets(e, m, writer)
	}
	p, err := m.Predictor()
	if err != nil {
		return env.MarkInput(err)
	}
	runs.PrintNotes(e.Notes(), m.Published())
	w := &answers{e: e, p: p, note: func(text string) { m.NoteTextDistance(e.Context, e.Notes(), text) }, json: c.JSON, precision: c.Shown(), pairs: c.Pairs, w: bufio.NewWriter(e.Stdout)}
	defer w.noteTruncated()
	if c.Pairs && !p.NeedsLines {
		return env.InputErrorf("--pairs: an input is %s", p.Input)
	}
	if !c.JSONL && !p.NeedsLines {
		return w.files(c.Files)
	}
	if len(c.Files) == 0 {
		c.Files = []string{"-"}
	}
	if c.JSONL {
		return c.records(e, m, w)
	}
	for _, name := range c.Files {
		if err := w.lines(name, w.line); err != nil {
			return err
		}
	}
	return nil
}

// records adds the model's prediction to each record, from its text or file.
func (c *Command) records(e *env.Env, m *inference.Model, w *answers) error {
	p := w.p
	in, err := texts.OpenFiles(e, c.Files...)
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	if err := c.Filter.BindModel("predict", m.HashFiles); err != nil {
		return err
	}
	c.Filter.Bind("--pairs", fmt.Sprint(c.Pairs))
	c.Opening.Bind(c.Filter.Bind)
	if c.Pairs {
		return c.Filter.FilterPairs(e, in, func(text, pair string) ([]records.Field, error) {
			w.note(text)
			r, err := p.PredictPair(e.Context, text, pair)
			if err != nil {
				return nil, err
			}
			return w.fields(&r), nil
		})
	}
	if p.NeedsLines {
		return c.Filter.FilterFile(e, in, func(text string) ([]records.Field, error) {
			w.note(text)
			r, err := p.Predict(e.Context, text)
			if err != nil {
				return nil, err
			}
			return w.fields(&r), nil
		})
	}
	if c.Filter.Field == "" {
		c.Filter.Field = "file"
	}
	return c.Filter.FilterFile(e, in, func(path string) (fields []records.Field, err error) {
		err = p.PredictFile(e.Context, path, func(name string, r train.Prediction) error {
			if fields != nil {
				return fmt.Errorf("%s: it has several inputs, a record one; leave out --jsonl", path)
			}
			fields = w.fields(&r)
			return nil
		})
		return fields, err
	})
}

// fields returns the prediction of an input as named fields, and whether the input was cut.
func (a *answers) fields(r *train.Prediction) []records.Field {
	fields := predictedFields(a.p, r)
	if r.IsTruncated {
		a.truncated++
		fields = append(fields, records.Field{Name: "truncated", Value: true})
	}
	return fields
}

// noteTruncated counts the inputs that were cut.
func (a *answers) noteTruncated() {
	if a.truncated > 0 {
		fmt.Fprintf(a.e.Notes(), "%s longer than the model reads: answers are of a part\n", display.Pluralise(a.truncated, "input"))
	}
}

// className returns the name of a class in JSON: quoted, as display.Field does, if it is not UTF-8.
func className(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return display.Field(name)
}

// predictedFields returns the prediction of an input as named fields.
func predictedFields(p *inference.Predictor, r *train.Prediction) []records.Field {
	classes := p.Classes
	switch r.Kind {
	case task.Regression, task.Trace:
		return []records.Field{numberField(r)}
	case task.Labels, task.Next:
		names := make([]string, len(r.Labels))
		for i, y := range r.Labels {
			names[i] = className(classes[y])
		}
		if p.HasByteLabels {
			return []records.Field{{Name: "labels", Value: strings.Join(names, "")}}
		}
		if r.Offsets != nil {
			return []records.Field{{Name: "labels", Value: names}, {Name: "offsets", Value: r.Offsets}}
		}
		return []records.Field{{Name: "labels", Value: names}}
	}
	fields := []records.Field{{Name: "label", Value: className(classes[r.Class])}, {Name: "probability", Value: rounded(r.Probabilities[r.Class])}}
	if len(classes) <= mostProbabilities {
		all := make(records.Object, len(classes))
		for i, name := range classes {
			all[i] = records.Field{Name: className(name), Value: rounded(r.Probabilities[i])}
		}
		fields = append(fields, records.Field{Name: "probabilities", Value: all})
	}
	return fields
}

// numberField is one number, a list of them, or a list of rows.
func numberField(r *train.Prediction) records.Field {
	list := make([]float64, len(r.Numbers)) // as many digits as the model has
	for i := range list {
		list[i], _ = strconv.ParseFloat(formatNumber(r, i, float32Digits), 64)
	}
	switch {
	case len(list) == 1 && r.Kind == task.Regression:
		return records.Field{Name: "number", Value: list[0]}
	case r.Columns == 1 || len(list) <= r.Columns:
		return records.Field{Name: "numbers", Value: list}
	}
	rows := [][]float64{}
	for ; len(list) > 0; list = list[r.Columns:] {
		rows = append(rows, list[:r.Columns])
	}
	return records.Field{Name: "numbers", Value: rows}
}

// float32Digits are the significant digits that tell all float32 apart.
const float32Digits = 9

// formatNumber formats number i with significant digits, and more where the number exceeds the
// deviation of its column.
func formatNumber(r *train.Prediction, i, digits int) string {
	x := r.Numbers[i]
	if r.Deviation == nil {
		if digits == float32Digits {
			return strconv.FormatFloat(x, 'g', -1, 32)
		}
	} else if more := math.Ceil(math.Log10(math.Abs(x) / r.Deviation[i%r.Columns])); more > 0 {
		digits = int(min(float64(digits)+more, 17))
	}
	return strconv.FormatFloat(x, 'g', digits, 64)
}

// rounded is a probability in six decimals.
func rounded(p float64) float64 { return math.Round(p*1e6) / 1e6 }

// answers prints predictions.
type answers struct {
	e         *env.Env
	p         *inference.Predictor
	note      func(text string) // of a text that is read
	json      bool
	precision string // of the weights, if it is not f32
	w         *bufio.Writer

	truncated int // inputs that were cut

	pairs bool // lines are two texts with a tab between them
}

// files answers files, or those that standard input names in the place of -, or of none.
func (a *answers) files(paths []string) error {
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	for _, path := range paths {
		if path == "-" {
			err := a.lines(path, func(line []byte) error {
				if len(line) == 0 {
					return nil
				}
				return a.file(string(line))
			})
			if err != nil {
				return err
			}
			continue
		}
		err := a.e.Context.Err()
		if err == nil {
			err = env.MarkInput(a.file(path))
		}
		if err = errors.Join(err, a.w.Flush()); err != nil {
			return err
		}
	}
	return nil
}

// file answers the inputs in a file.
func (a *answers) file(path string) error {
	return a.p.PredictFile(a.e.Context, path, func(name string, r train.Prediction) error {
		if err := a.e.Context.Err(); err != nil {
			return err
		}
		if !a.json {
			shown := display.Field(path)
			if name != "" {
				shown += "\t" + display.Field(name)
			}
			return a.print(&r, shown)
		}
		fields := []records.Field{{Name: "file", Value: path}}
		if name != "" {
			fields = append(fields, records.Field{Name: "name", Value: name})
		}
		return a.printJSON(append(fields, a.fields(&r)...))
	})
}

// lines calls each with every line of a file, and prints its answer as soon as it is there.
func (a *answers) lines(path string, each func(line []byte) error) error {
	in, err := texts.OpenText(a.e, path)
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	r := bufio.NewReaderSize(in, texts.LongestLine)
	w := a.w
	for number := int64(1); ; number++ {
		if err := a.e.Context.Err(); err != nil {
			return errors.Join(w.Flush(), err)
		}
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return errors.Join(w.Flush(), env.InputErrorf("%s: is longer than %d bytes", texts.FormatPlace(path, number), texts.LongestLine))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(w.Flush(), err)
		}
		ended := err != nil
		if ended && len(line) == 0 {
			return w.Flush()
		}
		text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if err := each(text); err != nil {
			return errors.Join(w.Flush(), env.InputErrorf("%s: %w", texts.FormatPlace(path, number), err))
		}
		if r.Buffered() == 0 || ended { // an interactive user waits for the answer
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

// line answers a line, with empty fields if it is empty.
func (a *answers) line(text []byte) error {
	if len(text) == 0 {
		if a.json {
			return a.printJSON([]records.Field{{Name: "text", Value: ""}})
		}
		if a.p.Kind == task.Class {
			a.w.WriteByte('\t')
		}
		a.w.WriteString("\t\n")
		return nil
	}
	a.note(string(text))
	if a.pairs {
		return a.pair(string(text))
	}
	r, err := a.p.Predict(a.e.Context, string(text))
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(append([]records.Field{{Name: "text", Value: string(text)}}, a.fields(&r)...))
	}
	return a.print(&r, string(text))
}

// pair answers a line of two texts.
func (a *answers) pair(line string) error {
	text, pair, ok := strings.Cut(line, "\t")
	if !ok {
		return errors.New("--pairs: the line has no tab between two texts")
	}
	r, err := a.p.PredictPair(a.e.Context, text, pair)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(append([]records.Field{{Name: "text", Value: text}, {Name: "pair", Value: pair}}, a.fields(&r)...))
	}
	return a.print(&r, line)
}

// print prints the prediction of an input. An error of w is returned by its Flush.
func (a *answers) print(r *train.Prediction, shown string) error {
	if r.IsTruncated {
		a.truncated++
	}
	classes := a.p.Classes
	switch r.Kind {
	case task.Regression, task.Trace:
		for i := range r.Numbers {
			if i > 0 {
				a.w.WriteByte(',')
			}
			a.w.WriteString(formatNumber(r, i, 6))
		}
	case task.Labels, task.Next:
		for i, y := range r.Labels {
			name := classes[y]
			if !a.p.HasByteLabels {
				if i > 0 {
					a.w.WriteByte(',')
				}
				if name = display.Field(name); name == classes[y] && strings.Contains(name, ",") {
					name = strconv.Quote(name)
				}
			}
			a.w.WriteString(name)
		}
	default:
		fmt.Fprintf(a.w, "%s\t%.4f", display.Field(classes[r.Class]), r.Probabilities[r.Class])
	}
	fmt.Fprintf(a.w, "\t%s\n", shown)
	return nil
}

// printJSON prints fields as an object in a line.
func (a *answers) printJSON(fields []records.Field) error {
	if a.precision != "" {
		fields = append(fields, records.Field{Name: "precision", Value: a.precision})
	}
	a.w.WriteByte('{')
	for i, f := range fields {
		value, err := atomicfile.MarshalJSON(f.Value)
		if err != nil {
			return err
		}
		if i > 0 {
			a.w.WriteByte(',')
		}
		fmt.Fprintf(a.w, "%q:%s", f.Name, value)
	}
	a.w.WriteString("}\n")
	return nil
}
