package texts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
)

// OpenText opens a text as OpenBytes opens a file. Gzip and zstd are inflated. A text that begins with a byte
// order mark of UTF-16 is decoded; the mark, also of UTF-8, is dropped. It returns an error if the file cannot be opened.
func OpenText(e *env.Env, path string) (io.ReadCloser, error) {
	in, err := OpenBytes(e, path)
	if err != nil {
		return nil, err
	}
	return &textReader{Closer: in, path: path, bytes: in}, nil
}

// OpenBytes opens a file or standard input. An interrupt ends a waiting Read and the
// opening of a named pipe. It returns an error if the file cannot be opened.
func OpenBytes(e *env.Env, path string) (io.ReadCloser, error) {
	if IsStandard(path) {
		return io.NopCloser(infile.NewReader(e.Context, e.Stdin)), nil
	}
	return infile.OpenStream(e.Context, path)
}

// IsStandard reports whether path is standard input.
func IsStandard(path string) bool { return path == "" || path == "-" }

// textReader reads a text. Its first Read waits for no more bytes than it needs.
type textReader struct {
	io.Closer
	path       string
	bytes      io.Reader
	text       io.Reader // nil: none of it is read
	isInflated bool
}

// Read reads the text. It returns the errors of the file, and an input error with its path if what is
// compressed, or UTF-16, is damaged.
func (t *textReader) Read(p []byte) (int, error) {
	if t.text == nil {
		t.begin()
	}
	n, err := t.text.Read(p)
	return n, t.wrap(err)
}

// wrap returns the error of a Read.
func (t *textReader) wrap(err error) error {
	var malformed infile.FormatError
	if err == nil || err == io.EOF || !t.isInflated && !errors.As(err, &malformed) {
		return err
	}
	if IsStandard(t.path) {
		return env.MarkInput(err)
	}
	return env.InputErrorf("%s: %w", t.path, err)
}

// begin reads the first bytes. It keeps an error for each later Read.
func (t *textReader) begin() {
	b := bufio.NewReaderSize(t.bytes, 1<<16)
	is, err := hasMagic(b)
	if is {
		t.isInflated = true
		z, err := dataset.Inflate(b)
		if err != nil {
			t.text = failing{err}
			return
		}
		b = bufio.NewReaderSize(z, 1<<16)
	}
	t.text = infile.NewText(b)
	if err != nil { // a terminal ends once, so the end is kept
		rest, _ := b.Peek(b.Buffered())
		t.text = infile.NewText(io.MultiReader(bytes.NewReader(rest), failing{err}))
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// hasMagic reports whether the bytes that come next begin as compressed ones do. It waits for a byte only
// if the bytes before it agree with a magic. It returns the error of reading one.
func hasMagic(b *bufio.Reader) (bool, error) {
	for n := 1; ; n++ {
		next, err := b.Peek(n)
		if err != nil {
			return false, err
		}
		if dataset.IsCompressed(next) {
			return true, nil
		}
		if !slices.ContainsFunc(dataset.Magics, func(magic string) bool { return strings.HasPrefix(magic, string(next)) }) {
			return false, nil
		}
	}
}

// TextSize returns the size in bytes of a text in a regular file, without its byte order mark. It
// returns -1 if there is no such file, or if it is compressed or UTF-16.
func TextSize(e *env.Env, path string) int64 {
	f, ok := e.Stdin.(*os.File)
	if !IsStandard(path) {
		opened, err := infile.Open(path)
		if err != nil {
			return -1
		}
		defer opened.Close()
		f, ok = opened, true
	}
	if !ok {
		return -1
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	head := make([]byte, infile.HeadBytes)
	n, _ := f.ReadAt(head, 0)
	encoding, mark := infile.FindEncoding(head[:n])
	if dataset.IsCompressed(head[:n]) || encoding != infile.UTF8 {
		return -1
	}
	return info.Size() - int64(mark)
}
