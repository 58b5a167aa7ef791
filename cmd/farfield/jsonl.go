package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// jsonFilter turns lines of JSON objects into the same with fields added, one after
// the other: what becomes of a record depends on no other.
type jsonFilter struct {
	Field string `placeholder:"NAME" help:"Field of a record that holds its text (text)."`
	Skip  int64  `placeholder:"N" help:"Leave out the first N records, which an earlier run has done."`
	Shard string `placeholder:"I/N" help:"Take records I, I+N, I+2N, ... alone, counted from 0, as one of N jobs beside each other."`
}

// check reports flags that mean nothing, or what they cannot be.
func (f *jsonFilter) check(used bool) error {
	if !used && (f.Field != "" || f.Skip != 0 || f.Shard != "") {
		return inputf("--field, --skip, --shard: need --jsonl")
	}
	if f.Skip < 0 {
		return inputf("--skip: %d is negative", f.Skip)
	}
	_, _, err := f.shard()
	return err
}

// shard returns which records are taken: those with number % n == i.
func (f *jsonFilter) shard() (i, n int64, err error) {
	if f.Shard == "" {
		return 0, 1, nil
	}
	var rest string
	if k, _ := fmt.Sscanf(f.Shard+" ", "%d/%d%s", &i, &n, &rest); k != 2 || n < 1 || i < 0 || i >= n {
		return 0, 0, inputf("--shard: %q is not I/N with 0 ≤ I < N", f.Shard)
	}
	return i, n, nil
}

// longestRecord is the bytes of a line of JSON.
const longestRecord = 1 << 26

// jsonField is one that is added to a record.
type jsonField struct {
	name  string
	value any
}

// run adds what fields gives for the text of each record. Empty lines are none.
func (f *jsonFilter) run(e *env, in io.Reader, fields func(text string) ([]jsonField, error)) error {
	field := f.Field
	if field == "" {
		field = "text"
	}
	first, of, err := f.shard()
	if err != nil {
		return err
	}
	s := bufio.NewScanner(in)
	s.Buffer(nil, longestRecord)
	out := bufio.NewWriter(e.stdout)
	var taken int64
	number, lineNumber := int64(-1), 0
	for s.Scan() {
		if err := e.ctx.Err(); err != nil {
			if err := out.Flush(); err != nil {
				return err
			}
			return interruption{err, fmt.Sprintf("stopped; --skip %d goes on", max(taken, f.Skip))}
		}
		lineNumber++
		record := bytes.TrimSpace(s.Bytes())
		if len(record) == 0 {
			continue
		}
		if number++; number%of != first {
			continue
		}
		if taken++; taken <= f.Skip {
			continue
		}
		line, err := withFields(record, field, fields)
		if err != nil {
			if flushed := out.Flush(); flushed != nil {
				return flushed
			}
			return inputf("line %d: %w", lineNumber, err)
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
		// A record is whole or not there, whenever the program ends.
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return inputf("after line %d: %w", lineNumber, err)
	}
	return nil
}

// withFields is a record with what is added to it, and the end of a line.
func withFields(record []byte, field string, fields func(string) ([]jsonField, error)) ([]byte, error) {
	var known map[string]json.RawMessage
	if err := json.Unmarshal(record, &known); err != nil || known == nil {
		return nil, fmt.Errorf("is not a JSON object: %.60q", record)
	}
	raw, ok := known[field]
	if !ok {
		return nil, fmt.Errorf("has no field %q", field)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("%s: is not a string: %.60s", field, raw)
	}
	added, err := fields(text)
	if err != nil {
		return nil, err
	}
	line := append([]byte{}, record[:len(record)-1]...)
	for _, x := range added {
		if _, ok := known[x.name]; ok {
			return nil, fmt.Errorf("%s: is there already", x.name)
		}
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		line = fmt.Appendf(line, ",%q:%s", x.name, value)
	}
	return append(line, "}\n"...), nil
}
