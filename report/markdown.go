package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Drawing is a file that the Markdown of a page shows.
type Drawing struct {
	Name  string // of the file
	Title string
	Write func(io.Writer) error
}

// Drawings returns the drawings of the page in their order: PREFIX-1.svg and so
// on, .png for pictures and maps.
func (p *Page) Drawings(prefix string) []Drawing {
	var list []Drawing
	for _, s := range p.Sections {
		list = append(list, s.sectionDrawings(prefix, len(list))...)
	}
	return list
}

// sectionDrawings returns those of a section, after so many of the page.
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

// WriteMarkdown writes the same as Markdown. Drawings are shown by the names that
// Drawings gives them; with an empty prefix they are left out.
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
	settings, err := p.About.Settings()
	if err != nil {
		return err
	}
	if len(settings) > 0 {
		m.addBlock("## Configuration")
	}
	m.addList(settings)
	m.addList(p.About.Rows())
	_, err = io.WriteString(w, m.String())
	return err
}

// WriteMarkdown writes the table alone.
func (t *Table) WriteMarkdown(w io.Writer) error {
	if err := t.checkRows(); err != nil {
		return err
	}
	var m markdown
	m.addTable(t)
	_, err := io.WriteString(w, m.String())
	return err
}

// markdown is made of blocks with an empty line between.
type markdown struct{ strings.Builder }

func (m *markdown) addBlock(text string) {
	if m.Len() > 0 {
		m.WriteString("\n")
	}
	m.WriteString(text + "\n")
}

func (m *markdown) addText(text string) {
	for _, p := range splitParagraphs(text) {
		m.addBlock(escapeMarks(p))
	}
}

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

// addCode is a block between fences longer than any run of the same mark in it.
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

func (m *markdown) addList(rows [][2]string) {
	var lines []string
	for _, r := range rows {
		lines = append(lines, "- "+inlineText(r[0])+": "+inlineText(r[1]))
	}
	if lines != nil {
		m.addBlock(strings.Join(lines, "\n"))
	}
}

// inlineText is text on one line, as in a cell.
func inlineText(text string) string {
	return escapeMarks(strings.Join(strings.Fields(text), " "))
}

// escapeMarks puts a backslash before what Markdown would read as marks.
func escapeMarks(text string) string {
	var b strings.Builder
	start := true // of a line, spaces and digits aside
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
