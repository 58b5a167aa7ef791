package main

import (
	"bufio"
	"bytes"
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

// predictCmd is the verb predict: what a model of the user's texts makes of others.
type predictCmd struct {
	File   string     `arg:"" optional:"" placeholder:"FILE" help:"Texts, one a line; - or nothing is standard input."`
	Model  string     `required:"" placeholder:"DIR" help:"Folder of a run of --task file, whose best checkpoint is taken, or of a checkpoint."`
	JSONL  bool       `name:"jsonl" help:"Each line of the input is a JSON object, which is printed with label and probability of its text added, and probabilities of up to 32 classes; or with number, or labels."`
	Filter jsonFilter `embed:""`
}

// Help are examples.
func (c *predictCmd) Help() string {
	return "Prints label, probability and text of each line, or number and text, or labels and text, with tabs between them. " +
		"An empty line stays, with empty fields. Of a longer text the bytes that the task was trained with (length) are seen." + examples(
		"farfield predict --model out/labels lines.txt",
		"farfield predict --model out/labels --jsonl <records.jsonl >predicted.jsonl",
	)
}

// mostProbabilities is how many classes are listed with each record.
const mostProbabilities = 32

func (c *predictCmd) Run(e *env) error {
	if err := c.Filter.check(c.JSONL); err != nil {
		return err
	}
	p, err := train.OpenPredictor(c.Model)
	if err != nil {
		return input(err)
	}
	in, err := openText(e, c.File)
	if err != nil {
		return input(err)
	}
	defer in.Close()
	if c.JSONL {
		return c.Filter.run(e, in, func(text string) ([]jsonField, error) {
			r, err := p.Predict([]byte(text))
			if err != nil {
				return nil, err
			}
			return predictedFields(p.Classes(), &r), nil
		})
	}
	return predictLines(e, p, in)
}

// predictedFields is what is added to a record.
func predictedFields(classes []string, r *train.Prediction) []jsonField {
	switch r.Kind {
	case task.Regression:
		return []jsonField{{"number", float32(r.Number)}}
	case task.Labels:
		return []jsonField{{"labels", string(r.Labels)}}
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

// rounded is a probability in six decimals.
func rounded(p float64) float64 { return math.Round(p*1e6) / 1e6 }

// predictLines answers each line as soon as it is there.
func predictLines(e *env, p *train.Predictor, in io.Reader) error {
	r := bufio.NewReaderSize(in, longestLine)
	w := bufio.NewWriter(e.stdout)
	for number := 1; ; number++ {
		if err := e.ctx.Err(); err != nil {
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
		if err := printPrediction(w, p, text); err != nil {
			return errors.Join(w.Flush(), inputf("line %d: %w", number, err))
		}
		if r.Buffered() == 0 || ended { // who types waits for an answer
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

// printPrediction prints a line, with empty fields if it is empty. What w cannot
// write its Flush tells.
func printPrediction(w *bufio.Writer, p *train.Predictor, text []byte) error {
	if len(text) == 0 {
		if p.Kind() == task.Class {
			w.WriteByte('\t')
		}
		w.WriteString("\t\n")
		return nil
	}
	r, err := p.Predict(text)
	if err != nil {
		return err
	}
	switch r.Kind {
	case task.Regression:
		fmt.Fprintf(w, "%.6g\t%s\n", r.Number, text)
	case task.Labels:
		fmt.Fprintf(w, "%s\t%s\n", r.Labels, text)
	default:
		fmt.Fprintf(w, "%s\t%.4f\t%s\n", field(p.Classes()[r.Class]), r.Probabilities[r.Class], text)
	}
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
