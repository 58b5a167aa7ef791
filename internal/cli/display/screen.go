package display

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/farfield-ml/farfield/token"
)

// Screen is standard output where it is a terminal. What would control it is
// replaced, but for line breaks and tabs; files and pipes get bytes as they are.
type Screen struct{ *token.Writer }

// NewScreen returns w, as a screen if it is a terminal.
func NewScreen(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &Screen{token.NewWriter(w)}
	}
	return w
}
