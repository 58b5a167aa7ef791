package reproduce

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/report"
)

// Files of a reproduction's folder, beside its figures.
const (
	pageFile     = "report.html"
	markdownFile = "report.md"
)

// Write writes the page and the figures to the folder of the reproduction and returns the
// folder. It returns an error if a file cannot be written.
func (out *Outcome) Write(o *Options) (dir string, err error) {
	dir = filepath.Join(o.Out, out.Name, out.Budget)
	if err := atomicfile.MakeFolder(dir); err != nil {
		return "", err
	}
	for _, d := range out.Figures {
		if err := atomicfile.Write(filepath.Join(dir, d.Name+".svg"), d.WriteSVG); err != nil {
			return "", fmt.Errorf("figure %s: %w", d.Name, err)
		}
	}
	for _, d := range out.Sections {
		if err := d.write(filepath.Join(dir, d.Name)); err != nil {
			return "", fmt.Errorf("drawing %s: %w", d.Name, err)
		}
	}
	if err := atomicfile.Write(filepath.Join(dir, pageFile), out.page().WriteHTML); err != nil {
		return "", err
	}
	return dir, atomicfile.Write(filepath.Join(dir, markdownFile), out.WriteMarkdown)
}

// write writes maps as SVG and a picture as PNG, with the ending of either.
func (d *PageSection) write(path string) error {
	switch {
	case d.Maps != nil:
		return atomicfile.Write(path+".svg", d.Maps.WriteSVG)
	case d.Picture != nil:
		return atomicfile.Write(path+".png", d.Picture.WritePNG)
	}
	return nil
}

// page is the outcome with its figures.
func (out *Outcome) page() *report.Page {
	p := &report.Page{
		Title:  out.Name + ": " + out.Doc,
		Lead:   out.Source + ". " + out.published() + "\n\n" + strings.Join(out.Findings, "\n\n"),
		Origin: report.Origin{Command: out.Command, Duration: out.Spent(), Machine: out.all(machineOf), Commit: out.all(buildOf)},
	}
	for i := range out.Tables {
		if len(out.Tables[i].Rows) > 0 {
			p.Sections = append(p.Sections, report.Section{Table: &out.Tables[i]})
		}
	}
	for i := range out.Figures {
		p.Sections = append(p.Sections, report.Section{Figure: &out.Figures[i].Figure})
	}
	for i := range out.Sections {
		p.Sections = append(p.Sections, out.Sections[i].Section)
	}
	if n := len(out.Records); n > 0 {
		p.Origin.Time = out.Records[n-1].Started
	}
	return p
}

func machineOf(r *Record) string { return r.Machine }
func buildOf(r *Record) string   { return r.Build.String() }

// all joins what the records say, each once.
func (out *Outcome) all(of func(*Record) string) string {
	var list []string
	for _, r := range out.Records {
		if s := of(r); !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return strings.Join(list, "; ")
}

// WriteMarkdown writes the findings, the tables and their sources. It returns an error of w
// or of a table that does not fit.
func (out *Outcome) WriteMarkdown(w io.Writer) error {
	text, err := out.markdown()
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

// WritePage writes the page of the outcome at path. The first line of a page that is there
// already stays: it says in somebody's words whether the published claim is reached. WritePage
// returns an error if the page cannot be read or written, or a table does not fit.
func (out *Outcome) WritePage(path string) error {
	text, err := out.markdown()
	if err != nil {
		return err
	}
	title := "# " + out.Name
	switch old, err := infile.ReadFile(path); {
	case err == nil:
		title, _, _ = strings.Cut(string(old), "\n")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	_, body, _ := strings.Cut(text, "\n")
	return atomicfile.WriteBytes(path, []byte(title+"\n"+body))
}

func (out *Outcome) markdown() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s: %s. %s\n\n%s\n", out.Name, out.Source, out.Doc, out.published(), out.origin())
	for i, f := range out.Findings {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "- %s\n", f)
	}
	for i := range out.Tables {
		if t := &out.Tables[i]; len(t.Rows) > 0 {
			b.WriteByte('\n')
			if err := t.WriteMarkdown(&b); err != nil {
				return "", err
			}
		}
	}
	if len(out.Missing) > 0 {
		fmt.Fprintf(&b, "\n%s\n", out.notRun())
	}
	return b.String(), nil
}

// notRun names the missing pieces, with the commands that run them: each piece, or if they are many, the
// first words of their names.
func (out *Outcome) notRun() string {
	const few = 6
	hours := ""
	if out.MissingHours >= 0.05 {
		hours = fmt.Sprintf(" This takes about %s hours at 50 GFLOP/s, and up to three times as long if sequences are short.", digits(out.MissingHours))
	}
	if len(out.Missing) <= few {
		return fmt.Sprintf("Not run: %s (`%s --pieces '^(%s)$'`).", strings.Join(out.Missing, ", "), out.Command, strings.Join(out.Missing, "|")) + hours
	}
	var words []string
	counts := map[string]int{}
	for _, name := range out.Missing {
		word, _, _ := strings.Cut(name, "-")
		if counts[word]++; counts[word] == 1 {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	var parts []string
	for _, word := range words {
		parts = append(parts, fmt.Sprintf("%d of %s (`%s --pieces '^%s'`)", counts[word], word, out.Command, word))
	}
	return "Not run: " + strings.Join(parts, ", ") + "." + hours
}

// origin returns the command that made the numbers, the time that it took, the machine and the code.
func (out *Outcome) origin() string {
	text := fmt.Sprintf("`%s`, %v.", out.Command, out.Spent().Round(time.Second))
	if len(out.Records) > 0 {
		text += fmt.Sprintf(" Machine: %s. Code: %s. Made: %s.", out.all(machineOf), out.all(buildOf),
			out.all(func(r *Record) string { return r.Started.Format(time.DateOnly) }))
	}
	switch n := len(out.Missing); n {
	case 0:
	case 1:
		text += " One piece is missing, named at the end."
	default:
		text += fmt.Sprintf(" %d pieces are missing, named at the end.", n)
	}
	return text
}
