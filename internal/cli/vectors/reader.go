// Package vectors reads and writes files of vectors: .npy, .safetensors and JSON lines, with a
// vector in each row or line.
package vectors

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// ArrayName is the name of the array in a .safetensors file of vectors.
const ArrayName = "vectors"

// Field is the field of a record that holds its vector.
const Field = "vector"

// maxWidth bounds the numbers of a vector, and maxLine the bytes of a record.
const (
	maxWidth = 1 << 20
	maxLine  = 1 << 26
)

// Reader reads the vectors of a file in order.
type Reader interface {
	// Width returns how many numbers a vector has.
	Width() int
	// Rows returns the number of vectors, or -1 if it is not known.
	Rows() int64
	// ReadRows overwrites dst [rows·Width] with the next vectors and returns their
	// number, 0 at the end. A record without a vector is a row of zeros. It returns an
	// error if reading fails or a vector is malformed or not finite.
	ReadRows(dst []float32) (int, error)
	// Record returns the JSON object of a row of the last ReadRows, or nil if the file has only
	// vectors.
	Record(row int) []byte
	Close() error
}

// Open opens a file of vectors: .npy or .safetensors with an array [rows,width], by
// their extension, or JSON lines with the field vector. It returns an error if the file
// cannot be read or holds no vectors.
func Open(e *env.Env, path string) (Reader, error) {
	var r Reader
	var err error
	switch strings.ToLower(filepath.Ext(path)) {
	case ".npy":
		r, err = openNPY(path)
	case ".safetensors":
		r, err = openSafetensors(path)
	case ".npz":
		err = errors.New("is an .npz; a file of vectors is .npy, .safetensors or JSON lines")
	default:
		r, err = openRecords(e, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// stored reads the rows of an array.
type stored struct {
	io.Closer
	path           string
	array          *array.StoredArray
	width          int
	rows, readRows int64
}

func openNPY(path string) (Reader, error) {
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	a, err := array.OpenStoredNPY(ArrayName, f, info.Size())
	if err != nil {
		f.Close()
		return nil, err
	}
	return newStored(path, a, f)
}

func openSafetensors(path string) (Reader, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	names := f.Names()
	name := ArrayName
	if !slices.Contains(names, name) && len(names) == 1 {
		name = names[0]
	}
	for _, other := range names {
		if other != name && !(other == digestsName && IsIndex(f)) {
			f.Close()
			return nil, fmt.Errorf("%s: no array of this name is read; a file of vectors has one array, %s", display.Escape(other), ArrayName)
		}
	}
	a, err := f.OpenStored(name)
	if err != nil {
		f.Close()
		return nil, err
	}
	return newStored(path, a, f)
}

func newStored(path string, a *array.StoredArray, c io.Closer) (Reader, error) {
	if len(a.Shape) != 2 || a.Shape[1] < 1 || a.Shape[1] > maxWidth {
		c.Close()
		return nil, fmt.Errorf("%s: has the shape %v; [rows,width] is needed, with a width from 1 to %d", a.Name, a.Shape, maxWidth)
	}
	return &stored{Closer: c, path: path, array: a, width: a.Shape[1], rows: int64(a.Shape[0])}, nil
}

func (s *stored) Width() int        { return s.width }
func (s *stored) Rows() int64       { return s.rows }
func (s *stored) Record(int) []byte { return nil }

func (s *stored) ReadRows(dst []float32) (int, error) {
	n := int(min(int64(len(dst)/s.width), s.rows-s.readRows))
	dst = dst[:n*s.width]
	if err := array.ReadFloats(s.array, dst, s.readRows*int64(s.width)); err != nil {
		return 0, fmt.Errorf("%s: %w", s.path, err)
	}
	for i, x := range dst {
		if x-x != 0 {
			return 0, fmt.Errorf("%s: row %d, element %d is %v", s.path, s.readRows+int64(i/s.width), i%s.width, x)
		}
	}
	s.readRows += int64(n)
	return n, nil
}

// recordReader reads JSON lines.
type recordReader struct {
	io.Closer
	path    string
	r       *bufio.Reader
	width   int
	line    int64
	records [][]byte
	leading [][]byte // records before next that have no vector and are not taken
	next    []byte   // a record that is read and not taken; nil: none
	members map[string]json.RawMessage
	vector  []float32
}

func openRecords(e *env.Env, path string) (Reader, error) {
	in, err := texts.OpenText(e, path)
	if err != nil {
		return nil, err
	}
	r := &recordReader{Closer: in, path: path, r: bufio.NewReaderSize(infile.NewRecords(in), 1<<16)}
	// Records of empty texts may come first; they are kept until the width is known.
	for r.width == 0 {
		record, err := r.readRecord()
		if err == nil && record == nil {
			err = errors.New("holds no record with a vector")
		}
		if err != nil {
			in.Close()
			return nil, err
		}
		if r.width == 0 {
			r.leading = append(r.leading, record)
		} else {
			r.next = record
		}
	}
	return r, nil
}

// readRecord returns the next record and sets the vector, nil for null; nil at the end.
func (r *recordReader) readRecord() ([]byte, error) {
	for {
		line, err := readLine(r.r)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil, nil
			}
			return nil, fmt.Errorf("line %d: %w", r.line+1, err)
		}
		r.line++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		clear(r.members)
		if err := json.Unmarshal(line, &r.members); err != nil {
			return nil, fmt.Errorf("line %d: is not a JSON object: %.60q", r.line, line)
		}
		member, ok := r.members[Field]
		if !ok {
			return nil, fmt.Errorf("line %d: has no field %q", r.line, Field)
		}
		r.vector = nil
		null := []byte("null")
		if bytes.Equal(member, null) {
			return line, nil
		}
		var vector []float32
		if err := json.Unmarshal(member, &vector); err != nil {
			return nil, fmt.Errorf("line %d: %s: is no list of numbers: %.60s", r.line, Field, member)
		}
		if bytes.Contains(member, null) { // which Unmarshal reads as 0
			return nil, fmt.Errorf("line %d: %s: has null among its numbers", r.line, Field)
		}
		if n := len(vector); n == 0 || n > maxWidth || r.width > 0 && n != r.width {
			return nil, fmt.Errorf("line %d: the vector has %d numbers, the one before %d", r.line, n, r.width)
		}
		r.vector, r.width = vector, len(vector)
		return line, nil
	}
}

// readLine returns the next line without sharing memory. It returns an error for a line
// of more than maxLine bytes, and io.EOF after the last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("is longer than %d bytes", maxLine)
		}
		line = append(line, part...)
		switch {
		case err == nil || errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func (r *recordReader) Width() int            { return r.width }
func (r *recordReader) Rows() int64           { return -1 }
func (r *recordReader) Record(row int) []byte { return r.records[row] }

func (r *recordReader) ReadRows(dst []float32) (int, error) {
	r.records = r.records[:0:0]
	n := 0
	for ; len(dst) >= r.width; n++ {
		row := dst[:r.width]
		switch {
		case len(r.leading) > 0:
			r.records, r.leading = append(r.records, r.leading[0]), r.leading[1:]
			clear(row)
		case r.next != nil:
			r.records = append(r.records, r.next)
			copy(row, r.vector)
			r.next = nil
		default:
			record, err := r.readRecord()
			if err != nil {
				return 0, fmt.Errorf("%s: %w", r.path, err)
			}
			if record == nil {
				return n, nil
			}
			r.records = append(r.records, record)
			clear(row)
			copy(row, r.vector)
		}
		dst = dst[r.width:]
	}
	return n, nil
}
