package report

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"

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

// Series is one line of a figure. X and Y are as many, from -1e150 to 1e150, and from
// 1e-150 on logarithmic axes.
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
var dashes = [][]vg.Length{nil, {6, 2}, {2, 2}}

// Sizes of a figure. As a file it has the legend beside the plot; on a page it is
// narrow, and has the legend below.
const (
	bubble       = 18 * vg.Length(1) // radius of the largest
	plotWidth    = 7 * vg.Inch
	plotHeight   = 4.5 * vg.Inch
	narrowWidth  = 5 * vg.Inch
	narrowHeight = 3.2 * vg.Inch
	margin       = 4 * vg.Length(1)
	dotsAnInch   = 144 // of a PNG
)

// newCanvas returns an empty drawing.
type newCanvas func(width, height vg.Length) vg.CanvasWriterTo

func svgCanvas(width, height vg.Length) vg.CanvasWriterTo { return vgsvg.New(width, height) }

func pngCanvas(width, height vg.Length) vg.CanvasWriterTo {
	return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dotsAnInch))}
}

// WriteSVG draws the figure as SVG. The same figure gives the same bytes.
func (f *Figure) WriteSVG(w io.Writer) error { return sansSVG(w, f.write) }

// WritePNG draws the same as PNG.
func (f *Figure) WritePNG(w io.Writer) error { return f.write(w, pngCanvas) }

func (f *Figure) write(w io.Writer, canvas newCanvas) error { return f.layOut(w, canvas, false) }

// writeNarrow draws the figure without its title, for a page.
func (f *Figure) writeNarrow(w io.Writer, canvas newCanvas) error { return f.layOut(w, canvas, true) }

// pictures mends those that vgsvg embeds: it gives PNG another name, and leaves out that
// a picture fills its place.
var pictures = []string{`"data:image/jpg;`, `"data:image/png;`, "<image ", `<image preserveAspectRatio="none" `}

// families are fonts of the same widths.
const families = "Helvetica,Arial,Liberation Sans,sans-serif"

// sansSVG draws SVG that names fonts which readers have.
func sansSVG(w io.Writer, draw func(io.Writer, newCanvas) error) error {
	var b bytes.Buffer
	if err := draw(&b, svgCanvas); err != nil {
		return err
	}
	_, err := w.Write(inTags(b.Bytes(), append(pictures, "font-family:Liberation Sans;", "font-family:"+families+";")...))
	return err
}

// inTags replaces old strings by new ones, in pairs, in the tags of SVG and not in its
// text.
func inTags(svg []byte, pairs ...string) []byte {
	replacer := strings.NewReplacer(pairs...)
	var b bytes.Buffer
	for len(svg) > 0 {
		start := bytes.IndexByte(svg, '<')
		end := bytes.IndexByte(svg, '>')
		if start < 0 || end < start {
			break
		}
		b.Write(svg[:start])
		b.WriteString(replacer.Replace(string(svg[start : end+1])))
		svg = svg[end+1:]
	}
	b.Write(svg)
	return b.Bytes()
}

func (f *Figure) layOut(w io.Writer, canvas newCanvas, narrow bool) error {
	a := axes{
		title: drawn(f.Title),
		x:     axis{label: drawn(f.XLabel), low: math.Inf(1), high: math.Inf(-1), logarithmic: !f.XLinear},
		y:     axis{label: drawn(f.YLabel), low: math.Inf(1), high: math.Inf(-1), logarithmic: !f.YLinear},
	}
	var parts []part
	var legend legend
	pen := pen{colour: color.Black, largest: f.largest()}
	for i := range f.Series {
		s := &f.Series[i]
		if err := f.check(s); err != nil {
			return err
		}
		a.x.include(s.X)
		a.y.include(s.Y)
		a.y.include(s.Low)
		a.y.include(s.High)
		of := pen.draw(s)
		parts = append(parts, of...)
		if s.Name != "" {
			legend.add(drawn(s.Name), of)
		}
	}
	a.x.mark(f.XText)
	a.y.mark(f.YText)

	size := vg.Point{X: plotWidth, Y: plotHeight}
	var beside, below vg.Length // of the legend
	if narrow {
		a.title, size = "", vg.Point{X: narrowWidth, Y: narrowHeight}
		below = legend.flow(size.X - 2*margin)
	} else {
		beside = legend.stack()
	}
	c := canvas(size.X+beside, size.Y+below)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	// The last label of an axis reaches beyond it.
	plot := draw.Crop(all, margin, -4*margin-beside, margin+below, -margin-tickFont/2)
	inner := a.inner(plot)
	a.grid(inner)
	a.draw(plot, inner)
	for _, p := range parts {
		p.draw(&inner, func(x, y float64) vg.Point {
			return vg.Point{X: inner.X(a.x.at(x)), Y: inner.Y(a.y.at(y))}
		})
	}
	if narrow {
		legend.draw(draw.Crop(all, margin, -margin, margin, -size.Y))
	} else {
		legend.draw(draw.Crop(all, size.X, -margin, margin, -8*margin))
	}
	_, err := c.WriteTo(w)
	return err
}

// include makes the axis long enough for a list of numbers.
func (a *axis) include(list []float64) {
	for _, x := range list {
		a.low, a.high = min(a.low, x), max(a.high, x)
	}
}

// mark leaves some of the axis free at both ends and marks it. An axis of nothing is
// from 1 to 10.
func (a *axis) mark(text func(float64) string) {
	if a.low > a.high {
		a.low, a.high = 1, 10
	}
	if !a.logarithmic {
		room := (a.high - a.low) * 0.02
		if a.high-a.low < least {
			room = max(math.Abs(a.high)/2, 0.5)
		}
		a.low, a.high = a.low-room, a.high+room
		a.ticks = evenTicks(a.low, a.high, text)
		return
	}
	room := math.Pow(a.high/a.low, 0.02)
	if a.low == a.high {
		room = 2
	}
	a.low, a.high = a.low/room, a.high*room
	a.ticks = powerTicks(a.low, a.high, text)
}

// grid draws grey lines at the labels of both axes.
func (a *axes) grid(c draw.Canvas) {
	style := draw.LineStyle{Color: color.Gray{0xdd}, Width: 0.25}
	for _, t := range a.x.shown() {
		if t.label != "" {
			x := c.X(a.x.at(t.value))
			c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
		}
	}
	for _, t := range a.y.shown() {
		if t.label != "" {
			y := c.Y(a.y.at(t.value))
			c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
		}
	}
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

// farthest is the largest number that is shown, and least the smallest on a logarithmic
// axis: differences and ratios of two such, and the room beside them, are finite.
const (
	farthest = 1e150
	least    = 1 / farthest
)

// shows tells whether an axis has a place for x.
func shows(x float64, linear bool) bool {
	return math.Abs(x) <= farthest && (linear || x >= least)
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

// part is something that a series draws.
type part interface {
	// draw draws it to c, where a point of the data lies at at.
	draw(c *draw.Canvas, at func(x, y float64) vg.Point)
	// sample draws what stands for it in the legend.
	sample(c *draw.Canvas)
}

// draw returns the parts of a series from back to front.
func (p *pen) draw(s *Series) []part {
	switch s.Style {
	case Solid, Bare, Bubbles:
		n := p.colours.of(s.Colour, s.Colour == "")
		p.colour, p.turn = hues[n%len(hues)], n/len(hues)
	}
	line := &curve{s, draw.LineStyle{Color: p.colour, Width: 1.5}}
	dots := &dots{s, draw.GlyphStyle{Color: p.colour, Radius: 2.5}, p.largest}
	var parts []part
	switch s.Style {
	case Solid:
		dots.Shape = marks[(p.shapes.of(s.Mark, false)+p.turn)%len(marks)]
		parts = []part{line, dots}
	case Dashed:
		line.Dashes = []vg.Length{4, 3}
		parts = []part{line}
	case Crosses:
		dots.Radius, dots.Shape = 4, draw.CrossGlyph{}
		parts = []part{dots}
	case Rings:
		dots.Color, dots.Radius, dots.Shape = color.Black, 4, draw.RingGlyph{}
		parts = []part{dots}
	case Bare:
		line.Width = 1
		line.Dashes = dashes[p.turn%len(dashes)]
		parts = []part{line}
	case Level:
		line.LineStyle = draw.LineStyle{Color: color.Gray{0x70}, Width: 1, Dashes: []vg.Length{1, 2}}
		parts = []part{line}
	case Bubbles:
		dots.Color, dots.Radius, dots.Shape = pale(p.colour), 4, draw.CircleGlyph{}
		parts = []part{dots}
	}
	if len(s.Low) > 0 {
		parts = append(parts, &bars{s, draw.LineStyle{Color: p.colour, Width: 0.5}})
	}
	return parts
}

// curve is a line through the points.
type curve struct {
	s *Series
	draw.LineStyle
}

func (l *curve) draw(c *draw.Canvas, at func(x, y float64) vg.Point) {
	points := make([]vg.Point, len(l.s.X))
	for i, x := range l.s.X {
		points[i] = at(x, l.s.Y[i])
	}
	c.StrokeLines(l.LineStyle, points)
}

func (l *curve) sample(c *draw.Canvas) {
	y := c.Center().Y
	c.StrokeLine2(l.LineStyle, c.Min.X, y, c.Max.X, y)
}

// dots are a mark at each point, of its own area where the series has sizes.
type dots struct {
	s *Series
	draw.GlyphStyle
	largest float64
}

func (d *dots) draw(c *draw.Canvas, at func(x, y float64) vg.Point) {
	for i, x := range d.s.X {
		style := d.GlyphStyle
		if d.s.Style == Bubbles {
			style.Radius = 1
			if d.largest > 0 {
				style.Radius = max(style.Radius, bubble*vg.Length(math.Sqrt(d.s.Size[i]/d.largest)))
			}
		}
		c.DrawGlyphNoClip(style, at(x, d.s.Y[i]))
	}
}

func (d *dots) sample(c *draw.Canvas) { c.DrawGlyphNoClip(d.GlyphStyle, c.Center()) }

// bars are the error bars of the points.
type bars struct {
	s *Series
	draw.LineStyle
}

func (b *bars) draw(c *draw.Canvas, at func(x, y float64) vg.Point) {
	const half = 2.5 // of the line at an end
	for i, x := range b.s.X {
		low, high := at(x, b.s.Low[i]), at(x, b.s.High[i])
		c.StrokeLines(b.LineStyle, []vg.Point{low, high})
		for _, end := range []vg.Point{low, high} {
			c.StrokeLine2(b.LineStyle, end.X-half, end.Y, end.X+half, end.Y)
		}
	}
}

func (b *bars) sample(*draw.Canvas) {}

// legend has the names of series, each beside a sample of what is drawn of it.
type legend struct {
	names  []string
	parts  [][]part
	places []vg.Point // of the samples' upper left corners, below 0
}

func (l *legend) add(name string, parts []part) {
	l.names, l.parts = append(l.names, name), append(l.parts, parts)
}

// Sizes of a legend.
const (
	sampleWidth = 20 * vg.Length(1)
	entryGap    = 12 * vg.Length(1) // between entries side by side
)

func legendStyle() draw.TextStyle { return textOf(titleFont, draw.XLeft, draw.YTop) }

// stack places entries one below the other and returns their width.
func (l *legend) stack() (width vg.Length) {
	style := legendStyle()
	var y vg.Length
	for _, name := range l.names {
		l.places = append(l.places, vg.Point{Y: -y})
		y += style.Height(name) + 2
		width = max(width, style.Width(name))
	}
	return sampleWidth + 5*margin + width
}

// flow places entries in lines of a width and returns the height of all. A longer name
// is broken between words.
func (l *legend) flow(width vg.Length) (height vg.Length) {
	style := legendStyle()
	var x, line vg.Length
	for i, name := range l.names {
		name = broken(style, name, width-sampleWidth-margin)
		l.names[i] = name
		w := sampleWidth + margin + style.Width(name)
		if x > 0 && x+w > width {
			x, height, line = 0, height+line, 0
		}
		l.places = append(l.places, vg.Point{X: x, Y: -height})
		x += w + entryGap
		line = max(line, style.Height(name)+2)
	}
	return height + line + margin
}

// broken returns text with line breaks between words, so that lines are no wider than
// width.
func broken(style draw.TextStyle, text string, width vg.Length) string {
	var b strings.Builder
	line := ""
	for _, word := range strings.Fields(text) {
		longer := strings.TrimPrefix(line+" "+word, " ")
		if line != "" && style.Width(longer) > width {
			b.WriteString(line + "\n")
			longer = word
		}
		line = longer
	}
	return b.String() + line
}

// draw draws the entries at their places below the upper left corner of c.
func (l *legend) draw(c draw.Canvas) {
	style := legendStyle()
	height := style.Height("0") + 2
	for i, name := range l.names {
		place := c
		place.Min.X += l.places[i].X
		place.Max = vg.Point{X: place.Min.X + sampleWidth, Y: c.Max.Y + l.places[i].Y}
		place.Min.Y = place.Max.Y - height
		for _, p := range l.parts[i] {
			p.sample(&place)
		}
		c.FillText(style, vg.Point{X: place.Max.X + margin, Y: place.Max.Y - 1}, name)
	}
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
