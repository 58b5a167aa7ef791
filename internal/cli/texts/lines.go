// Package texts opens texts and reads them line by line.
package texts

import (
	"bytes"
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/infile"
)

// LongestLine is the length in bytes at which lines are scored in parts.
const LongestLine = 1 << 20

// OpenText opens a file or standard input. An interrupt ends a waiting Read and the
// opening of a named pipe. It returns an error if the file cannot be opened.
func OpenText(e *env.Env, path string) (io.ReadCloser, error) {
	if path == "" || path == "-" {
		return StandardInput{infile.NewReader(e.Context, e.Stdin)}, nil
	}
	return infile.OpenStream(e.Context, path)
}

// StandardInput reads standard input. Closing it leaves standard input open.
type StandardInput struct{ io.Reader }

// Close leaves standard input open. The error is nil.
func (StandardInput) Close() error { return nil }

// LineSource divides a stream into lines, which keep their line breaks.
type LineSource struct {
	Reader  io.Reader
	Longest int // bytes; longer lines come in parts
	buf     []byte
	Unread  []byte // the end of buf
}

// NextLines appends the available lines to dst, at least one. It stops when it has both
// lines lines and size bytes, and waits only for the first line. The lines are valid
// until the next call. It returns the error of the reader after the last whole line.
func (l *LineSource) NextLines(dst [][]byte, lines, size int) ([][]byte, error) {
	for {
		for first, total := len(dst), 0; len(dst)-first < lines || total < size; {
			end := bytes.IndexByte(l.Unread, '\n') + 1
			if end == 0 || end > l.Longest {
				if len(l.Unread) < l.Longest {
					break
				}
				end = l.Longest
			}
			dst = append(dst, l.Unread[:end:end])
			l.Unread = l.Unread[end:]
			total += end
		}
		if len(dst) > 0 {
			return dst, nil
		}
		n := len(l.Unread)
		if room := max(1<<16, 2*n); room > len(l.buf) {
			grown := make([]byte, room)
			copy(grown, l.Unread)
			l.buf = grown
		} else {
			copy(l.buf, l.Unread)
		}
		more, err := l.Reader.Read(l.buf[n:])
		l.Unread = l.buf[:n+more]
		if err != nil && more == 0 {
			return dst, err
		}
	}
}

// Rest takes the incomplete line; nil: there is none.
func (l *LineSource) Rest() []byte {
	line := l.Unread
	if l.Unread = nil; len(line) == 0 {
		return nil
	}
	return line
}

// JoinedFiles reads files one after the other, and ends the last line of each.
type JoinedFiles struct {
	Env   *env.Env
	Paths []string
	f     io.ReadCloser // nil: none is open
	last  byte
}

// Read reads from the current file and opens the next one at its end. It returns an
// error if a file cannot be opened or read, and io.EOF after the last.
func (j *JoinedFiles) Read(p []byte) (int, error) {
	for {
		if j.f == nil {
			if len(j.Paths) == 0 {
				return 0, io.EOF
			}
			f, err := OpenText(j.Env, j.Paths[0])
			if err != nil {
				return 0, err
			}
			j.f, j.Paths, j.last = f, j.Paths[1:], '\n'
		}
		n, err := j.f.Read(p)
		if n > 0 {
			j.last = p[n-1]
			return n, nil
		}
		if err != io.EOF {
			return 0, err
		}
		if j.last != '\n' && len(p) > 0 {
			p[0], j.last = '\n', '\n'
			return 1, nil
		}
		err = j.Close()
		if err != nil {
			return 0, err
		}
	}
}

// Close closes the open file. It returns the error of closing it.
func (j *JoinedFiles) Close() error {
	if j.f == nil {
		return nil
	}
	f := j.f
	j.f = nil
	return f.Close()
}

// ReadText reads a file, or standard input for -. It returns an error if the file
// cannot be read or is too long.
func ReadText(e *env.Env, path string) ([]byte, error) {
	r, err := OpenText(e, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	const most = 1 << 24
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: has more than %d bytes", path, most)
	}
	return text, err
}
