package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// predictCmd is the verb predict: what a model says of inputs that it has not learned from.
type predictCmd struct {
	Files  []string   `arg:"" optional:"" name:"file" placeholder:"FILE" help:"Inputs: of a task of texts or tokens files with one a line, by default standard input; of sounds, pictures, numbers and sequences one in each file, by default the files that standard input names, one a line. - is standard input."`
	Model  string     `required:"" placeholder:"DIR" help:"Folder of a run of a task, whose best checkpoint is taken, or of a checkpoint."`
	JSON   bool       `name:"json" help:"Print each answer as a JSON object in a line."`
	JSONL  bool       `name:"jsonl" help:"Each line of the input is a JSON object, which is printed with what the model says of its text, or of the file that it names, added."`
	Filter jsonFilter `embed:""`
}

// Help are examples.
func (c *predictCmd) Help() string {
	return "Prints label, probability and input of each input, or numbers and input, or labels and input, with tabs between them. " +
		"An empty line stays, with empty fields. Of a longer input the positions that the task was trained with (length) are seen, of task ecg all, in windows. " +
		"Keys in JSON are text or file, name (of a record in a file), label, probability, probabilities (of up to 32 classes), number, numbers, labels." + examples(
		"farfield predict --model out/labels lines.txt",
		"farfield predict --model out/labels --json lines.txt",
		"farfield predict --model out/labels --jsonl <records.jsonl >predicted.jsonl",
		"farfield predict --model out/sounds new/1.wav new/2.wav",
	)
}

// mostProbabilities is how many classes are listed with each record.
const mostProbabilities = 32

func (c *predictCmd) Run(e *env) error {
	if err := c.Filter.check(c.JSONL); err != nil {
		return err
	}
	if c.JSON && c.JSONL {
		return inputf("--json: given beside --jsonl, which prints JSON lines itself")
	}
	p, err := train.OpenPredictor(c.Model)
	if err != nil {
		return input(err)
	}
	w := &answers{e: e, p: p, json: c.JSON, w: bufio.NewWriter(e.stdout)}
	if !c.JSONL && !p.NeedsLines() {
		return w.files(c.Files)
	}
	if len(c.Files) == 0 {
		c.Files = []string{"-"}
	}
	for _, name := range c.Files {
		in, err := openText(e, name)
		if err != nil {
			return input(err)
		}
		if c.JSONL {
			err = c.records(e, p, in)
		} else {
			err = w.lines(in, w.line)
		}
		in.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// records adds to each record what the model says of its text or file.
func (c *predictCmd) records(e *env, p *train.Predictor, in io.Reader) error {
	if p.NeedsLines() {
		return c.Filter.run(e, in, func(text string) ([]jsonField, error) {
			r, err := p.Predict([]byte(text))
			if err != nil {
				return nil, err
			}
			return predictedFields(p, &r), nil
		})
	}
	if c.Filter.Field == "" {
		c.Filter.Field = "file"
	}
	return c.Filter.run(e, in, func(path string) (fields []jsonField, err error) {
		err = p.PredictFile(path, func(name string, r train.Prediction) error {
			if fields != nil {
				return fmt.Errorf("%s: it has several inputs, a record one; leave out --jsonl", path)
			}
			fields = predictedFields(p, &r)
			return nil
		})
		return fields, err
	})
}

// predictedFields is what is said of an input, by name.
func predictedFields(p *train.Predictor, r *train.Prediction) []jsonField {
	classes := p.Classes()
	switch r.Kind {
	case task.Regression, task.Trace:
		return []jsonField{numberField(r)}
	case task.Labels, task.Next:
		names := make([]string, len(r.Labels))
		for i, y := range r.Labels {
			names[i] = classes[y]
		}
		if p.HasByteLabels() {
			return []jsonField{{"labels", strings.Join(names, "")}}
		}
		return []jsonField{{"labels", names}}
	}
	fields := []jsonField{{"label", classes[r.Class]}, {"probability", rounded(r.Probabilities[r.Class])}}
	if len(classes) <= mostProbabilities {
		all := make(map[string]float64, len(classes))
		for i, name := range classes {
			all[name] = rounded(r.Probabilities[i])
		}
		fields = append(fields, jsonField{"probabilities", all})
	}
	return fields
}

// numberField is one number, a list of them, or a list of rows.
func numberField(r *train.Prediction) jsonField {
	list := make([]float32, len(r.Numbers)) // as many digits as the model has
	for i, x := range r.Numbers {
		list[i] = float32(x)
	}
	switch {
	case len(list) == 1 && r.Kind == task.Regression:
		return jsonField{"number", list[0]}
	case r.Columns == 1 || len(list) <= r.Columns:
		return jsonField{"numbers", list}
	}
	rows := [][]float32{}
	for ; len(list) > 0; list = list[r.Columns:] {
		rows = append(rows, list[:r.Columns])
	}
	return jsonField{"numbers", rows}
}

// rounded is a probability in six decimals.
func rounded(p float64) float64 { return math.Round(p*1e6) / 1e6 }

// answers prints what a model says.
type answers struct {
	e    *env
	p    *train.Predictor
	json bool
	w    *bufio.Writer
}

// files answers files, or those that standard input names in the place of -, or of none.
func (a *answers) files(paths []string) error {
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	for _, path := range paths {
		if path == "-" {
			in, err := openText(a.e, path)
			if err != nil {
				return input(err)
			}
			err = a.lines(in, func(line []byte) error {
				if len(line) == 0 {
					return nil
				}
				return a.file(string(line))
			})
			in.Close()
			if err != nil {
				return err
			}
			continue
		}
		err := a.e.ctx.Err()
		if err == nil {
			err = input(a.file(path))
		}
		if err = errors.Join(err, a.w.Flush()); err != nil {
			return err
		}
	}
	return nil
}

// file answers the inputs in a file.
func (a *answers) file(path string) error {
	return a.p.PredictFile(path, func(name string, r train.Prediction) error {
		if err := a.e.ctx.Err(); err != nil {
			return err
		}
		if !a.json {
			shown := field(path)
			if name != "" {
				shown += "\t" + field(name)
			}
			return a.print(&r, shown)
		}
		fields := []jsonField{{"file", path}}
		if name != "" {
			fields = append(fields, jsonField{"name", name})
		}
		return a.printJSON(append(fields, predictedFields(a.p, &r)...))
	})
}

// lines calls each with every line, and prints its answer as soon as it is there.
func (a *answers) lines(in io.Reader, each func(line []byte) error) error {
	r := bufio.NewReaderSize(in, longestLine)
	w := a.w
	for number := 1; ; number++ {
		if err := a.e.ctx.Err(); err != nil {
			return errors.Join(w.Flush(), err)
		}
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return errors.Join(w.Flush(), inputf("line %d: is longer than %d bytes", number, longestLine))
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
			return errors.Join(w.Flush(), inputf("line %d: %w", number, err))
		}
		if r.Buffered() == 0 || ended { // who types waits for an answer
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
			return a.printJSON([]jsonField{{"text", ""}})
		}
		if a.p.Kind() == task.Class {
			a.w.WriteByte('\t')
		}
		a.w.WriteString("\t\n")
		return nil
	}
	r, err := a.p.Predict(text)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(append([]jsonField{{"text", string(text)}}, predictedFields(a.p, &r)...))
	}
	return a.print(&r, string(text))
}

// print prints what is said of an input. What w cannot write its Flush tells.
func (a *answers) print(r *train.Prediction, shown string) error {
	classes := a.p.Classes()
	switch r.Kind {
	case task.Regression, task.Trace:
		for i, x := range r.Numbers {
			if i > 0 {
				a.w.WriteByte(',')
			}
			fmt.Fprintf(a.w, "%.6g", x)
		}
	case task.Labels, task.Next:
		for i, y := range r.Labels {
			if i > 0 && !a.p.HasByteLabels() {
				a.w.WriteByte(',')
			}
			a.w.WriteString(classes[y])
		}
	default:
		fmt.Fprintf(a.w, "%s\t%.4f", field(classes[r.Class]), r.Probabilities[r.Class])
	}
	fmt.Fprintf(a.w, "\t%s\n", shown)
	return nil
}

// printJSON prints fields as an object in a line.
func (a *answers) printJSON(fields []jsonField) error {
	a.w.WriteByte('{')
	for i, f := range fields {
		value, err := json.Marshal(f.value)
		if err != nil {
			return err
		}
		if i > 0 {
			a.w.WriteByte(',')
		}
		fmt.Fprintf(a.w, "%q:%s", f.name, value)
	}
	a.w.WriteString("}\n")
	return nil
}

// field is a name of a class as it is printed between tabs: quoted where it has
// characters that would end the field or cannot be seen.
func field(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(name) {
		return strconv.Quote(name)
	}
	return name
}
