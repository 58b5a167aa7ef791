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

// Page is a report of sections one below the other. It begins with the verdict, which
// is what a reader came for.
type Page struct {
	Title, Verdict, Lead string
	Sections             []Section
	About                About
}

// Section is a part of a page. What it does not have is left out; what it has
// comes in the order of the fields. Without a title it continues the section
// before. Paragraphs of Text are parted by empty lines.
type Section struct {
	Title, Text string
	Table       *Table
	Figure      *Figure
	Maps        *Maps
	Picture     *Picture
	Caption     string // of the figure, the maps or the picture
	Code        string // as it stands
}

// Picture is a drawing that exists already.
type Picture struct {
	Name string // what it shows, for those who cannot see it
	PNG  []byte
}

// WritePNG writes the picture as it is.
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

// WriteHTML writes the page as one HTML file that needs no other: drawings are
// in it, there are no scripts and no addresses. The same page gives the same
// bytes.
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

// splitParagraphs parts text at empty lines.
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

// inlinePNG is a picture as an address that holds it.
func inlinePNG(p *Picture) template.URL {
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(p.PNG))
}
