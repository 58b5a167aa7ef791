// Package report draws what was measured.
package report

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one line of a figure. X and Y are above 0 and as many.
type Series struct {
	Name   string
	X, Y   []float64
	Dashed bool // no marks: not measured
	// Crosses marks the points alone, with crosses: not possible. They follow
	// the series before and have no name of their own.
	Crosses bool
}

// Figure is a plot with logarithmic axes.
type Figure struct {
	Title, XLabel, YLabel string
	Series                []Series
}

// palette is by Okabe and Ito: told apart by colour-blind readers, too.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff},
	color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	color.RGBA{0x00, 0x00, 0x00, 0xff},
}

// WriteSVG draws the figure as SVG. A dashed series and one of crosses have the
// colour of the one before, which they continue. The same figure gives the same
// bytes.
func (f *Figure) WriteSVG(w io.Writer) error { return f.write(w, "svg") }

// WritePNG draws the same as PNG.
func (f *Figure) WritePNG(w io.Writer) error { return f.write(w, "png") }

func (f *Figure) write(w io.Writer, format string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.XLabel, f.YLabel
	p.BackgroundColor = color.White
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = decades{}, decades{}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xdd}
	p.Add(grid)

	colour := -1
	for _, s := range f.Series {
		if len(s.X) != len(s.Y) || len(s.X) == 0 {
			return fmt.Errorf("%s: has %d values of x and %d of y", s.Name, len(s.X), len(s.Y))
		}
		points := make(plotter.XYs, len(s.X))
		for i := range points {
			if !(s.X[i] > 0 && s.Y[i] > 0) {
				return fmt.Errorf("%s: point %d is (%g, %g), which logarithmic axes cannot show", s.Name, i, s.X[i], s.Y[i])
			}
			points[i] = plotter.XY{X: s.X[i], Y: s.Y[i]}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if !s.Dashed && !s.Crosses || colour < 0 {
			colour++
		}
		line.Color, line.Width = palette[colour%len(palette)], vg.Points(1.5)
		if s.Dashed {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
			p.Add(line)
			p.Legend.Add(s.Name, line)
			continue
		}
		marks, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		marks.Color, marks.Radius, marks.Shape = line.Color, vg.Points(2.5), draw.CircleGlyph{}
		if s.Crosses {
			marks.Radius, marks.Shape = vg.Points(4), draw.CrossGlyph{}
			p.Add(marks)
			continue
		}
		p.Add(line, marks)
		p.Legend.Add(s.Name, line, marks)
	}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		if a.Min == a.Max { // plot would go one below, which may be under 0
			a.Min, a.Max = a.Min/2, a.Max*2
		}
	}
	c, err := draw.NewFormattedCanvas(7*vg.Inch, 4.5*vg.Inch, format)
	if err != nil {
		return err
	}
	// The last label of the axis reaches beyond it.
	p.Draw(draw.Crop(draw.New(c), vg.Points(4), vg.Points(-16), vg.Points(4), vg.Points(-4)))
	_, err = c.WriteTo(w)
	return err
}

// decades labels powers of ten by an exponent where the number itself would be
// long.
type decades struct{}

func (decades) Ticks(low, high float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
	for i, t := range ticks {
		if t.Label == "" {
			continue
		}
		if e := math.Round(math.Log10(t.Value)); e < -2 || e > 4 {
			ticks[i].Label = "10" + superscript(int(e))
		}
	}
	return ticks
}

// superscript writes n in raised digits.
func superscript(n int) string {
	const raised = "⁰¹²³⁴⁵⁶⁷⁸⁹"
	digits := []rune(raised)
	var b strings.Builder
	for _, c := range strconv.Itoa(n) {
		if c == '-' {
			b.WriteRune('⁻')
		} else {
			b.WriteRune(digits[c-'0'])
		}
	}
	return b.String()
}
