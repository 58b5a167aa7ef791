package main

import (
	"bytes"
	"io"

	"github.com/farfield-ml/farfield/internal/infile"
)

// openText opens a file or standard input. An interrupt ends a Read that waits, and the
// opening of a named pipe.
func openText(e *env, path string) (io.ReadCloser, error) {
	if path == "" || path == "-" {
		return standardInput{infile.Reader(e.ctx, e.stdin)}, nil
	}
	return infile.OpenStream(e.ctx, path)
}

// standardInput is what is read of standard input, which stays open.
type standardInput struct{ io.Reader }

func (standardInput) Close() error { return nil }

// lineSource cuts what is read into lines, which keep their line breaks.
type lineSource struct {
	r       io.Reader
	longest int // bytes; longer lines come in parts
	buf     []byte
	unread  []byte // the end of buf
}

// next appends to dst the lines that are there, at least one: it stops after both so
// many lines and so many bytes, and waits only for the first line. They are valid until
// the call after. Its error is the reader's, and comes after all whole lines.
func (l *lineSource) next(dst [][]byte, lines, size int) ([][]byte, error) {
	for {
		for first, total := len(dst), 0; len(dst)-first < lines || total < size; {
			end := bytes.IndexByte(l.unread, '\n') + 1
			if end == 0 || end > l.longest {
				if len(l.unread) < l.longest {
					break
				}
				end = l.longest
			}
			dst = append(dst, l.unread[:end:end])
			l.unread = l.unread[end:]
			total += end
		}
		if len(dst) > 0 {
			return dst, nil
		}
		n := len(l.unread)
		if room := max(1<<16, 2*n); room > len(l.buf) {
			grown := make([]byte, room)
			copy(grown, l.unread)
			l.buf = grown
		} else {
			copy(l.buf, l.unread)
		}
		more, err := l.r.Read(l.buf[n:])
		l.unread = l.buf[:n+more]
		if err != nil && more == 0 {
			return dst, err
		}
	}
}

// rest takes the incomplete line; nil: there is none.
func (l *lineSource) rest() []byte {
	line := l.unread
	if l.unread = nil; len(line) == 0 {
		return nil
	}
	return line
}

// joinedFiles reads files one after the other, and ends the last line of each.
type joinedFiles struct {
	e     *env
	paths []string
	f     io.ReadCloser // nil: none is open
	last  byte
}

func (j *joinedFiles) Read(p []byte) (int, error) {
	for {
		if j.f == nil {
			if len(j.paths) == 0 {
				return 0, io.EOF
			}
			f, err := openText(j.e, j.paths[0])
			if err != nil {
				return 0, err
			}
			j.f, j.paths, j.last = f, j.paths[1:], '\n'
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

// Close closes the file that is open.
func (j *joinedFiles) Close() error {
	if j.f == nil {
		return nil
	}
	f := j.f
	j.f = nil
	return f.Close()
}
