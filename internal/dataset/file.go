package dataset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// ReadFile opens the file at path, inflates it if it is compressed, and reads it with read. It
// returns the errors of opening, inflating and reading; the last two begin with the path.
func ReadFile[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	var none T
	f, err := infile.Open(path)
	if err != nil {
		return none, err
	}
	defer f.Close()
	r, err := Inflate(f)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	v, err := read(r)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// A compressed file may inflate to inflateFactor times its bytes plus inflateFree. Data sets stay below
// 20 times; deflate allows 1032, and zstd any number.
const (
	inflateFactor = 128
	inflateFree   = 1 << 20
)

// OpenZstd returns a reader of the content of r, which is compressed with zstd. Programs that read
// zstd set it before they start; the libraries do without.
var OpenZstd func(r io.Reader) (io.Reader, error)

// Magics are the first bytes of compressed files: gzip, zstd, and zstd after a frame that readers
// skip, as pzstd writes it.
var Magics = []string{"\x1f\x8b", "\x28\xb5\x2f\xfd", "\x50\x2a\x4d\x18"}

// suffixes are those of the names of compressed files.
var suffixes = []string{".gz", ".zst"}

// TrimSuffix returns the name of a file without the suffix of a compression.
func TrimSuffix(path string) string {
	for _, suffix := range suffixes {
		if rest, ok := strings.CutSuffix(path, suffix); ok {
			return rest
		}
	}
	return path
}

// findMagic returns the index of the magic that head begins with; -1: it begins with none.
func findMagic(head []byte) int {
	return slices.IndexFunc(Magics, func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) })
}

// IsCompressed reports whether head, the first bytes of a file, are those of a compressed file.
func IsCompressed(head []byte) bool { return findMagic(head) >= 0 }

// Inflate returns a reader of r that inflates it if it begins as gzip or zstd does. It returns an
// error if r fails, if the header is malformed, or if the program does not read zstd. The returned
// reader fails once it has inflated more than 128 times the bytes read plus 1 MiB.
func Inflate(r io.Reader) (io.Reader, error) {
	c := &countingReader{r: r}
	b := bufio.NewReader(c)
	head, err := b.Peek(2)
	if err == nil && head[0] != Magics[0][0] {
		head, err = b.Peek(4)
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch findMagic(head) {
	case -1:
		return b, nil
	case 0:
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		return &inflateReader{name: "gzip", z: z, in: c}, nil
	}
	if OpenZstd == nil {
		return nil, errors.New("zstd: the command reads it, the library does not; inflate the file first")
	}
	z, err := OpenZstd(b)
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &inflateReader{name: "zstd", z: z, in: c}, nil
}

// countingReader counts the bytes read from r.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// inflateReader bounds the bytes that z inflates by the bytes read from in.
type inflateReader struct {
	name string // of the compression
	z    io.Reader
	in   *countingReader
	out  int64
}

func (f *inflateReader) Read(p []byte) (int, error) {
	n, err := f.z.Read(p)
	f.out += int64(n)
	if f.out > inflateFree+inflateFactor*f.in.n {
		return n, fmt.Errorf("%s: %d bytes become %d and more, at most %d times as many are read", f.name, f.in.n, f.out, inflateFactor)
	}
	if err != nil && err != io.EOF && f.name == "zstd" {
		err = fmt.Errorf("zstd: %w", err)
	}
	return n, err
}

// readExactly reads the n bytes of a field. Memory grows with the bytes that arrive. It returns
// an error if r ends early.
func readExactly(r io.Reader, field string, n int) ([]byte, error) {
	var b bytes.Buffer
	got, err := io.CopyN(&b, r, int64(n))
	if err == io.EOF {
		return nil, fmt.Errorf("%s: truncated: %d of %d bytes", field, got, n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return b.Bytes(), nil
}

// checkEnd returns an error if r has more bytes.
func checkEnd(r io.Reader) error {
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return fmt.Errorf("bytes follow the data")
	case err != io.EOF:
		return err
	}
	return nil
}

// lineLimit bounds the bytes of a line.
const lineLimit = 16 << 20

// eachLine calls each with the number, from 1, and the bytes of every line of r without its line
// break. each must not keep the bytes. Errors begin with the line's number.
func eachLine(r io.Reader, each func(n int, line []byte) error) error {
	s := infile.NewLineScanner(r, lineLimit)
	n := 0
	for s.Scan() {
		n++
		if err := each(n, s.Bytes()); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := s.Err(); err == bufio.ErrTooLong {
		return fmt.Errorf("line %d: it has more than %d bytes", n+1, lineLimit)
	} else if err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// ReadBytes returns a reader that reads exactly n bytes. It returns an error if the stream is
// shorter or longer.
func ReadBytes(n int) func(io.Reader) ([]byte, error) {
	return func(r io.Reader) ([]byte, error) {
		b, err := readExactly(r, "data", n)
		if err == nil {
			err = checkEnd(r)
		}
		return b, err
	}
}
