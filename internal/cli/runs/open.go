package runs

import (
	"fmt"
	"io"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/published"
)

// Open opens the model at path: a run, a checkpoint, a published folder, or the name of a fetched model.
// It returns an error if there is no such model or it cannot be opened with the options.
func Open(path string, o inference.Options) (*inference.Model, error) {
	path, err := ResolveModel(path)
	if err != nil {
		return nil, err
	}
	return inference.Open(path, o)
}

// OpenText opens the model at path, which has to read texts. It returns an error where Open does,
// and if the model reads no texts.
func OpenText(path string, o inference.Options) (*inference.Model, error) {
	m, err := Open(path, o)
	if err != nil {
		return nil, err
	}
	return m, m.CheckTexts()
}

// PrintNotes prints what the files of a published folder have and the model does not follow. p may
// be nil.
func PrintNotes(w io.Writer, p *published.Model) {
	if p == nil {
		return
	}
	for _, note := range p.Notes() {
		fmt.Fprintln(w, display.Escape(note))
	}
}

// PrintRules prints the notes of PrintNotes, and the rules of generation in a folder that are not
// applied.
func PrintRules(w io.Writer, m *inference.Model) {
	PrintNotes(w, m.Published())
	if rules := m.UnappliedRules(); len(rules) > 0 {
		fmt.Fprintf(w, "rules of generation that are not applied: %s\n", display.Escape(strings.Join(rules, ", ")))
	}
}
