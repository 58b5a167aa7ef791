package runs

import (
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/inference"
)

// Lengths counts texts that are longer than a model reads at once.
type Lengths struct {
	Truncated int // texts of which some tokens are not read
	InWindows int // texts whose vectors are means over windows
}

// Add counts the text of x.
func (l *Lengths) Add(x inference.Embedding) {
	if x.IsTruncated {
		l.Truncated++
	}
	if x.InWindows {
		l.InWindows++
	}
}

// Print says how many texts of an embedder are long.
func (l Lengths) Print(w io.Writer, e *inference.Embedder) {
	if l.Truncated > 0 {
		fmt.Fprintf(w, "%s longer than %d tokens: vectors are of %[2]d tokens of each\n", display.Pluralise(l.Truncated, "text"), e.MaxTokens())
	}
	if l.InWindows > 0 {
		fmt.Fprintf(w, "%s longer than the trained context of %d tokens: vectors are means of windows of it\n", display.Pluralise(l.InWindows, "text"), e.Window())
	}
}
