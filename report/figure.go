// Package report draws what was measured.
package report

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Style is how a series is drawn.
type Style int

const (
	Solid   Style = iota // a line with a mark at each point
	Dashed               // a line that continues the series before: not measured
	Crosses              // crosses alone, of the series before: not possible
	Rings                // black rings alone: places on other series
)

// Series is one line of a figure. X and Y are above 0 and as many.
type Series struct {
	Name  string // in the legend; "": it is not there
	X, Y  []float64
	Style Style
	// Series that are Solid and have the same Colour, whatever it is, have the
	// same colour; those of the same Mark have the same marks. One that has no
	// Colour gets a colour of its own.
	Colour, Mark string
}

// Figure is a plot with logarithmic axes.
type Figure struct {
	Title, XLabel, YLabel string
	XText, YText          func(float64) string // how a number is written at its axis; nil: in digits
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

var marks = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}, draw.RingGlyph{}, draw.PyramidGlyph{}, draw.PlusGlyph{},
}

// Sizes of a figure. The legend is beside it.
const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4.5 * vg.Inch
	margin     = 4 * vg.Length(1)
	dotsAnInch = 144 // of a PNG
)

// WriteSVG draws the figure as SVG. The same figure gives the same bytes.
func (f *Figure) WriteSVG(w io.Writer) error {
	return f.write(w, func(width, height vg.Length) vg.CanvasWriterTo { return vgsvg.New(width, height) })
}

// WritePNG draws the same as PNG.
func (f *Figure) WritePNG(w io.Writer) error {
	return f.write(w, func(width, height vg.Length) vg.CanvasWriterTo {
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dotsAnInch))}
	})
}

func (f *Figure) write(w io.Writer, canvas func(width, height vg.Length) vg.CanvasWriterTo) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.XLabel, f.YLabel
	p.BackgroundColor = color.White
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(f.XText), ticks(f.YText)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xdd}
	p.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(2)

	names := vg.Length(0) // the widest
	var colours, shapes places
	colour := color.Color(color.Black)
	for _, s := range f.Series {
		points, err := s.points()
		if err != nil {
			return err
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if s.Style == Solid {
			colour = palette[colours.of(s.Colour, s.Colour == "")%len(palette)]
		}
		line.Color, line.Width = colour, vg.Points(1.5)
		dots.Color, dots.Radius = colour, vg.Points(2.5)
		drawn := []plot.Thumbnailer{line, dots}
		switch s.Style {
		case Solid:
			dots.Shape = marks[shapes.of(s.Mark, false)%len(marks)]
			p.Add(line, dots)
		case Dashed:
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
			drawn = drawn[:1]
			p.Add(line)
		case Crosses:
			dots.Radius, dots.Shape = vg.Points(4), draw.CrossGlyph{}
			drawn = drawn[1:]
			p.Add(dots)
		case Rings:
			dots.Color, dots.Radius, dots.Shape = color.Black, vg.Points(4), draw.RingGlyph{}
			drawn = drawn[1:]
			p.Add(dots)
		}
		if s.Name != "" {
			legend.Add(s.Name, drawn...)
			names = max(names, legend.TextStyle.Width(s.Name))
		}
	}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		room := math.Pow(a.Max/a.Min, 0.02)
		if a.Min == a.Max {
			room = 2
		}
		a.Min, a.Max = a.Min/room, a.Max*room
	}

	beside := names + legend.ThumbnailWidth + 5*margin
	c := canvas(plotWidth+beside, plotHeight)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	// The last label of an axis reaches beyond it.
	p.Draw(draw.Crop(all, margin, -4*margin-beside, margin, -margin))
	legend.Draw(draw.Crop(all, plotWidth, -margin, margin, -8*margin))
	_, err := c.WriteTo(w)
	return err
}

// points returns what is to be drawn, if it can be.
func (s *Series) points() (plotter.XYs, error) {
	if len(s.X) != len(s.Y) || len(s.X) == 0 {
		return nil, fmt.Errorf("%s: has %d values of x and %d of y", s.Name, len(s.X), len(s.Y))
	}
	points := make(plotter.XYs, len(s.X))
	for i := range points {
		if !(s.X[i] > 0 && s.Y[i] > 0) {
			return nil, fmt.Errorf("%s: point %d is (%g, %g), which logarithmic axes cannot show", s.Name, i, s.X[i], s.Y[i])
		}
		points[i] = plotter.XY{X: s.X[i], Y: s.Y[i]}
	}
	return points, nil
}

// places numbers names in the order in which they come.
type places struct {
	at   map[string]int
	next int
}

// of returns the number of name, a new one if there is none or it is to be
// alone.
func (p *places) of(name string, alone bool) int {
	if i, seen := p.at[name]; seen && !alone {
		return i
	}
	if p.at == nil {
		p.at = map[string]int{}
	}
	i := p.next
	p.at[name] = i
	p.next++
	return i
}

// ticks marks the axis at 1 to 9 times the powers of ten and writes at these, at
// every second where they are many, at 2 and 5 times too where they are few.
type ticks func(float64) string

func (text ticks) Ticks(low, high float64) []plot.Tick {
	if text == nil {
		text = func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	}
	few, many := high < 1000*low, high > 1e9*low
	var list []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for m := 1.0; m < 10; m++ {
			t := plot.Tick{Value: m * math.Pow(10, e)}
			if m == 1 && !(many && math.Mod(e, 2) != 0) || few && (m == 2 || m == 5) {
				t.Label = text(t.Value)
			}
			if low <= t.Value && t.Value <= high {
				list = append(list, t)
			}
		}
	}
	return list
}
