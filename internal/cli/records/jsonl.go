// Package records adds fields to JSON records, one in each line, in bounded memory.
package records

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/strict"
)

// Filter adds fields to JSON records, one in each line. The fields of a record do not depend on
// other records.
type Filter struct {
	Field string `placeholder:"NAME" help:"Field of a record that holds its text (text)."`
	Skip  int64  `placeholder:"N" help:"Skip the first N records, which an earlier run has done."`
	Shard string `placeholder:"I/N" help:"Take records I, I+N, I+2N, ... from 0, as one of N jobs."`
	Out   string `short:"o" placeholder:"FILE" help:"Write results to a file; the same command continues it."`

	bound []Setting // settings of the verb
}

// Check returns an error if a flag has no effect or an invalid value. used says whether records are
// filtered.
func (f *Filter) Check(used bool) error {
	if !used && (f.Field != "" || f.Skip != 0 || f.Shard != "" || f.Out != "") {
		return env.InputErrorf("--field, --skip, --shard, --out: need --jsonl")
	}
	if f.Skip < 0 {
		return env.InputErrorf("--skip: %d is negative", f.Skip)
	}
	_, _, err := f.shard()
	return err
}

// FieldName returns the name of the field that holds a text.
func (f *Filter) FieldName() string {
	if f.Field == "" {
		return "text"
	}
	return f.Field
}

// shard returns which records are taken: those with number % n == i.
func (f *Filter) shard() (i, n int64, err error) {
	if f.Shard == "" {
		return 0, 1, nil
	}
	var rest string
	if k, _ := fmt.Sscanf(f.Shard+" ", "%d/%d%s", &i, &n, &rest); k != 2 || n < 1 || i < 0 || i >= n {
		return 0, 0, env.InputErrorf("--shard: %q is not I/N with 0 ≤ I < N", f.Shard)
	}
	return i, n, nil
}

const (
	longestRecord = 1 << 26 // bytes of a line
	recordBytes   = 1 << 14 // of records that are computed together, and
	recordsLeast  = 16      // their number, unless fewer are there
	batchFactor   = 16      // times more of both for a BatchFunc
)

// Field is a field that is added to a record.
type Field struct {
	Name  string
	Value any
}

// Object is a JSON object with its fields in order. If two fields have one name, the last one
// counts.
type Object []Field

// MarshalJSON returns the object.
func (o Object) MarshalJSON() ([]byte, error) {
	last := map[string]int{}
	for i, f := range o {
		last[f.Name] = i
	}
	b := []byte{'{'}
	for i, f := range o {
		if last[f.Name] != i {
			continue
		}
		name, err := atomicfile.MarshalJSON(f.Name)
		if err != nil {
			return nil, err
		}
		value, err := atomicfile.MarshalJSON(f.Value)
		if err != nil {
			return nil, err
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// A textFunc returns the fields of a text.
type TextFunc func(text string) ([]Field, error)

// PairFunc returns the fields for a text and its pair.
type PairFunc func(text, pair string) ([]Field, error)

// PairName is the field that holds the second text of a pair.
const PairName = "pair"

// BatchFunc returns the fields for each of several texts. Its error may be an *inference.TextError.
type BatchFunc func(texts []string) ([][]Field, error)

// FilterFile adds fields to each record of in; each of the functions computes some from the
// record's text. Empty lines are skipped. The functions run concurrently. FilterFile returns an
// error if a record is invalid, if a function fails, or if reading or writing does.
func (f *Filter) FilterFile(e *env.Env, in *texts.JoinedFiles, fields ...TextFunc) error {
	var list []PairFunc
	for _, text := range fields {
		list = append(list, func(s, _ string) ([]Field, error) { return text(s) })
	}
	return f.filter(e, in, infile.NewRecords(in), &recordRun{record: ReadRecord, fields: list, lines: recordsLeast, bytes: recordBytes})
}

// FilterPairs is FilterFile for records with two texts. It returns an error where FilterFile does.
func (f *Filter) FilterPairs(e *env.Env, in *texts.JoinedFiles, fields PairFunc) error {
	return f.filter(e, in, infile.NewRecords(in), &recordRun{record: ReadRecord, pairs: true, fields: []PairFunc{fields}, lines: recordsLeast, bytes: recordBytes})
}

// LineFunc returns the record of a line, and its text. If text is nil, it is a field of the record.
// A line without a record is skipped.
type LineFunc func(line []byte) (record []byte, text *string)

// ReadRecord is the LineFunc for lines that are records.
func ReadRecord(line []byte) (record []byte, text *string) { return bytes.TrimSpace(line), nil }

// ReadText is the LineFunc for lines that are texts: it makes a record with the text as a field. A
// text that is not UTF-8 has no record, which is an error.
func ReadText(line []byte) (record []byte, text *string) {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if !utf8.Valid(line) {
		return line, nil
	}
	plain := string(line)
	value, _ := atomicfile.MarshalJSON(plain) // a string has no error
	return fmt.Appendf(nil, `{"text":%s}`, value), &plain
}

// FilterBatches filters the lines of in for a function of several texts. in reads files. If take is
// not nil, it gets the fields in place of the output. It returns an error where FilterFile does.
func (f *Filter) FilterBatches(e *env.Env, files *texts.JoinedFiles, in io.Reader, record LineFunc, take func([]Field), batch BatchFunc) error {
	return f.filter(e, files, in, &recordRun{record: record, take: take, batch: batch, lines: batchFactor * recordsLeast, bytes: batchFactor * recordBytes})
}

// filter runs r, which has its functions, on the lines of in, which reads files.
func (f *Filter) filter(e *env.Env, files *texts.JoinedFiles, in io.Reader, r *recordRun) (err error) {
	out, err := f.open(files.Paths())
	if err != nil {
		return err
	}
	defer func() {
		if failed := out.close(err); err == nil {
			err = failed
		}
	}()
	r.filter, r.e, r.out, r.files, r.number = f, e, out, files, -1
	r.records, _ = in.(*infile.Records)
	r.in = &texts.LineSource{Reader: in, Longest: longestRecord}
	r.progress = progress.NewRecords(e, files.Size(), out.w == nil && r.take == nil)
	if r.shard, r.shards, err = f.shard(); err != nil {
		return err
	}
	defer r.progress.Clear()
	err = r.all()
	if err != nil && e.Context.Err() != nil && errors.Is(err, e.Context.Err()) {
		how := fmt.Sprintf("--skip %d goes on", max(r.recordCount, f.Skip))
		switch {
		case r.take != nil:
			how = "nothing is written, the same command begins anew"
		case f.Out != "":
			how = "the same command goes on"
		}
		return env.Interruption{Err: err, Text: fmt.Sprintf("stopped after %d records; %s", max(r.recordCount, f.Skip), how)}
	}
	return err
}

// recordRun is a run of a filter.
type recordRun struct {
	filter   *Filter
	e        *env.Env
	files    *texts.JoinedFiles
	in       *texts.LineSource // of files
	records  *infile.Records   // of files; nil: lines are texts
	record   LineFunc
	take     func([]Field)
	pairs    bool // records have a second text
	fields   []PairFunc
	batch    BatchFunc // nil: fields
	lines    int       // that are computed together, and
	bytes    int       // their bytes
	out      *output
	progress *progress.Records

	shard, shards int64 // of the shard
	number        int64 // of the last record, from 0
	readLines     int64
	recordCount   int64 // records of the shard, written or skipped
}

// all goes through the input.
func (r *recordRun) all() error {
	var lines [][]byte
	for {
		if err := r.e.Context.Err(); err != nil {
			return err
		}
		var err error
		lines, err = r.in.NextLines(lines[:0], r.lines, r.bytes)
		if errors.Is(err, io.EOF) {
			last := r.in.Rest()
			if last == nil {
				return r.out.end(max(r.recordCount-r.filter.Skip, 0))
			}
			lines = append(lines, last)
		} else if err != nil {
			return env.InputErrorf("after %s: %w", r.place(r.readLines), err)
		}
		if err := r.writeRecords(lines); err != nil {
			return err
		}
	}
}

// result is the output of a record.
type result struct {
	record  []byte
	line    int64 // of the input
	size    int64 // bytes of the line
	members map[string]json.RawMessage
	text    *string
	fields  []Field
	out     []byte
	err     error
}

// writeRecords writes the results of lines, in their order.
func (r *recordRun) writeRecords(lines [][]byte) error {
	var batch []result
	var failed error
	for _, line := range lines {
		r.readLines++
		if len(line) >= longestRecord && line[len(line)-1] != '\n' {
			failed = env.InputErrorf("%s: is longer than %d bytes", r.place(r.readLines), longestRecord)
			break
		}
		size := int64(len(line))
		record, text := r.record(line)
		if len(record) == 0 {
			r.progress.Read += size
			continue
		}
		if r.number++; r.number%r.shards != r.shard {
			r.progress.Read += size
			continue
		}
		if r.recordCount++; r.recordCount <= r.filter.Skip {
			r.progress.Read += size
			r.progress.Skip()
			continue
		}
		if r.out.results != nil {
			if known, err := r.out.passes(record, r.place(r.readLines)); err != nil {
				return err
			} else if known {
				r.progress.Read += size
				r.progress.Skip()
				continue
			}
		}
		batch = append(batch, result{record: record, text: text, line: r.readLines, size: size})
	}
	r.recordCount -= int64(len(batch)) // until they are written
	if r.batch != nil {
		r.computeBatch(batch)
	} else {
		r.compute(batch, r.fields)
	}
	for i := range batch {
		x := &batch[i]
		if x.err != nil {
			if r.e.Context.Err() != nil && errors.Is(x.err, r.e.Context.Err()) {
				return x.err
			}
			return env.InputErrorf("%s: %w", r.place(x.line), x.err)
		}
		if r.take != nil {
			r.take(x.fields)
		} else if err := r.out.write(r.e, x.out); err != nil { // whole, whenever the program ends
			return err
		}
		r.recordCount++
		r.progress.Read += x.size
	}
	r.progress.Show(r.recordCount) // of all that were computed together, in whose time
	return failed
}

// compute fills in the results of records.
func (r *recordRun) compute(batch []result, fields []PairFunc) {
	free := make(chan PairFunc, len(fields))
	for _, f := range fields {
		free <- f
	}
	one := func(i int) {
		x := &batch[i]
		if x.err = r.e.Context.Err(); x.err != nil {
			return
		}
		f := <-free
		defer func() { free <- f }()
		x.fill(r, f)
	}
	if len(fields) > 1 {
		par.RunParts(len(batch), one)
		return
	}
	for i := range batch {
		if one(i); batch[i].err != nil {
			return
		}
	}
}

// computeBatch fills in the results of records by one call.
func (r *recordRun) computeBatch(batch []result) {
	texts := make([]string, len(batch))
	for i := range batch {
		if batch[i].err = batch[i].parse(r.filter.FieldName()); batch[i].err != nil {
			batch, texts = batch[:i+1], texts[:i] // records before it are printed
			break
		}
		texts[i] = *batch[i].text
	}
	if len(texts) == 0 {
		return
	}
	list, err := r.batch(texts)
	if err != nil {
		at := 0
		var one *inference.TextError
		if errors.As(err, &one) {
			at = one.Text
		}
		batch[at].err = err
		if at == 0 {
			return
		}
		// The records before it are computed alone.
		if list, err = r.batch(texts[:at]); err != nil {
			batch[0].err = err
			return
		}
	}
	for i, fields := range list {
		batch[i].fields = fields
		batch[i].join(r.take == nil)
	}
}

// fill computes the fields of the record's text, and the record with them unless they are taken.
func (x *result) fill(r *recordRun, fields PairFunc) {
	if x.err = x.parse(r.filter.FieldName()); x.err != nil {
		return
	}
	pair := new(string)
	if r.pairs {
		if pair, x.err = x.member(PairName); x.err != nil {
			return
		}
	}
	if x.fields, x.err = fields(*x.text, *pair); x.err == nil {
		x.join(r.take == nil)
	}
}

// parse reads the record's text, unless it is known.
func (x *result) parse(field string) (err error) {
	if x.text != nil {
		return nil
	}
	if !utf8.Valid(x.record) { // JSON would get U+FFFD
		return fmt.Errorf("is not UTF-8: %.60q", x.record)
	}
	if err := json.Unmarshal(x.record, &x.members); err != nil || x.members == nil {
		return fmt.Errorf("is not a JSON object: %.60q", x.record)
	}
	x.text, err = x.member(field)
	return err
}

// member returns a member of the record.
func (x *result) member(field string) (text *string, err error) {
	raw, ok := x.members[field]
	if !ok {
		return nil, fmt.Errorf("has no field %q", field)
	}
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		return nil, fmt.Errorf("%s: is not a string: %.60s", field, raw)
	}
	if strict.HasHalfPair(raw) {
		return nil, fmt.Errorf("%s: has half a surrogate pair: %.60s", field, raw)
	}
	return text, nil
}

// join sets out to the record with its fields, if join is set.
func (x *result) join(join bool) {
	if !join {
		return
	}
	x.out = append(x.out, opened(x.record)...)
	for _, f := range x.fields {
		if _, ok := x.members[f.Name]; ok {
			x.err = fmt.Errorf("%s: is there already", f.Name)
			return
		}
		value, err := atomicfile.MarshalJSON(f.Value)
		if err != nil {
			x.err = err
			return
		}
		x.out = fmt.Appendf(x.out, ",%q:%s", f.Name, value)
	}
	x.out = append(x.out, "}\n"...)
}

// opened is an object without its end, to which fields are added.
func opened(record []byte) []byte { return record[:len(record)-1] }

// IsFirstRecord reports whether the first line of r that is not empty is a JSON object with the
// field, or the beginning of an array of such objects. It consumes nothing of r.
func IsFirstRecord(r *bufio.Reader, field string) bool {
	const blanks = " \t\r\n" // of JSON
	for n := 1; ; n = r.Buffered() + 1 {
		_, err := r.Peek(n)
		line, _ := r.Peek(r.Buffered())
		start := bytes.TrimLeft(line, blanks)
		if elements, isArray := bytes.CutPrefix(start, []byte("[")); isArray {
			var known map[string]json.RawMessage
			failed := json.NewDecoder(bytes.NewReader(elements)).Decode(&known)
			if err == nil && (errors.Is(failed, io.EOF) || errors.Is(failed, io.ErrUnexpectedEOF)) {
				continue
			}
			if failed == nil {
				_, ok := known[field]
				return ok
			}
			start = bytes.TrimLeft(elements, blanks)
		}
		first, _, whole := bytes.Cut(start, []byte("\n"))
		if !whole && err == nil {
			continue
		}
		var known map[string]json.RawMessage
		if json.Unmarshal(first, &known) != nil {
			// A record may be longer than the buffer.
			inner, isObject := bytes.CutPrefix(first, []byte("{"))
			return errors.Is(err, bufio.ErrBufferFull) && isObject && bytes.HasPrefix(bytes.TrimLeft(inner, blanks), []byte(`"`))
		}
		_, ok := known[field]
		return ok
	}
}

// Text returns a field of a record that is a string. It returns an error if the record is no JSON
// object in UTF-8, or has no such field.
func Text(record []byte, field string) (string, error) {
	x := result{record: record}
	if err := x.parse(field); err != nil {
		return "", err
	}
	return *x.text, nil
}

// place returns file and line of a line of the input, or in JSON arrays the number of the element
// of all files.
func (r *recordRun) place(line int64) string { return Place(r.files, r.records, line) }

// Place returns the name of the file and the number of a line that records has read from files.
// records may be nil.
func Place(files *texts.JoinedFiles, records *infile.Records, line int64) string {
	if records == nil || !records.HasArray() {
		return files.Place(line)
	}
	place := fmt.Sprintf("record %d", line)
	if paths := files.Paths(); len(paths) == 1 && !texts.IsStandard(paths[0]) {
		return paths[0] + ": " + place
	}
	return place
}
