package display

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/farfield-ml/farfield/token"
)

// Screen is standard output if it is a terminal. Characters that control a terminal are
// replaced, except line breaks and tabs. Files and pipes get all bytes unchanged.
type Screen struct{ *token.Writer }

// NewScreen returns w, as a screen if it is a terminal.
func NewScreen(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &Screen{token.NewWriter(w)}
	}
	return w
}
