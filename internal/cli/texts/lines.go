// Package texts opens texts and reads them line by line.
package texts

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

// LongestLine is the length in bytes beyond which lines are scored in parts.
const LongestLine = 1 << 20

// LineSource divides a stream into lines, which keep their line breaks.
type LineSource struct {
	Reader  io.Reader
	Longest int // bytes; longer lines come in parts
	buf     []byte
	Unread  []byte // the end of buf

	WholeRunes bool // a part of a line is shorter rather than end in a rune
}

// NextLines appends lines to dst, at least one. It stops when it has the given number of lines and
// of bytes, or when no more are available: it only waits for the first line. The lines are valid
// until the next call. NextLines returns the error of the reader after the last whole line.
func (l *LineSource) NextLines(dst [][]byte, lines, size int) ([][]byte, error) {
	for {
		for first, total := len(dst), 0; len(dst)-first < lines || total < size; {
			end := bytes.IndexByte(l.Unread, '\n') + 1
			if end == 0 || end > l.Longest {
				if len(l.Unread) < l.Longest {
					break
				}
				end = l.partLength()
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

// partLength returns the bytes of the next part of a line that has Longest bytes and more.
func (l *LineSource) partLength() int {
	for end := l.Longest - 1; l.WholeRunes && end > max(0, l.Longest-utf8.UTFMax); end-- {
		if part := l.Unread[end:l.Longest]; utf8.RuneStart(part[0]) {
			if !utf8.FullRune(part) {
				return end
			}
			break
		}
	}
	return l.Longest
}

// Rest returns the incomplete last line and removes it; nil: there is none.
func (l *LineSource) Rest() []byte {
	line := l.Unread
	if l.Unread = nil; len(line) == 0 {
		return nil
	}
	return line
}

// JoinedFiles reads files one after the other, and adds a missing line break at the end of each.
type JoinedFiles struct {
	env    *env.Env
	paths  []string
	opened int           // of paths
	f      io.ReadCloser // the last of them; nil: it is closed
	last   byte
	lines  int64   // that were read
	starts []int64 // lines before each opened file
}

// OpenFiles opens files, - for standard input, to read them one after the other. It returns an
// error if a file does not exist or the first cannot be opened.
func OpenFiles(e *env.Env, paths ...string) (*JoinedFiles, error) {
	for _, path := range paths {
		if IsStandard(path) {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	j := &JoinedFiles{env: e, paths: paths}
	return j, j.next()
}

// next opens the next file.
func (j *JoinedFiles) next() (err error) {
	if j.f, err = OpenText(j.env, j.paths[j.opened]); err != nil {
		return err
	}
	j.opened++
	j.starts, j.last = append(j.starts, j.lines), '\n'
	return nil
}

// Paths returns the names of the files.
func (j *JoinedFiles) Paths() []string { return j.paths }

// Size returns the number of bytes in all files, or 0 if one of them is compressed or no regular
// file.
func (j *JoinedFiles) Size() int64 {
	size := int64(0)
	for _, path := range j.paths {
		n := TextSize(j.env, path)
		if n < 0 {
			return 0
		}
		size += n
	}
	return size
}

// Place returns file and line for messages. line counts the lines of all files together, from 1,
// and must have been read.
func (j *JoinedFiles) Place(line int64) string {
	i := len(j.starts) - 1
	for i > 0 && j.starts[i] >= line {
		i--
	}
	if i < 0 {
		return FormatPlace("", line)
	}
	return FormatPlace(j.paths[i], line-j.starts[i])
}

// FormatPlace returns file and line for messages; "" and - are standard input.
func FormatPlace(path string, line int64) string {
	if IsStandard(path) {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("%s: line %d", path, line)
}

// Read reads from the current file and opens the next one at its end. It returns an
// error if a file cannot be opened or read, and io.EOF after the last.
func (j *JoinedFiles) Read(p []byte) (int, error) {
	for {
		if j.f == nil {
			if j.opened == len(j.paths) {
				return 0, io.EOF
			}
			if err := j.next(); err != nil {
				return 0, err
			}
		}
		n, err := j.f.Read(p)
		if n > 0 {
			j.last = p[n-1]
			j.lines += int64(bytes.Count(p[:n], []byte("\n")))
			return n, nil
		}
		if err != io.EOF {
			return 0, err
		}
		if j.last != '\n' && len(p) > 0 {
			p[0], j.last = '\n', '\n'
			j.lines++
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
