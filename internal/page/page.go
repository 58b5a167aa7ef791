// Package page keeps parts of pages that programs write, between markers that
// do not show.
package page

import (
	"bytes"
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Part is a part of a page.
type Part struct {
	Begin, End string // markers, such as <!-- … -->
	Title      string // a line before the part, where the page does not have it yet
}

// WriteFile replaces what the page at path has between the markers; it puts the part
// at its end if it has none.
func (p *Part) WriteFile(path string, text []byte) error {
	old, err := infile.ReadFile(path)
	if err != nil {
		return err
	}
	whole, err := p.replaceText(old, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(whole)
		return err
	})
}

// ReadFile returns what the page at path has between the markers; nil if it has none.
func (p *Part) ReadFile(path string) ([]byte, error) {
	page, err := infile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, rest, _ := bytes.Cut(page, []byte(p.Begin+"\n"))
	text, _, found := bytes.Cut(rest, []byte(p.End))
	if !found {
		return nil, nil
	}
	return text, nil
}

func (p *Part) replaceText(page, text []byte) ([]byte, error) {
	inner := fmt.Appendf(nil, "%s\n%s%s", p.Begin, text, p.End)
	before, rest, found := bytes.Cut(page, []byte(p.Begin))
	if !found {
		return fmt.Appendf(nil, "%s\n\n%s\n\n%s\n", bytes.TrimRight(page, "\n"), p.Title, inner), nil
	}
	_, after, found := bytes.Cut(rest, []byte(p.End))
	if !found {
		return nil, fmt.Errorf("%q has no %q after it", p.Begin, p.End)
	}
	return append(append(bytes.Clone(before), inner...), after...), nil
}
