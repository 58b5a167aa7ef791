package peers

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/page"
)

// rows are the lines of a cell, by contestant and round.
type rows map[string]map[int]bench.Line

// byCell sorts records into cells.
func byCell(records []record) map[string]rows {
	cells := map[string]rows{}
	for _, r := range records {
		c := cells[r.Cell]
		if c == nil {
			c = rows{}
			cells[r.Cell] = c
		}
		if c[r.Contestant] == nil {
			c[r.Contestant] = map[int]bench.Line{}
		}
		c[r.Contestant][r.Round] = r.Line
	}
	return cells
}

// median returns the median of a figure over the rounds; NaN without rounds.
func (c rows) median(name string, figure func(bench.Line) float64) float64 {
	var x []float64
	for _, l := range c[name] {
		x = append(x, figure(l))
	}
	if len(x) == 0 {
		return math.NaN()
	}
	return bench.Median(x)
}

// ratio returns the median of a's time over b's, of rounds in which both took
// part; NaN if there are none.
func (c rows) ratio(a, b string) float64 {
	var x []float64
	for round, l := range c[a] {
		if m, both := c[b][round]; both {
			x = append(x, l.Ms/m.Ms)
		}
	}
	if len(x) == 0 {
		return math.NaN()
	}
	return bench.Median(x)
}

// value returns what a column shows of a cell, as a number unless it shows
// forms.
func (k column) value(c rows) float64 {
	switch {
	case k.baseline != "":
		return c.ratio(k.contestant, k.baseline)
	case k.show == share:
		return c.median(k.contestant, func(l bench.Line) float64 { return 100 * l.Share })
	case k.show == perSecond:
		return c.median(k.contestant, func(l bench.Line) float64 { return 1e3 / l.Ms })
	}
	return c.median(k.contestant, func(l bench.Line) float64 { return l.Ms })
}

// text returns what a column shows of a cell.
func (k column) text(c rows) string {
	if k.show == form {
		for _, l := range c[k.contestant] {
			return l.Form // of every round
		}
		return absent
	}
	x := k.value(c)
	switch {
	case math.IsNaN(x):
		return absent
	case k.baseline != "":
		return ratioText(x)
	case k.show == share:
		return fmt.Sprintf("%.0f %%", x)
	}
	return formatDigits(x)
}

// absent stands for what was not measured.
const absent = "–"

// formatDigits writes x with three digits that count, more before the point.
func formatDigits(x float64) string {
	return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(x)))), x)
}

// ratioText writes a ratio: more digits where they can matter.
func ratioText(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// markdown writes the tables of the sections that have records.
func (r *run) markdown(sections []section) []byte {
	var b bytes.Buffer
	if r.Commit != "" {
		fmt.Fprintf(&b, "Measured at commit `%s`.\n\n", r.Commit)
	}
	fmt.Fprintf(&b, "%s; %s. Times are medians over rounds in which the contestants took turns; a ratio, the median of the rounds' ratios, says how many times as long the peer takes. H = 8.\n", r.Machine, r.Date)
	if len(r.Settings) > 0 {
		b.WriteString("\nThe best settings of those that were tried:\n\n")
		for _, s := range r.Settings {
			fmt.Fprintf(&b, "- %s\n", s)
		}
	}
	cells := byCell(r.records)
	for _, s := range sections {
		s.markdown(&b, cells)
	}
	return b.Bytes()
}

func (s section) markdown(b *bytes.Buffer, cells map[string]rows) {
	worst := make([]float64, len(s.columns)) // of ratios
	for i := range worst {
		worst[i] = math.NaN()
	}
	var lines [][]string
	for _, c := range s.cells {
		x := cells[c.name()]
		if x == nil {
			continue
		}
		line := append([]string{}, c.keys...)
		for i, k := range s.columns {
			line = append(line, k.text(x))
			if v := k.value(x); k.baseline != "" && !math.IsNaN(v) && (math.IsNaN(worst[i]) || v > worst[i] == k.highIsWorst) {
				worst[i] = v
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n", s.title, s.note)
	head := append([]string{}, s.keys...)
	for _, k := range s.columns {
		head = append(head, k.title)
	}
	line := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(head)))
	for _, l := range lines {
		line(l)
	}
	if len(lines) == 1 {
		return
	}
	last := make([]string, len(head))
	last[0] = "worst"
	for i, x := range worst {
		if !math.IsNaN(x) {
			last[len(s.keys)+i] = "**" + ratioText(x) + "**"
		}
	}
	line(last)
}

// written is the part of a page that is written here.
var written = page.Part{
	Begin: "<!-- peers: written by make peers -->",
	End:   "<!-- peers: end -->",
	Title: "## Beside PyTorch and ONNX Runtime",
}
