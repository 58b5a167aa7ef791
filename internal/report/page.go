package report

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Page is a report in sections, which begins with a verdict.
type Page struct {
	Title, Verdict, Lead string
	Sections             []Section
	Origin               Origin
}

// Section is a part of a page. Its fields appear in their order; empty fields are left out. A
// section without a title continues the one before it. Empty lines separate the paragraphs of Text.
type Section struct {
	Title, Text string
	Table       *Table
	Figure      *Figure
	Maps        *Maps
	Picture     *Picture
	Caption     string // caption of the figure, the maps or the picture
	Code        string // verbatim text
}

// Picture is an image that exists already.
type Picture struct {
	Name string // alternative text
	PNG  []byte
}

// WritePNG writes the picture unchanged. It returns an error if w fails.
func (p *Picture) WritePNG(w io.Writer) error {
	_, err := w.Write(p.PNG)
	return err
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"paragraphs": splitParagraphs,
	"figure":     inlineFigure,
	"maps":       inlineMaps,
	"png":        inlinePNG,
}).Parse(pageText))

// WriteHTML writes the page as one self-contained HTML file, without scripts or external
// addresses. Equal pages give equal bytes. It returns an error if a table or drawing is
// invalid, or w fails.
func (p *Page) WriteHTML(w io.Writer) error {
	if err := p.checkTables(); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("page %s: %w", p.Title, err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// checkTables returns an error for the first invalid table.
func (p *Page) checkTables() error {
	for _, s := range p.Sections {
		if s.Table == nil {
			continue
		}
		if err := s.Table.checkRows(); err != nil {
			return err
		}
	}
	return nil
}

// splitParagraphs splits text at empty lines.
func splitParagraphs(text string) []string {
	var list []string
	var open []string
	for line := range strings.Lines(text + "\n\n") {
		line = strings.TrimSpace(line)
		if line != "" {
			open = append(open, line)
		} else if open != nil {
			list, open = append(list, strings.Join(open, "\n")), nil
		}
	}
	return list
}

// inlinePNG returns a picture as a data URL.
func inlinePNG(p *Picture) template.URL {
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(p.PNG))
}
