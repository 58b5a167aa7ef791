package predict

import (
	"bufio"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/inference"
)

// targets prints the target that the model writes for each source.
func (c *Command) targets(e *env.Env, m *inference.Model, w *inference.PairWriter) error {
	if c.Pairs {
		return env.InputErrorf("--pairs: an input is the source of a pair, whose target the model writes")
	}
	a := &answers{e: e, json: c.JSON, precision: c.Shown(), w: bufio.NewWriter(e.Stdout)}
	defer a.noteTruncated()
	if len(c.Files) == 0 {
		c.Files = []string{"-"}
	}
	if c.JSONL {
		return c.targetRecords(e, m, w, a)
	}
	for _, name := range c.Files {
		if err := a.lines(name, func(line []byte) error { return a.target(w, string(line)) }); err != nil {
			return err
		}
	}
	return nil
}

// targetRecords adds the target to each record, whose source is in the field of the run's sources.
func (c *Command) targetRecords(e *env.Env, m *inference.Model, w *inference.PairWriter, a *answers) error {
	in, err := texts.OpenFiles(e, c.Files...)
	if err != nil {
		return env.MarkInput(err)
	}
	defer in.Close()
	if c.Filter.Field == "" {
		c.Filter.Field = w.Source
	}
	if err := c.Filter.BindModel("predict", m.HashFiles); err != nil {
		return err
	}
	c.Opening.Bind(c.Filter.Bind)
	return c.Filter.FilterFile(e, in, func(source string) ([]records.Field, error) {
		target, isTruncated, err := w.Write(e.Context, []byte(source))
		if err != nil {
			return nil, err
		}
		return a.targetFields(target, isTruncated), nil
	})
}

// targetFields returns a target as named fields.
func (a *answers) targetFields(target []byte, isTruncated bool) []records.Field {
	fields := []records.Field{{Name: "written", Value: strings.ToValidUTF8(string(target), "\ufffd")}}
	if isTruncated {
		a.truncated++
		fields = append(fields, records.Field{Name: "truncated", Value: true})
	}
	return fields
}

// target prints the target of a line, empty fields for an empty line.
func (a *answers) target(w *inference.PairWriter, source string) error {
	if source == "" {
		if a.json {
			return a.printJSON([]records.Field{{Name: "text", Value: ""}})
		}
		_, err := a.w.WriteString("\t\n")
		return err
	}
	target, isTruncated, err := w.Write(a.e.Context, []byte(source))
	if err != nil {
		return err
	}
	fields := a.targetFields(target, isTruncated)
	if a.json {
		return a.printJSON(append([]records.Field{{Name: "text", Value: source}}, fields...))
	}
	_, err = a.w.WriteString(display.Field(string(target)) + "\t" + source + "\n")
	return err
}
