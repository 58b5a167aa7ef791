package stream

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/tensor"
)

// rawSource is a Source that reads little-endian numbers without a header, token by token:
// queries [H,D], keys [Hkv,D] and values [Hkv,Dv]. B is 1, and every token has a query.
type rawSource struct {
	shape  Shape
	record int // numbers per token
	ids    []comm.Field

	file      *os.File
	pipe      io.Reader
	nextToken int64  // number of the next token of the pipe
	sum       uint32 // checksum of earlier tokens

	inputCheck
}

// newRawSource returns a source without input. It returns an error if the shape is
// invalid.
func newRawSource(s Shape) (*rawSource, error) {
	if s.B == 0 {
		s.B = 1
	}
	if s.B != 1 {
		return nil, fmt.Errorf("shape: B is %d, raw numbers have 1", s.B)
	}
	r := &rawSource{shape: s}
	r.shape.N, r.shape.M = -1, -1
	if err := r.shape.validate(); err != nil {
		return nil, err
	}
	r.record = s.H*s.D + s.Hkv*(s.D+s.Dv)
	return r, nil
}

// NewRawFileSource returns a source for a file of little-endian numbers without a header, token by
// token: queries [H,D], keys [Hkv,D] and values [Hkv,Dv]. B is 1. The caller closes f after use. The size of the
// file gives N and M. It returns an error if the shape is invalid or the file ends within a
// token.
func NewRawFileSource(f *os.File, s Shape) (Source, error) {
	r, err := newRawSource(s)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	token := int64(r.record) * elementSize()
	if rest := info.Size() % token; rest != 0 {
		return nil, fmt.Errorf("%s: has %d bytes, %d more than whole tokens of %d", f.Name(), info.Size(), rest, token)
	}
	r.file = f
	r.shape.N = info.Size() / token
	r.shape.M = r.shape.N
	if r.ids, err = identifyFile("file", f); err != nil {
		return nil, err
	}
	return r, nil
}

// NewPipeSource returns a source for a pipe of tokens as NewRawFileSource reads them, once. A resumed run
// needs the same tokens from the start: it skips the earlier ones and compares their checksum.
// It returns an error if the shape is invalid.
func NewPipeSource(p io.Reader, s Shape) (Source, error) {
	r, err := newRawSource(s)
	if err != nil {
		return nil, err
	}
	r.pipe = p
	return r, nil
}

// Shape returns the shape of the stream; N and M are -1 for a pipe.
func (r *rawSource) Shape() Shape { return r.shape }

// HasDecay returns false.
func (r *rawSource) HasDecay() bool { return false }

// IsSequential reports whether the source is a pipe.
func (r *rawSource) IsSequential() bool { return r.pipe != nil }

// IsComputed returns false: windows are read while attention is computed.
func (r *rawSource) IsComputed() bool { return false }

// Identity returns the size, time and checksum of the file, or nil for a pipe.
func (r *rawSource) Identity() []comm.Field { return r.ids }

// NewWindow returns a window with room for n tokens.
func (r *rawSource) NewWindow(n int, want Role) *Window {
	s, w := &r.shape, &Window{role: want, records: make([]tensor.Float, n*r.record)}
	w.q = tensor.Split(w.records, 1, n, r.record, 0, s.H, s.D)
	w.k = tensor.Split(w.records, 1, n, r.record, s.H*s.D, s.Hkv, s.D)
	w.v = tensor.Split(w.records, 1, n, r.record, s.H*s.D+s.Hkv*s.D, s.Hkv, s.Dv)
	return w
}

// FillWindow overwrites w with up to n tokens, queries from query on and keys from key
// on. It returns an error if the input ends within a token, or if a number is not finite.
func (r *rawSource) FillWindow(w *Window, query, key int64, n int) (int, error) {
	at := query
	if w.role == Keys {
		at = key
	}
	records := w.records[:n*r.record]
	if r.file != nil {
		b, done := rawBytes(records)
		if k, err := r.file.ReadAt(b, at*int64(r.record)*elementSize()); k < len(b) {
			return 0, fmt.Errorf("%s: truncated within tokens %d to %d: %w", r.file.Name(), at, at+int64(n)-1, err)
		}
		done()
	} else {
		var err error
		if n, err = r.readPipe(records); err != nil {
			return 0, err
		}
		w.Input = r.sum
	}
	w.SetTokens(n)
	if !r.allowsNonFinite {
		for _, x := range []struct {
			name string
			x    tensor.Heads
		}{{"q", w.q}, {"k", w.k}, {"v", w.v}} {
			if err := checkFinite(x.name, x.x.Tokens(0, n), at); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// rawBytes returns memory for the bytes of x, and a function that decodes them into x.
func rawBytes(x []tensor.Float) ([]byte, func()) {
	if b := array.FloatBytes(x); b != nil || len(x) == 0 {
		return b, func() {}
	}
	b := make([]byte, len(x)*int(elementSize()))
	return b, func() { binary.Decode(b, binary.LittleEndian, x) } // fails for types of no fixed size alone
}

// readPipe fills records from the pipe and returns the number of tokens.
func (r *rawSource) readPipe(records []tensor.Float) (int, error) {
	b, done := rawBytes(records)
	// Only io.EOF of the pipe is its end: a transport that is cut returns io.ErrUnexpectedEOF, as io.ReadFull does.
	k, err := 0, error(nil)
	for k < len(b) && err == nil {
		var read int
		read, err = r.pipe.Read(b[k:])
		k += read
	}
	token := r.record * int(elementSize())
	n := k / token
	switch {
	case k == len(b): // the next call returns the error
	case err == io.EOF:
		if rest := k % token; rest != 0 {
			return 0, fault.Mark(fault.ErrInput, fmt.Errorf("input: ends after %d of the %d bytes of token %d", rest, token, r.nextToken+int64(n)))
		}
	case err != nil:
		return 0, fmt.Errorf("input: token %d: %w", r.nextToken+int64(n), err)
	}
	r.sum = crc32.Update(r.sum, castagnoli, b[:n*token])
	r.nextToken += int64(n)
	done()
	return n, nil
}

// Skip reads past the first n tokens of a pipe, which an earlier run has processed. It returns
// an error if there are fewer, or if their checksum is not sum.
func (r *rawSource) Skip(n int64, sum uint32) error {
	if r.pipe == nil {
		return nil
	}
	records := make([]tensor.Float, r.record*256)
	for r.nextToken < n {
		want := min(256, n-r.nextToken)
		got, err := r.readPipe(records[:want*int64(r.record)])
		if err != nil {
			return err
		}
		if int64(got) < want {
			return otherInput("has %d tokens, the checkpoint is of %d", r.nextToken, n)
		}
	}
	if r.sum != sum {
		return otherInput("checksum of the first %d tokens is %08x, the checkpoint has %08x", n, r.sum, sum)
	}
	return nil
}
