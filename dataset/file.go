package dataset

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/infile"
)

// File reads the file of that path, plain or gzip, with one of the readers of
// this package, or any other. Errors begin with the path.
func File[T any](path string, read func(io.Reader) (T, error)) (T, error) {
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

// A file of gzip may become inflateFactor times its bytes, and inflateFree more.
// Data sets stay below 20 times; deflate could give 1032.
const (
	inflateFactor = 128
	inflateFree   = 1 << 20
)

// Inflate returns what r holds: its bytes, or, if these begin as gzip does, what
// they are inflated to, which ends with an error where it is more than 128 times
// the bytes that were read, and 1 MiB more.
func Inflate(r io.Reader) (io.Reader, error) {
	c := &counter{r: r}
	b := bufio.NewReader(c)
	magic, err := b.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, err
	}
	return &inflated{z: z, in: c}, nil
}

// counter counts the bytes that are read from r.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

type inflated struct {
	z   *gzip.Reader
	in  *counter
	out int64
}

func (f *inflated) Read(p []byte) (int, error) {
	n, err := f.z.Read(p)
	f.out += int64(n)
	if f.out > inflateFree+inflateFactor*f.in.n {
		return n, fmt.Errorf("gzip: %d bytes become %d and more, at most %d times as many are read", f.in.n, f.out, inflateFactor)
	}
	return n, err
}

// exactly reads n bytes, which are the field of that name. Memory grows as they
// arrive.
func exactly(r io.Reader, field string, n int) ([]byte, error) {
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

// end reports bytes that follow what should be the last.
func end(r io.Reader) error {
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return fmt.Errorf("bytes follow the data")
	case err != io.EOF:
		return err
	}
	return nil
}

// lineLimit is the longest line that is read.
const lineLimit = 16 << 20

// lines calls each with the number, from 1, and the bytes of every line of r
// without its line break; the bytes are good until each returns. Errors of each
// begin with the number.
func lines(r io.Reader, each func(n int, line []byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, lineLimit)
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

// ReadBytes returns a reader of exactly n bytes.
func ReadBytes(n int) func(io.Reader) ([]byte, error) {
	return func(r io.Reader) ([]byte, error) {
		b, err := exactly(r, "data", n)
		if err == nil {
			err = end(r)
		}
		return b, err
	}
}
