package token

import (
	"io"
	"unicode"
	"unicode/utf8"
)

// Writer writes text in whole characters, so that a terminal can show bytes as they arrive. The
// first bytes of a character wait for the rest. Invalid UTF-8, control characters and characters
// that change the direction of text become U+FFFD.
type Writer struct {
	w       io.Writer
	pending []byte // first bytes of a character
	text    []byte
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write takes all of p and writes the complete characters. It returns an error if the
// underlying writer does.
func (w *Writer) Write(p []byte) (int, error) {
	w.pending = append(w.pending, p...)
	if err := w.writeComplete(false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes an incomplete character as U+FFFD. It returns an error if the underlying
// writer does.
func (w *Writer) Flush() error { return w.writeComplete(true) }

// writeComplete writes complete characters; with all it also writes incomplete bytes as
// U+FFFD.
func (w *Writer) writeComplete(all bool) error {
	rest := w.pending
	w.text = w.text[:0]
	for len(rest) > 0 && (all || utf8.FullRune(rest)) {
		r, n := utf8.DecodeRune(rest)
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			r = utf8.RuneError
		}
		w.text = utf8.AppendRune(w.text, r)
		rest = rest[n:]
	}
	w.pending = w.pending[:copy(w.pending, rest)]
	if len(w.text) == 0 {
		return nil
	}
	_, err := w.w.Write(w.text)
	return err
}
