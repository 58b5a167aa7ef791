// Package infile opens files for reading. Open never waits for the other end of a pipe; OpenStream
// does, until a context ends.
package infile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ByteOrderMark may begin a text in UTF-8, for example from a spreadsheet. It is not part of the
// text.
const ByteOrderMark = "\ufeff"

// Open opens a regular file. For anything else it returns an error that names path and kind.
func Open(path string) (*os.File, error) {
	// Opening a device may have side effects, so stat first.
	info, err := statFile(path)
	if err != nil {
		return nil, err
	}
	if err := checkRegular(path, info.Mode()); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	// The path may have been replaced meanwhile.
	if info, err = f.Stat(); err == nil {
		err = checkRegular(path, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile returns the content of a regular file. It returns an error if the file cannot be opened
// or read.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// One spare byte, so that the end is found without growing.
	data := make([]byte, 0, min(info.Size(), maxReserve)+1)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// ReadBounded returns the content of a regular file. It returns an error if the file has more than
// limit bytes, or cannot be opened or read.
func ReadBounded(path string, limit int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, fmt.Errorf("%s: is longer than %d bytes", path, limit)
	}
	return data, nil
}

// ReadJSON decodes a regular file of at most limit bytes, which holds one JSON value, into v. It
// returns the errors of ReadBounded, and those of json.Unmarshal with the path.
func ReadJSON(path string, limit int, v any) error {
	data, err := ReadBounded(path, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// maxReserve bounds the memory that ReadFile reserves by the file's size.
const maxReserve = 1 << 30

// OpenStream opens a file for one sequential read: a regular file, which is returned as *os.File, a
// pipe or a device. When ctx ends, opening a pipe and reading stop waiting and return the cause of
// ctx. OpenStream returns an error for a folder or socket.
func OpenStream(ctx context.Context, path string) (io.ReadCloser, error) {
	info, err := statFile(path)
	if err != nil {
		return nil, err
	}
	mode := info.Mode()
	if mode.IsRegular() {
		return Open(path)
	}
	if mode&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeCharDevice) == 0 {
		return nil, checkRegular(path, mode)
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened)
	go func() {
		f, err := os.Open(path)
		select {
		case done <- opened{f, err}:
		case <-ctx.Done():
			if err == nil {
				f.Close()
			}
		}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, o.err
		}
		return &contextFile{NewReader(ctx, o.f), o.f}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// contextFile is a file whose reads end with a context.
type contextFile struct {
	io.Reader
	f *os.File
}

// Close closes the file.
func (s *contextFile) Close() error { return s.f.Close() }

// NewReader returns a reader of r whose reads end when ctx ends, with its cause. A read of r that
// is waiting then is abandoned, so r must not be used any more.
func NewReader(ctx context.Context, r io.Reader) io.Reader {
	if ctx.Done() == nil {
		return r
	}
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return r
		}
	}
	return &contextReader{ctx: ctx, r: r}
}

// readSize bounds the bytes of one read of a contextReader.
const readSize = 1 << 16

// contextReader reads r in a goroutine per read.
type contextReader struct {
	ctx     context.Context
	r       io.Reader
	buf     []byte
	rest    []byte // bytes of buf to be returned
	err     error  // error after rest
	results chan result
}

// result is the result of one read.
type result struct {
	n   int
	err error
}

// Read reads once from r. It returns the error of r, or the cause of ctx.
func (r *contextReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 && r.err == nil && len(p) > 0 {
		if err := r.ctx.Err(); err != nil {
			r.err = context.Cause(r.ctx)
			return 0, r.err
		}
		if r.buf == nil {
			r.buf, r.results = make([]byte, readSize), make(chan result, 1)
		}
		go func() {
			n, err := r.r.Read(r.buf)
			r.results <- result{n, err}
		}()
		select {
		case x := <-r.results:
			r.rest, r.err = r.buf[:x.n], x.err
		case <-r.ctx.Done():
			r.err = context.Cause(r.ctx)
		}
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) > 0 {
		return n, nil
	}
	return n, r.err
}

// statFile is os.Stat with an error like os.Open.
func statFile(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	var failed *fs.PathError
	if errors.As(err, &failed) {
		failed.Op = "open"
	}
	return info, err
}

// checkRegular returns an error if mode is not the mode of a regular file.
func checkRegular(path string, mode fs.FileMode) error {
	if mode.IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("is %s; a regular file is needed", describeKind(mode))}
}

// CheckStored returns an error if path is a pipe, a device or a socket, whose content may have no
// end. For a missing path it returns nil.
func CheckStored(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return nil
	}
	return fmt.Errorf("%s is %s; a regular file or a folder is needed", path, describeKind(info.Mode()))
}

// describeKind names the kind of a file that is not regular.
func describeKind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&(fs.ModeDevice|fs.ModeCharDevice) != 0:
		return "a device"
	}
	return "an irregular file"
}
