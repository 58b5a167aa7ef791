package reproduce

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// Files of a reproduction's folder, beside its figures.
const markdownFile = "report.md"

// Write writes the page and the figures to the folder of the reproduction and
// returns that.
func (out *Outcome) Write(o *Options) (dir string, err error) {
	dir = filepath.Join(o.Out, out.Name, out.Budget)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	for _, d := range out.Figures {
		if err := atomicfile.Write(filepath.Join(dir, d.Name+".svg"), d.WriteSVG); err != nil {
			return "", fmt.Errorf("figure %s: %w", d.Name, err)
		}
	}
	return dir, atomicfile.Write(filepath.Join(dir, markdownFile), out.WriteMarkdown)
}

// WriteMarkdown writes the findings, the tables and where they come from.
func (out *Outcome) WriteMarkdown(w io.Writer) error {
	_, err := io.WriteString(w, out.markdown())
	return err
}

func (out *Outcome) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s: %s. Published: %s.\n\n%s\n", out.Name, out.Source, out.Doc, out.Claim, out.origin())
	for i, f := range out.Findings {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "- %s\n", f)
	}
	for _, t := range out.Tables {
		if len(t.Rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n\n| %s |\n|%s\n", t.Title, strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
		for _, row := range t.Rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
		if t.Note != "" {
			fmt.Fprintf(&b, "\n%s\n", t.Note)
		}
	}
	return b.String()
}

// origin says how the numbers came about: the command, the time that it took,
// the machine and the code.
func (out *Outcome) origin() string {
	text := fmt.Sprintf("`%s`, %v.", out.Command, out.Spent().Round(time.Second))
	list := func(what string, of func(*Record) string) {
		var all []string
		for _, r := range out.Records {
			if s := of(r); !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
		if len(all) > 0 {
			text += fmt.Sprintf(" %s: %s.", what, strings.Join(all, "; "))
		}
	}
	list("Machine", func(r *Record) string { return r.Machine })
	list("Code", func(r *Record) string { return r.Build.String() })
	list("Made", func(r *Record) string { return r.Started.Format(time.DateOnly) })
	if n := len(out.Missing); n > 0 {
		text += fmt.Sprintf(" %d pieces are missing.", n)
	}
	return text
}
