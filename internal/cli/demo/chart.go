package demo

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/report"
)

// panel is one of the charts of a reading: what each reader takes at each length.
type panel struct {
	title    string
	values   [][]float64 // by readers and lengths
	measured []int       // lengths of each reader that were measured; those after are extrapolated
	linear   bool
	format   func(float64) string
	tick     func(float64) string // of the picture; nil: format
}

// panels returns time, memory and bits a byte.
func (r *reading) panels() []panel {
	times := panel{title: "time to read", format: shortSeconds}
	memory := panel{title: "memory", format: func(x float64) string { return display.FormatBytes(math.Round(x)) }, tick: func(x float64) string { return display.FormatAmount(x, "B") }}
	bits := panel{title: "bits a byte", linear: true, format: func(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }}
	for i, x := range r.readers {
		var t, m []float64
		for j := range r.lengths {
			seconds, state, _ := r.at(i, j)
			t, m = append(t, seconds), append(m, state)
		}
		times.values, memory.values, bits.values = append(times.values, t), append(memory.values, m), append(bits.values, x.bits)
		n := len(x.seconds)
		times.measured, memory.measured, bits.measured = append(times.measured, n), append(memory.measured, n), append(bits.measured, n)
	}
	return []panel{times, memory, bits}
}

// shortSeconds writes a time in at most six characters.
func shortSeconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1e3)
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

// shortLength writes a length, which is a power of two.
func shortLength(n float64) string {
	if n < 1024 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.0fk", n/1024)
}

const (
	panelRows   = 10
	panelStep   = 2 // columns of a length
	labelWidth  = 9 // with a blank
	extrapolate = '·'
	several     = '*'
)

// marks of the readers in a chart of letters.
var marks = []rune{'s', 'w', 'm'}

// draw returns the lines of a chart.
func (p *panel) draw(lengths []float64) []string {
	scale := math.Log
	if p.linear {
		scale = func(x float64) float64 { return x }
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, list := range p.values {
		for _, y := range list {
			low, high = min(low, y), max(high, y)
		}
	}
	width := panelStep*(len(lengths)-1) + 1
	grid := make([][]rune, panelRows)
	for i := range grid {
		grid[i] = []rune(strings.Repeat(" ", width))
	}
	row := func(y float64) int {
		if high == low {
			return panelRows / 2
		}
		return panelRows - 1 - int(math.Round((scale(y)-scale(low))/(scale(high)-scale(low))*(panelRows-1)))
	}
	for i, list := range p.values {
		for j, y := range list {
			at, mark := &grid[row(y)][panelStep*j], marks[i]
			if j >= p.measured[i] {
				mark = extrapolate
			}
			if *at != ' ' && *at != extrapolate {
				mark = several
			}
			*at = mark
		}
	}
	lines := []string{fmt.Sprintf("%-*s", labelWidth+2+width, strings.Repeat(" ", labelWidth)+" "+p.title)}
	for i, cells := range grid {
		label := ""
		switch i {
		case 0:
			label = p.format(high)
		case panelRows - 1:
			label = p.format(low)
		}
		lines = append(lines, fmt.Sprintf("%*s ┤%s", labelWidth-1, label, string(cells)))
	}
	axis := []rune(strings.Repeat(" ", labelWidth+2+width))
	for _, j := range []int{0, (len(lengths) - 1) / 2, len(lengths) - 1} {
		label := shortLength(lengths[j])
		at := labelWidth + 1 + panelStep*j - len(label)/2
		if end := at + len(label); end > len(axis) {
			at -= end - len(axis)
		}
		copy(axis[at:], []rune(label))
	}
	return append(lines, string(axis))
}

// chart draws the panels side by side.
func (r *reading) chart(w io.Writer) {
	var parts [][]string
	for _, p := range r.panels() {
		parts = append(parts, p.draw(r.lengths))
	}
	for i := range parts[0] {
		line := "  "
		for _, p := range parts {
			line += p[i] + " "
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	note := ""
	if n := len(r.lengths); len(r.readers[softmaxReader].seconds) < n {
		note = "   · softmax, extrapolated"
	}
	fmt.Fprintf(w, "\n   bytes read across.  s softmax   w window alone   m multipole   * several%s\n", note)
}

// row returns the cells of length j: bytes, then time, memory and bits of the readers.
func (r *reading) row(j int, mark string) []string {
	cells := []string{fmt.Sprintf("%.0f", r.lengths[j])}
	var memory, bits []string
	for i, x := range r.readers {
		seconds, state, measured := r.at(i, j)
		t, m, b := display.FormatSeconds(seconds), display.FormatBytes(state), "–"
		if !measured {
			t, m = t+mark, m+mark
		} else {
			b = fmt.Sprintf("%.2f", x.bits[j])
		}
		cells, memory, bits = append(cells, t), append(memory, m), append(bits, b)
	}
	return append(append(cells, memory...), bits...)
}

// figures returns the panels as pictures.
func (r *reading) figures() report.Row {
	var row report.Row
	for _, p := range r.panels() {
		f := &report.Figure{Title: p.title, XLabel: "bytes of the text", XText: tickLength, YLinear: p.linear, YText: p.format}
		if p.tick != nil {
			f.YText = p.tick
		}
		for i, x := range r.readers {
			n := p.measured[i]
			f.Series = append(f.Series, report.Series{Name: x.name, X: r.lengths[:n], Y: p.values[i][:n]})
			if n < len(p.values[i]) {
				f.Series = append(f.Series, report.Series{Name: x.name + ", extrapolated", Style: report.DashedLine, X: r.lengths[n-1:], Y: p.values[i][n-1:]})
			}
		}
		row = append(row, f)
	}
	return row
}

func tickLength(x float64) string { return display.FormatAmount(x, "") }

// save writes the picture and the table into dir.
func (r *reading) save(dir string, m bench.Machine) error {
	if err := atomicfile.Write(filepath.Join(dir, "demo.svg"), r.figures().WriteSVG); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "demo.png"), r.figures().WritePNG); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, "demo.md"), func(w io.Writer) error { return r.page(w, m) })
}

// page writes the page of the measurement.
func (r *reading) page(w io.Writer, m bench.Machine) error {
	var b strings.Builder
	b.WriteString("# demo: a small model reads a text with softmax, with its window alone, and with multipole\n\n")
	fmt.Fprintf(&b, "`farfield demo --out docs/results` on %v. Times are of the whole model, one text in one state.\n\n", m)
	for _, line := range r.verdicts() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n![Time, memory and bits a byte over the length of the text](demo.svg)\n\n")
	head := []string{"bytes"}
	for _, what := range []string{"time", "memory", "bits a byte"} {
		for _, x := range r.readers {
			head = append(head, x.name+", "+what)
		}
	}
	b.WriteString("| " + strings.Join(head, " | ") + " |\n" + strings.Repeat("|---:", len(head)) + "|\n")
	for j := range r.lengths {
		b.WriteString("| " + strings.Join(r.row(j, " (extrapolated)"), " | ") + " |\n")
	}
	b.WriteString("\nBits are of the bytes in the second half of each length, which no model learned; fewer are better. Memory is the state that predicts the next byte.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
