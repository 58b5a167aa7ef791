// Package page replaces generated parts of Markdown pages, which lie between invisible markers.
package page

import (
	"bytes"
	"fmt"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Part is a generated part of a page.
type Part struct {
	Begin, End string // markers, such as <!-- … -->
	Title      string // line that is written before the part if the part is new
}

// WriteFile replaces the text between the markers of the page at path, or appends the part if there
// are no markers. It returns an error if the page cannot be read or written, or if the end marker
// is missing.
func (p *Part) WriteFile(path string, text []byte) error {
	old, err := infile.ReadFile(path)
	if err != nil {
		return err
	}
	whole, err := p.replaceText(old, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.WriteBytes(path, whole)
}

// ReadFile returns the text between the markers of the page at path, or nil if there are no
// markers. It returns an error if the page cannot be read.
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

// replaceText returns the page with the part replaced or appended. It returns an error if the page has
// no end marker.
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
