package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
)

// An origin file is beside an output. It holds the settings of the command that began the output.
const (
	originSuffix = ".origin"
	OriginMagic  = "farfield origin" // first bytes of an origin file
)

var originFormat = framed.Format{Name: "origin", Magic: OriginMagic, Version: 1, Sum: framed.SHA256}

// modelSetting names the SHA-256 of the model.
const modelSetting = "--model"

// Bytes of a value, and of a model's SHA-256, that an error shows.
const (
	shownValue = 64
	shownSum   = 12
)

// Setting is a setting that the records of an output depend on.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// readOrigin returns the settings of an origin file. It returns an error if data are no
// origin file, or damaged.
func readOrigin(data []byte) ([]Setting, error) {
	parts, err := originFormat.ReadParts(data, 1)
	if err != nil {
		return nil, err
	}
	var list []Setting
	return list, json.Unmarshal(parts[0], &list)
}

// InspectOrigin describes an origin file of size bytes. It returns an error if the file is damaged
// or cannot be read.
func InspectOrigin(file *os.File, size int64) (*display.Finding, error) {
	data, err := io.ReadAll(io.NewSectionReader(file, 0, min(size, longestRecord)))
	if err != nil {
		return nil, err
	}
	list, err := readOrigin(data)
	if err != nil {
		return nil, err
	}
	f := &display.Finding{Kind: "settings that records depend on"}
	for _, x := range list {
		f.Add(strings.ReplaceAll(strings.TrimPrefix(x.Name, "--"), "-", " "), x.Value)
	}
	return f, nil
}

// output is where records go: standard output, or a file that an earlier run may
// have begun.
type output struct {
	w       *os.File // nil: standard output
	lock    *lock.Lock
	created []string // files that did not exist; an input that is refused leaves none without records

	results *texts.LineSource // records of an earlier run; nil: all are passed
	records int64             // of results that are passed, and
	size    int64             // their bytes
}

// open opens the output. It changes no byte of an existing file. It returns an error if the
// file is an input or in use, or if another command began it.
func (f *Filter) open(inputs []string) (*output, error) {
	o := new(output)
	if f.Out == "" {
		return o, nil
	}
	if err := env.CheckOutput(f.Out+originSuffix, inputs...); err != nil {
		return nil, env.InputErrorf("--out: %w", err)
	}
	if _, err := os.Lstat(f.Out); errors.Is(err, fs.ErrNotExist) {
		o.created = []string{f.Out}
	}
	var err error
	if o.w, o.lock, err = env.OwnFile(f.Out, inputs...); err != nil {
		return nil, err
	}
	if err := f.checkOrigin(o.w); err != nil {
		o.close(err)
		return nil, err
	}
	if o.created != nil {
		o.created = append(o.created, f.Out+originSuffix)
	}
	o.results = &texts.LineSource{Reader: o.w, Longest: 2 * longestRecord}
	return o, nil
}

// checkOrigin compares the origin file of the output w with f, or writes it for an empty output.
func (f *Filter) checkOrigin(w *os.File) error {
	info, err := w.Stat()
	if err != nil {
		return err
	}
	path := f.Out + originSuffix
	var was []Setting
	data, err := infile.ReadFile(path)
	if err == nil {
		if was, err = readOrigin(data); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return env.InputErrorf("--out: %w", err)
	}
	now := append(f.bound, Setting{"--field", f.FieldName()}, Setting{"--shard", f.Shard}, Setting{"--skip", fmt.Sprint(f.Skip)})
	if info.Size() == 0 {
		text, err := json.Marshal(now)
		if err != nil {
			return err
		}
		return atomicfile.WriteBytes(path, originFormat.Append(nil, text))
	}
	if was == nil {
		return env.InputErrorf("--out: %s has %d bytes of no known command, as there is no %s; name another file", f.Out, info.Size(), path)
	}
	for i, x := range now {
		if i >= len(was) || was[i] != x {
			before := Setting{x.Name, "none"}
			if i < len(was) {
				before = was[i]
			}
			return env.InputErrorf("--out: %s was made with %s %q, this command has %s %q; name another file", f.Out, before.Name, before.shown(), x.Name, x.shown())
		}
	}
	return nil
}

// Bind adds a setting on which the added fields depend. A command continues an output only if its
// settings are equal.
func (f *Filter) Bind(name, value string) { f.bound = append(f.bound, Setting{name, value}) }

// shown returns the beginning of the value.
func (x Setting) shown() string {
	if x.Name == modelSetting {
		return display.Beginning(x.Value, shownSum)
	}
	return display.Beginning(x.Value, shownValue)
}

// BindModel binds an output to a verb and to the SHA-256 of a model, which hash computes. It
// returns the error of hash.
func (f *Filter) BindModel(verb string, hash func() (string, error)) error {
	if f.Out == "" {
		return nil
	}
	sum, err := hash()
	if err != nil {
		return env.MarkInput(err)
	}
	f.Bind("verb", verb)
	f.Bind(modelSetting, sum)
	return nil
}

// passes reports whether the file has the result of record already. Before the first record
// that it lacks, it cuts off the result that an earlier run left incomplete. It returns an error,
// with the record's place, if the file has a result of something else.
func (o *output) passes(record []byte, place string) (bool, error) {
	begins := append(append([]byte{}, opened(record)...), ',')
	some, err := o.results.NextLines(nil, 1, 1)
	if err == nil && bytes.HasPrefix(some[0], begins) {
		o.records++
		o.size += int64(len(some[0]))
		return true, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	rest := o.results.Rest()
	if err == nil || !bytes.HasPrefix(rest, begins[:min(len(begins), len(rest))]) {
		return false, env.InputErrorf("--out: %s: line %d is not of the record in %s; name another file", o.w.Name(), o.records+1, place)
	}
	o.results = nil
	if err := o.w.Truncate(o.size); err != nil {
		return false, err
	}
	_, err = o.w.Seek(o.size, io.SeekStart)
	return false, err
}

// end reports a file with more records than the input.
func (o *output) end(taken int64) error {
	if o.results == nil {
		return nil
	}
	n := o.records
	for ; ; n++ {
		if _, err := o.results.NextLines(nil, 1, 1); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if o.results.Rest() != nil {
		n++
	}
	if n > o.records {
		return env.InputErrorf("--out: %s has %d records, the input %d; name another file", o.w.Name(), n, taken)
	}
	return nil
}

// write writes a record.
func (o *output) write(e *env.Env, line []byte) error {
	w := e.Stdout
	if o.w != nil {
		w = o.w
	}
	_, err := w.Write(line)
	return err
}

// close syncs and closes the file of a run that ended with the error failed, and releases its lock.
// It returns an error if the system refuses.
func (o *output) close(failed error) error {
	defer o.lock.Release()
	if o.w == nil {
		return nil
	}
	info, err := o.w.Stat()
	err = errors.Join(err, o.w.Sync(), o.w.Close())
	var refused env.InputError
	if err == nil && info.Size() == 0 && errors.As(failed, &refused) {
		for _, path := range o.created {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}
