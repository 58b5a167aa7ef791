package display

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/farfield-ml/farfield/internal/token"
)

// Screen is standard output if it is a terminal. Characters that control a terminal are
// replaced, except line breaks and tabs. Files and pipes get all bytes unchanged.
type Screen struct {
	*token.Writer
	file *os.File
}

// File returns the terminal's file.
func (s *Screen) File() *os.File { return s.file }

// NewScreen returns w, or a Screen for it if it is a terminal.
func NewScreen(w io.Writer) io.Writer {
	if f := FileOf(w); f != nil && term.IsTerminal(int(f.Fd())) {
		return &Screen{token.NewWriter(w), f}
	}
	return w
}

// FileOf returns w if it is a file, or what its method File returns; nil if there is neither.
func FileOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *os.File:
		return w
	case interface{ File() *os.File }:
		return w.File()
	}
	return nil
}
