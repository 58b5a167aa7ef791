package report

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// inlineDrawing is SVG in a page, with a width in pixels at which its labels have the
// text size of the page.
type inlineDrawing struct {
	Title string
	Width int
	Bar   bool // the colour bar of maps
	SVG   template.HTML
}

// inlineFigure draws a figure for a page, which shows its title.
func inlineFigure(f *Figure, name string) (*inlineDrawing, error) {
	return inlineSVG(f.writeNarrow, f.Title, name)
}

// mapGrid holds the maps of a page: at most Columns side by side, of the Width of the
// widest.
type mapGrid struct {
	Columns, Width int
	List           []*inlineDrawing
}

// inlineMaps draws each matrix by itself, so that the width of the page decides the
// number side by side. A common colour bar comes first.
func inlineMaps(m *Maps, name string) (*mapGrid, error) {
	g := &mapGrid{Columns: m.Columns}
	if g.Columns <= 0 {
		g.Columns = mapsInARow
	}
	ends, err := m.colourRanges()
	if err != nil {
		return nil, err
	}
	add := func(write func(io.Writer, newCanvas) error, title string) error {
		d, err := inlineSVG(write, title, name)
		if err == nil {
			g.List = append(g.List, d)
		}
		return err
	}
	common := m.commonRange(ends)
	if common >= 0 {
		if err := add(func(w io.Writer, canvas newCanvas) error { return m.writeBar(w, canvas, common, ends[common]) }, "Colours of all maps"); err != nil {
			return nil, err
		}
		g.List[0].Bar = true
	}
	for i := range m.Heats {
		h := m.Heats[i]
		title := h.Title
		h.Title = ""
		err := add(func(w io.Writer, canvas newCanvas) error {
			p, err := h.layOutPanel(ends[i], common >= 0 || h.Grey)
			if err != nil {
				return err
			}
			c := canvas(p.width, p.height)
			p.drawPanel(draw.New(c))
			_, err = c.WriteTo(w)
			return err
		}, title)
		if err != nil {
			return nil, err
		}
		g.Width = max(g.Width, g.List[len(g.List)-1].Width)
	}
	return g, nil
}

// commonRange returns the index of a matrix whose colour scale all matrices except grey
// ones share; -1 if there is none.
func (m *Maps) commonRange(ends [][2]float64) int {
	first, n := -1, 0
	for i, h := range m.Heats {
		switch {
		case h.Grey:
			continue
		case first < 0:
			first = i
		case ends[i] != ends[first]:
			return -1
		}
		n++
	}
	if n < 2 {
		return -1
	}
	return first
}

const barHeight = 14 * vg.Length(1)

// writeBar draws the colour bar from left to right over its values.
func (m *Maps) writeBar(w io.Writer, canvas newCanvas, i int, ends [2]float64) error {
	all := m.Heats[i]
	colours, err := all.colourPalette(ends)
	if err != nil {
		return err
	}
	all.Values = nil
	for _, h := range m.Heats {
		if !h.Grey {
			all.Values = append(all.Values, h.Values...)
		}
	}
	a := axes{y: axis{hidden: true}, x: axis{min: ends[0], max: ends[1], ticks: all.barTicks(ends), isTight: true}}
	c := canvas(narrowWidth, barHeight+36)
	dc := draw.Crop(draw.New(c), 6*margin, -6*margin, margin, -margin)
	inner := a.innerCanvas(dc)
	a.drawAxes(dc, inner)
	inner.DrawImage(inner.Rectangle, turnedImage{scaleOf(colours)})
	_, err = c.WriteTo(w)
	return err
}

// paints replaces fixed colours by the colours of the page.
var paints = []string{
	"#000000", "var(--ink)",
	"#FFFFFF", "none",
	"#DDDDDD", "var(--line)",
	"#707070", "var(--faint)",
	"#0072B2", "var(--mark)", // too dark for dark pages
	"font-family:Liberation Sans;", "",
}

// inlineSVG returns a drawing as an element of a page, with its colours and font.
func inlineSVG(write func(io.Writer, newCanvas) error, title, name string) (*inlineDrawing, error) {
	var b bytes.Buffer
	var size vg.Point
	if err := write(&b, func(width, height vg.Length) vg.CanvasWriterTo {
		size = vg.Point{X: width, Y: height}
		return svgCanvas(width, height)
	}); err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(b.String(), "<svg ")
	_, rest, whole := strings.Cut(rest, ">")
	if !whole {
		return nil, fmt.Errorf("%s: the drawing is no SVG", title)
	}
	label := title
	if label == "" {
		label = name
	}
	rest = string(inTags([]byte(rest), append(pictures, paints...)...))
	return &inlineDrawing{
		Title: title, Width: int(size.X) + 1,
		SVG: template.HTML(fmt.Sprintf(`<svg role="img" aria-label="%s" viewBox="0 0 %.5g %.5g">%s`,
			template.HTMLEscapeString(drawableText(label)), size.X.Points(), size.Y.Points(), rest)),
	}, nil
}
