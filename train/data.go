package train

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train/data"
)

// ErrDataChanged is wrapped by errors about data that is not the data with which the run began.
var ErrDataChanged = errors.New("is not the data that the run began with")

// CheckData returns an error that wraps ErrDataChanged if src is not the data of the model at path, because its class
// names or its SHA-256 differ. ReadCheckpoint says what path may be; src is the task that the
// configuration of the run opens. If the run has no such records, only the numbers of classes are
// compared. CheckData also returns an error if the records are damaged or a sample cannot be read.
func CheckData(path string, src data.Source) error {
	from, err := findCheckpoint(path)
	if err != nil {
		return err
	}
	m, err := checkpoint.Parse(from)
	if err != nil {
		return err
	}
	c, err := RunConfig(RunFolder(path))
	if err != nil {
		return err
	}
	difference := ""
	if named, ok := src.(data.ClassNamer); ok {
		known, err := readClasses(RunFolder(path), -1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			difference = compareClasses(named.ClassNames(), known)
		}
	}
	spec := src.Spec()
	if difference == "" && (spec.Kind == data.Class || spec.Kind == data.Labels) && spec.Classes != c.Model.Outputs {
		difference = fmt.Sprintf("it has %d classes, were %d", spec.Classes, c.Model.Outputs)
	}
	if difference == "" && m.Data != "" {
		digest, err := task.Digest(src, readFileSums(RunFolder(path)))
		if err == nil {
			digest, err = task.DigestLike(m.Data, src, digest)
		}
		if err != nil {
			return err
		}
		if digest != m.Data {
			difference = fmt.Sprintf("its SHA-256 is %.12s…, was %.12s…", digest, m.Data)
		}
	}
	if difference == "" {
		return nil
	}
	data := c.TaskSet["data"]
	if data == "" {
		data = "task " + c.Task
	}
	return fmt.Errorf("%s: %s: %w: %s", path, data, ErrDataChanged, difference)
}

// compareClasses describes the first difference of class names; "": there is none.
func compareClasses(names, known []string) string {
	if slices.Equal(names, known) {
		return ""
	}
	without := func(list, other []string) (string, bool) {
		set := map[string]bool{}
		for _, name := range other {
			set[name] = true
		}
		i := slices.IndexFunc(list, func(name string) bool { return !set[name] })
		if i < 0 {
			return "", false
		}
		return list[i], true
	}
	added, more := without(names, known)
	gone, fewer := without(known, names)
	switch {
	case more && fewer:
		return fmt.Sprintf("it has a class %q, and no class %q", added, gone)
	case more:
		return fmt.Sprintf("it has %d classes with %q, were %d", len(names), added, len(known))
	case fewer:
		return fmt.Sprintf("it has %d classes without %q, were %d", len(names), gone, len(known))
	}
	return "its classes are in another order"
}

// OpenOtherData opens the file or folder at path as data for the task of c and the model of the run
// in the folder dir. Classes have the numbers that their names have in the run, and targets are
// scaled as in the run. With hasAll, the test set has all samples. OpenOtherData returns an error
// if the task does not read the user's data, if the data is malformed or has other channels, or if
// a class does not occur in the run.
func (c Config) OpenOtherData(dir, path string, hasAll bool) (data.Source, error) {
	row, err := task.Lookup(c.Task)
	if err != nil {
		return nil, err
	}
	if !row.ReadsOwnData() || len(row.DataSets) > 0 {
		return nil, fmt.Errorf("task %s reads no data of yours", c.Task)
	}
	set := map[string]string{}
	maps.Copy(set, c.TaskSet)
	set["data"] = path
	if slices.ContainsFunc(row.Settings, func(s task.Setting) bool { return s.Name == "length" }) {
		set["length"] = fmt.Sprint(c.Model.Context) // as predict reads it
	}
	c.TaskSet = set
	options := c.taskOptions()
	options.ScoreOnly = true
	src, err := task.Open(c.Task, options)
	if err != nil {
		return nil, err
	}
	if s := src.Spec(); s.Vocab != c.Model.Vocab || s.Channels != c.Model.Inputs {
		return nil, fmt.Errorf("%s: its positions have %d tokens or %d numbers, of the run %d or %d", path, s.Vocab, s.Channels, c.Model.Vocab, c.Model.Inputs)
	}
	if pairs, ok := src.(*task.TextPairs); ok {
		if hasAll {
			pairs = pairs.TestOnly()
		}
		return pairs, nil
	}
	if named, ok := src.(data.ColumnNamer); ok {
		known, err := readColumns(dir, c.Model.Inputs)
		if err != nil {
			return nil, err
		}
		if columns := named.ColumnNames(); known != nil && columns != nil && !slices.Equal(columns, known) {
			return nil, fmt.Errorf("%s: its columns are %q, of the run %q", path, columns, known)
		}
	}
	var names []string
	if src.Spec().Classes > 0 {
		if names, err = readClasses(dir, c.Model.Outputs); err != nil {
			return nil, err
		}
	}
	scales, err := readScales(dir)
	if err != nil {
		return nil, err
	}
	if src, err = task.NumberAsLearned(src, names, scales, hasAll); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c.adaptValues(src)
}

// adaptValues returns src standardised and padded as in training. It returns an error if the
// moments do not fit the channels.
func (c *Config) adaptValues(src data.Source) (data.Source, error) {
	if c.Standardise {
		var err error
		if src, err = task.Standardise(src, c.InputMean, c.InputDeviation); err != nil {
			return nil, fieldErrorf("{Standardise}: %w", err)
		}
	}
	if c.LRAQuirk {
		src = task.Pad(src)
	}
	return src, nil
}
