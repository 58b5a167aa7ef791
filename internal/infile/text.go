package infile

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// Encoding is the encoding of a text, according to its first bytes.
type Encoding int

const (
	UTF8    Encoding = iota // UTF-8, or bytes of any kind
	UTF16LE                 // UTF-16, the low byte of a unit first
	UTF16BE                 // UTF-16, the high byte of a unit first
	UTF32                   // UTF-32, which is not read
)

// FindEncoding returns the encoding that a byte order mark at the beginning of a text means, and
// the length of the mark. A text without a mark is UTF-8.
func FindEncoding(head []byte) (e Encoding, mark int) {
	switch {
	case bytes.HasPrefix(head, []byte(ByteOrderMark)):
		return UTF8, len(ByteOrderMark)
	case bytes.HasPrefix(head, []byte{0xff, 0xfe, 0, 0}), bytes.HasPrefix(head, []byte{0, 0, 0xfe, 0xff}):
		return UTF32, 4
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}):
		return UTF16LE, 2
	case bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return UTF16BE, 2
	}
	return UTF8, 0
}

// guessEncoding is FindEncoding of tables and records, which begin with ASCII: UTF-16 without a
// mark has a zero byte in each of its first two units.
func guessEncoding(head []byte) (e Encoding, mark int) {
	if e, mark = FindEncoding(head); mark > 0 || len(head) < HeadBytes {
		return e, mark
	}
	switch zero := func(i int) bool { return head[i] == 0 }; {
	case !zero(0) && zero(1) && !zero(2) && zero(3):
		return UTF16LE, 0
	case zero(0) && !zero(1) && zero(2) && !zero(3):
		return UTF16BE, 0
	}
	return UTF8, 0
}

// HeadBytes is the number of first bytes of a text that FindEncoding needs.
const HeadBytes = 4

// FormatError is the error of a malformed text, as opposed to an error of reading it.
type FormatError struct{ Text string }

// Error returns the message.
func (e FormatError) Error() string { return e.Text }

// formatErrorf returns a FormatError.
func formatErrorf(format string, args ...any) error {
	return FormatError{fmt.Sprintf(format, args...)}
}

// NewText returns a reader of the text of r in UTF-8, without a byte order mark. With a mark of
// UTF-16 the text is decoded; without any mark the bytes are those of r. The first Read waits for
// no more bytes than it needs. Reading fails if a text in UTF-16 is malformed, and for UTF-32.
func NewText(r io.Reader) io.Reader { return &textReader{r: bufio.NewReaderSize(r, 1<<16)} }

// NewTable is NewText for a table or records. It also decodes UTF-16 without a byte order mark.
func NewTable(r io.Reader) io.Reader {
	return &textReader{r: bufio.NewReaderSize(r, 1<<16), guess: true}
}

// textReader finds the encoding at the first Read.
type textReader struct {
	r     *bufio.Reader
	guess bool
	text  io.Reader // nil: nothing is read
}

// Read reads the next bytes of the text.
func (t *textReader) Read(p []byte) (int, error) {
	if t.text == nil {
		t.begin()
	}
	return t.text.Read(p)
}

// begin reads the first bytes. It keeps an error for the Read after them: a terminal ends once.
func (t *textReader) begin() {
	head, err := t.peekHead()
	find := FindEncoding
	if t.guess {
		find = guessEncoding
	}
	e, mark := find(head)
	_, _ = t.r.Discard(mark) // it is buffered
	t.text = t.r
	if err != nil {
		rest, _ := t.r.Peek(t.r.Buffered())
		t.text = io.MultiReader(bytes.NewReader(rest), failing{err})
	}
	switch e {
	case UTF16LE, UTF16BE:
		t.text = &utf16Reader{r: bufio.NewReaderSize(t.text, 1<<15), big: e == UTF16BE, at: int64(mark)}
	case UTF32:
		t.text = failing{FormatError{"is UTF-32, which is not read; save the text as UTF-8"}}
	}
}

// peekHead returns the first bytes, as many as there may be a mark in. It returns the error of reading them.
func (t *textReader) peekHead() (head []byte, err error) {
	for n := 1; n <= HeadBytes; n++ {
		if head, err = t.r.Peek(n); err != nil {
			return head, err
		}
		c := head[0]
		if n == 1 && c != ByteOrderMark[0] && c != 0xff && c != 0xfe && c != 0 && !t.guess {
			break
		}
	}
	return head, nil
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// utf16Reader decodes UTF-16.
type utf16Reader struct {
	r    *bufio.Reader
	big  bool
	at   int64 // bytes that were read
	high rune  // first half of a surrogate pair; 0: none
	rest []byte
	buf  [utf8.UTFMax]byte
	err  error
}

// Read decodes the next characters. It returns an error that names the byte for half of a surrogate
// pair, for a zero character, which no text has, and for half a unit at the end.
func (u *utf16Reader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(u.rest) > 0 {
			k := copy(p[n:], u.rest)
			n, u.rest = n+k, u.rest[k:]
			continue
		}
		if u.err != nil || n > 0 && u.r.Buffered() < 2 {
			break // what is there, before a read that may wait
		}
		u.next()
	}
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, u.err
}

// next decodes a unit.
func (u *utf16Reader) next() {
	var unit [2]byte
	n, err := io.ReadFull(u.r, unit[:])
	switch {
	case err == io.EOF && u.high == 0:
		u.err = io.EOF
		return
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		u.err = formatErrorf("UTF-16: the text ends within a character at byte %d", u.at+int64(n))
		return
	case err != nil:
		u.err = err
		return
	}
	c := rune(unit[0]) | rune(unit[1])<<8
	if u.big {
		c = rune(unit[1]) | rune(unit[0])<<8
	}
	at := u.at
	u.at += 2
	switch {
	case u.high != 0:
		if c = utf16.DecodeRune(u.high, c); c == utf8.RuneError {
			u.err = formatErrorf("UTF-16: half a surrogate pair at byte %d", at-2)
			return
		}
		u.high = 0
	case c >= 0xd800 && c < 0xdc00:
		u.high = c
		return
	case utf16.IsSurrogate(c) || c == 0:
		u.err = formatErrorf("UTF-16: %U at byte %d is no character", c, at)
		return
	}
	u.rest = utf8.AppendRune(u.buf[:0], c)
}

// NewRecords returns a reader of the lines of r, whose text is read as by NewTable. If a line
// begins with a JSON array, each element of the array becomes a line. Elements are not parsed; line
// breaks in them become blanks. Reading fails if an array lacks an element or its end, or if text
// follows it.
func NewRecords(r io.Reader) *Records {
	return &Records{r: bufio.NewReaderSize(NewTable(r), 1<<16)}
}

// Records reads lines, and elements of JSON arrays as lines.
type Records struct {
	r        *bufio.Reader
	hasArray bool
	place    recordPlace
	depth    int  // depth of brackets and braces in the array
	quoted   bool // inside a string
	escaped  bool // after a backslash
	filled   bool // the element has a byte
	elements int  // elements of the array that have ended
	err      error
}

// recordPlace is the place in a stream of records.
type recordPlace int

const (
	atLineStart   recordPlace = iota // nothing of the line was read but blanks
	inLine                           // in a line that is no array
	inArray                          // in an array
	afterArrayEnd                    // in the line that an array ended in
)

// HasArray reports whether an array was read. Lines are then numbered by records.
func (x *Records) HasArray() bool { return x.hasArray }

// Read reads the next bytes of the lines. It returns the errors of the text and of its arrays.
func (x *Records) Read(p []byte) (n int, err error) {
	for n < len(p) && x.err == nil {
		if n > 0 && x.r.Buffered() == 0 {
			break // what is there, before a read that may wait
		}
		c, err := x.r.ReadByte()
		if err != nil {
			x.err = err
			if err == io.EOF && x.place == inArray {
				x.err = FormatError{"the JSON array has no end"}
			}
			break
		}
		if c, ok := x.convert(c); ok {
			p[n] = c
			n++
		}
	}
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, x.err
}

// convert returns the byte that takes the place of c, if there is one.
func (x *Records) convert(c byte) (byte, bool) {
	blank := c == ' ' || c == '\t' || c == '\r' || c == '\n'
	switch x.place {
	case inLine:
		if c == '\n' {
			x.place = atLineStart
		}
		return c, true
	case atLineStart:
		switch {
		case c == '[':
			x.hasArray, x.place, x.elements, x.filled = true, inArray, 0, false
			return 0, false
		case !blank:
			x.place = inLine
		}
		return c, true
	case afterArrayEnd:
		switch {
		case c == '\n':
			x.place = atLineStart
		case !blank:
			x.err = formatErrorf("%q follows the end of a JSON array; a file holds one array, or a record a line", c)
		}
		return 0, false
	}
	return x.convertElement(c, blank)
}

// convertElement is convert within an array.
func (x *Records) convertElement(c byte, blank bool) (byte, bool) {
	switch {
	case x.quoted:
		switch {
		case x.escaped:
			x.escaped = false
		case c == '\\':
			x.escaped = true
		case c == '"':
			x.quoted = false
		}
	case blank:
		return ' ', x.filled
	case c == '"':
		x.quoted = true
	case c == '{' || c == '[':
		x.depth++
	case x.depth > 0 && (c == '}' || c == ']'):
		x.depth--
	case x.depth == 0 && (c == ',' || c == ']'):
		if !x.filled && (c == ',' || x.elements > 0) {
			x.err = formatErrorf("element %d of the JSON array is empty", x.elements+1)
			return 0, false
		}
		if c == ']' {
			x.place = afterArrayEnd
		}
		ended := x.filled
		x.filled = false
		x.elements++
		return '\n', ended
	}
	x.filled = true
	return c, true
}

// NewLineScanner returns a scanner of the lines of r, of at most limit bytes. Unlike a scanner with
// bufio.ScanLines it looks at each byte once: a long line does not cost a search per Read.
func NewLineScanner(r io.Reader, limit int) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(nil, limit)
	searched := 0 // bytes of the line so far, which has no end in them
	s.Split(func(data []byte, atEOF bool) (advance int, token []byte, err error) {
		if i := bytes.IndexByte(data[searched:], '\n'); i >= 0 {
			end := searched + i
			searched = 0
			return end + 1, bytes.TrimSuffix(data[:end], []byte("\r")), nil
		}
		if searched = len(data); !atEOF {
			return 0, nil, nil
		}
		searched = 0
		return bufio.ScanLines(data, atEOF)
	})
	return s
}
