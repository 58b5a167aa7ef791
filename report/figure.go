// Package report shows what was measured: drawings, tables, and pages of them as
// HTML and as Markdown.
package report

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
	Bare                 // a line without marks, of many points
	Level                // a thin grey line: what others are to be compared with
	Bubbles              // discs alone, of the areas Size
)

// Series is one line of a figure. X and Y are as many, and above 0 on
// logarithmic axes.
type Series struct {
	Name      string // in the legend; "": it is not there
	X, Y      []float64
	Low, High []float64 // ends of an error bar at each point, around Y; empty: none
	Size      []float64 // of Bubbles: areas, 0 or more, all in one unit
	Style     Style
	// Series that are Solid, Bare or Bubbles and have the same Colour, whatever it
	// is, have the same colour; those of the same Mark have the same marks. One
	// that has no Colour gets a colour of its own.
	Colour, Mark string
}

// Figure is a plot. Its axes are logarithmic where they are not linear.
type Figure struct {
	Title, XLabel, YLabel string
	XLinear, YLinear      bool
	XText, YText          func(float64) string // how a number is written at its axis; nil: in digits
	Series                []Series
}

// hues are by Okabe and Ito: told apart by colour-blind readers, too.
var hues = []color.Color{
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

// dashes tell lines of the same colour apart.
var dashes = [][]vg.Length{nil, {vg.Points(6), vg.Points(2)}, {vg.Points(2), vg.Points(2)}}

// Sizes of a figure. The legend is beside it.
const (
	bubble     = 18 * vg.Length(1) // radius of the largest
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
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = drawn(f.Title), drawn(f.XLabel), drawn(f.YLabel)
	p.BackgroundColor = color.White
	scale(&p.X, f.XLinear, f.XText)
	scale(&p.Y, f.YLinear, f.YText)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xdd}
	p.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(2)

	names := vg.Length(0) // the widest
	pen := pen{colour: color.Black, largest: f.largest()}
	for i := range f.Series {
		s := &f.Series[i]
		if err := f.check(s); err != nil {
			return err
		}
		parts, err := pen.draw(s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		var inLegend []plot.Thumbnailer
		for _, part := range parts {
			p.Add(part)
			if t, ok := part.(plot.Thumbnailer); ok {
				inLegend = append(inLegend, t)
			}
		}
		if s.Name != "" {
			name := drawn(s.Name)
			legend.Add(name, inLegend...)
			names = max(names, legend.TextStyle.Width(name))
		}
	}
	makeRoom(&p.X, f.XLinear)
	makeRoom(&p.Y, f.YLinear)

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

// scale makes an axis linear or logarithmic.
func scale(a *plot.Axis, linear bool, text func(float64) string) {
	if linear {
		a.Tick.Marker = evenTicks(text)
		return
	}
	a.Scale, a.Tick.Marker = plot.LogScale{}, ticks(text)
}

// makeRoom leaves some of the axis free at both ends.
func makeRoom(a *plot.Axis, linear bool) {
	if linear {
		room := (a.Max - a.Min) * 0.02
		if a.Min == a.Max {
			room = max(math.Abs(a.Max)/2, 0.5)
		}
		a.Min, a.Max = a.Min-room, a.Max+room
		return
	}
	room := math.Pow(a.Max/a.Min, 0.02)
	if a.Min == a.Max {
		room = 2
	}
	a.Min, a.Max = a.Min/room, a.Max*room
}

// largest is the largest area of all bubbles.
func (f *Figure) largest() (size float64) {
	for _, s := range f.Series {
		if s.Style == Bubbles {
			size = slices.Max(append(s.Size, size))
		}
	}
	return size
}

// check reports what cannot be drawn.
func (f *Figure) check(s *Series) error {
	if len(s.X) != len(s.Y) || len(s.X) == 0 {
		return fmt.Errorf("%s: has %d values of x and %d of y", s.Name, len(s.X), len(s.Y))
	}
	if len(s.Low) != len(s.High) || len(s.Low) != 0 && len(s.Low) != len(s.Y) {
		return fmt.Errorf("%s: has %d values of y, %d low ends and %d high ones", s.Name, len(s.Y), len(s.Low), len(s.High))
	}
	if s.Style == Bubbles && len(s.Size) != len(s.X) {
		return fmt.Errorf("%s: has %d values of x and %d sizes", s.Name, len(s.X), len(s.Size))
	}
	for i, x := range s.X {
		if !shows(x, f.XLinear) || !shows(s.Y[i], f.YLinear) {
			return fmt.Errorf("%s: point %d is (%g, %g), which %s axes cannot show", s.Name, i, x, s.Y[i], f.axes())
		}
	}
	for i := range s.Low {
		if !shows(s.Low[i], f.YLinear) || !shows(s.High[i], f.YLinear) || s.Low[i] > s.Y[i] || s.High[i] < s.Y[i] {
			return fmt.Errorf("%s: the error bar of point %d is from %g to %g, y is %g", s.Name, i, s.Low[i], s.High[i], s.Y[i])
		}
	}
	for i, size := range s.Size {
		if !(size >= 0) || math.IsInf(size, 0) {
			return fmt.Errorf("%s: size %d is %g", s.Name, i, size)
		}
	}
	return nil
}

// shows tells whether an axis has a place for x.
func shows(x float64, linear bool) bool {
	return !math.IsNaN(x) && !math.IsInf(x, 0) && (linear || x > 0)
}

func (f *Figure) axes() string {
	if f.XLinear && f.YLinear {
		return "linear"
	}
	return "logarithmic"
}

// pen draws series after series.
type pen struct {
	colours, shapes places
	colour          color.Color
	turn            int // how often the hues have been gone through
	largest         float64
}

// draw returns the parts of a series from back to front.
func (p *pen) draw(s *Series) ([]plot.Plotter, error) {
	points := make(plotter.XYs, len(s.X))
	for i := range points {
		points[i] = plotter.XY{X: s.X[i], Y: s.Y[i]}
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return nil, err
	}
	switch s.Style {
	case Solid, Bare, Bubbles:
		n := p.colours.of(s.Colour, s.Colour == "")
		p.colour, p.turn = hues[n%len(hues)], n/len(hues)
	}
	line.Color, line.Width = p.colour, vg.Points(1.5)
	dots.Color, dots.Radius = p.colour, vg.Points(2.5)
	var parts []plot.Plotter
	switch s.Style {
	case Solid:
		dots.Shape = marks[(p.shapes.of(s.Mark, false)+p.turn)%len(marks)]
		parts = []plot.Plotter{line, dots}
	case Dashed:
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		parts = []plot.Plotter{line}
	case Crosses:
		dots.Radius, dots.Shape = vg.Points(4), draw.CrossGlyph{}
		parts = []plot.Plotter{dots}
	case Rings:
		dots.Color, dots.Radius, dots.Shape = color.Black, vg.Points(4), draw.RingGlyph{}
		parts = []plot.Plotter{dots}
	case Bare:
		line.Width = vg.Points(1)
		line.Dashes = dashes[p.turn%len(dashes)]
		parts = []plot.Plotter{line}
	case Level:
		line.Color, line.Width, line.Dashes = color.Gray{0x70}, vg.Points(1), []vg.Length{vg.Points(1), vg.Points(2)}
		parts = []plot.Plotter{line}
	case Bubbles:
		dots.Shape = draw.CircleGlyph{}
		dots.Color = pale(p.colour)
		dots.Radius = vg.Points(4) // in the legend
		dots.GlyphStyleFunc = func(i int) draw.GlyphStyle {
			style := dots.GlyphStyle
			style.Radius = vg.Points(1)
			if p.largest > 0 {
				style.Radius = max(style.Radius, bubble*vg.Length(math.Sqrt(s.Size[i]/p.largest)))
			}
			return style
		}
		parts = []plot.Plotter{dots}
	}
	if len(s.Low) > 0 {
		bars, err := errorBars(points, s.Low, s.High)
		if err != nil {
			return nil, err
		}
		bars.Color = p.colour
		parts = append(parts, bars)
	}
	return parts, nil
}

// errorBars are bars between ends at each point.
func errorBars(points plotter.XYs, low, high []float64) (*plotter.YErrorBars, error) {
	errors := make(plotter.YErrors, len(points))
	for i, at := range points {
		errors[i].Low, errors[i].High = at.Y-low[i], high[i]-at.Y
	}
	return plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{points, errors})
}

// pale is a colour through which others are seen.
func pale(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	return color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 0xa0}
}

// drawn returns s with what is no character of a drawing replaced: line breaks
// by spaces, controls and bytes that are no UTF-8 by a mark.
func drawn(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || r == 0xfffe || r == 0xffff:
			return unicode.ReplacementChar
		}
		return r
	}, s)
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

// evenTicks marks a linear axis.
type evenTicks func(float64) string

func (text evenTicks) Ticks(low, high float64) []plot.Tick {
	list := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range list {
		if t.Label != "" && text != nil {
			list[i].Label = text(t.Value)
		}
	}
	return list
}
