package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Drawing is an image file that a Markdown page shows.
type Drawing struct {
	Name  string // file name
	Title string
	Write func(io.Writer) error
}

// Drawings returns the drawings of the page in order. Their files are named PREFIX-1.svg and so on,
// or .png for pictures and maps.
func (p *Page) Drawings(prefix string) []Drawing {
	var list []Drawing
	for _, s := range p.Sections {
		list = append(list, s.sectionDrawings(prefix, len(list))...)
	}
	return list
}

// sectionDrawings returns the drawings of a section; before counts the earlier ones of
// the page.
func (s *Section) sectionDrawings(prefix string, before int) []Drawing {
	var list []Drawing
	add := func(title, suffix string, write func(io.Writer) error) {
		if title == "" {
			title = s.Title
		}
		list = append(list, Drawing{fmt.Sprintf("%s-%d.%s", prefix, before+len(list)+1, suffix), title, write})
	}
	if s.Figure != nil {
		add(s.Figure.Title, "svg", s.Figure.WriteSVG)
	}
	if s.Maps != nil {
		add(s.Maps.Title, "png", s.Maps.WritePNG)
	}
	if s.Picture != nil {
		add(s.Picture.Name, "png", s.Picture.WritePNG)
	}
	return list
}

// WriteMarkdown writes the page as Markdown. Drawings have the names that Drawings returns; with an
// empty prefix they are left out. It returns an error if a table is invalid, if the configuration
// cannot be encoded as JSON, or if w fails.
func (p *Page) WriteMarkdown(w io.Writer, prefix string) error {
	if err := p.checkTables(); err != nil {
		return err
	}
	var m markdown
	if p.Title != "" {
		m.addBlock("# " + inlineText(p.Title))
	}
	if p.Verdict != "" {
		m.addBlock("**" + inlineText(p.Verdict) + "**")
	}
	m.addText(p.Lead)
	shown := 0
	for i := range p.Sections {
		s := &p.Sections[i]
		if s.Title != "" {
			m.addBlock("## " + inlineText(s.Title))
		}
		m.addText(s.Text)
		if s.Table != nil {
			m.addTable(s.Table)
		}
		if prefix != "" {
			list := s.sectionDrawings(prefix, shown)
			for _, d := range list {
				m.addBlock("![" + inlineText(d.Title) + "](<" + strings.NewReplacer("<", "%3C", ">", "%3E", "\n", "%0A", "\\", "%5C").Replace(d.Name) + ">)")
			}
			if len(list) > 0 {
				m.addText(s.Caption)
			}
			shown += len(list)
		}
		m.addCode(s.Code)
	}
	settings, err := p.Origin.Settings()
	if err != nil {
		return err
	}
	if len(settings) > 0 {
		m.addBlock("## Configuration")
	}
	m.addList(settings)
	m.addList(p.Origin.Rows())
	_, err = io.WriteString(w, m.String())
	return err
}

// WriteMarkdown writes the table as Markdown. It returns an error if the length of a row differs
// from that of the head, or if w fails.
func (t *Table) WriteMarkdown(w io.Writer) error {
	if err := t.checkRows(); err != nil {
		return err
	}
	var m markdown
	m.addTable(t)
	_, err := io.WriteString(w, m.String())
	return err
}

// markdown is text in blocks, separated by empty lines.
type markdown struct{ strings.Builder }

// addBlock adds a block.
func (m *markdown) addBlock(text string) {
	if m.Len() > 0 {
		m.WriteString("\n")
	}
	m.WriteString(text + "\n")
}

// addText adds paragraphs of plain text.
func (m *markdown) addText(text string) {
	for _, p := range splitParagraphs(text) {
		m.addBlock(escapeMarks(p))
	}
}

// addTable adds a table with its title and note.
func (m *markdown) addTable(t *Table) {
	if t.Title != "" {
		m.addBlock("**" + inlineText(t.Title) + "**")
	}
	var b strings.Builder
	row := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + inlineText(c) + " ")
		}
		b.WriteString("|\n")
	}
	row(t.Head)
	for _, right := range t.NumericColumns() {
		if right {
			b.WriteString("|---:")
		} else {
			b.WriteString("|---")
		}
	}
	b.WriteString("|\n")
	for _, r := range t.Rows {
		row(r)
	}
	m.addBlock(strings.TrimSuffix(b.String(), "\n"))
	m.addText(t.Note)
}

// addCode adds a code block, with fences longer than any run of backticks in it.
func (m *markdown) addCode(text string) {
	if text == "" {
		return
	}
	fence, run := "```", 0
	for _, r := range text {
		if r == '`' {
			run++
		} else {
			run = 0
		}
		for run >= len(fence) {
			fence += "`"
		}
	}
	m.addBlock(fence + "\n" + strings.TrimSuffix(text, "\n") + "\n" + fence)
}

// addList adds a list of names and values.
func (m *markdown) addList(rows [][2]string) {
	var lines []string
	for _, r := range rows {
		lines = append(lines, "- "+inlineText(r[0])+": "+inlineText(r[1]))
	}
	if lines != nil {
		m.addBlock(strings.Join(lines, "\n"))
	}
}

// inlineText returns text on one line, for a cell.
func inlineText(text string) string {
	return escapeMarks(strings.Join(strings.Fields(text), " "))
}

// escapeMarks escapes characters that Markdown would read as markup.
func escapeMarks(text string) string {
	var b strings.Builder
	start := true // at the start of a line, after spaces and digits
	runes := []rune(text)
	for i, r := range runes {
		word := func(at int) bool {
			return at >= 0 && at < len(runes) && (unicode.IsLetter(runes[at]) || unicode.IsDigit(runes[at]))
		}
		marks := false
		switch r {
		case '\\', '`', '*', '[', ']', '<', '>', '|', '~', '$', '&':
			marks = true
		case '_':
			marks = !word(i-1) || !word(i+1)
		case '#', '=', '+', '-':
			marks = start && (i == 0 || runes[i-1] == '\n' || runes[i-1] == ' ') && !word(i+1)
		case '.', ')':
			marks = start && i > 0 && unicode.IsDigit(runes[i-1]) && !word(i+1)
		}
		if marks {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		start = r == '\n' || start && (r == ' ' || unicode.IsDigit(r))
	}
	return b.String()
}
