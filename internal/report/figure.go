package report

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"
	"unicode"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Style says how a series is drawn.
type Style int

const (
	SolidLine  Style = iota // a line with a mark at each point
	DashedLine              // a line that extrapolates the series before it
	Crosses                 // crosses for points of the series before it that are impossible
	Rings                   // black rings around points of other series
	PlainLine               // a line without marks, for many points
	LevelLine               // a thin grey line as a reference
	Bubbles                 // discs whose areas are Size
)

// Series is one line of a figure. X [n] and Y [n] range from -1e150 to 1e150, and from
// 1e-150 on logarithmic axes.
type Series struct {
	Name                string // name in the legend; "": none
	X, Y                []float64
	ErrorLow, ErrorHigh []float64 // ends of the error bars [n] below and above Y; empty: none
	Size                []float64 // areas of Bubbles [n], not negative
	Style               Style
	// Series of style SolidLine, PlainLine or Bubbles with equal Colour share a colour, and series
	// with equal Mark share a mark. A series without Colour gets a new colour.
	Colour, Mark string
}

// Figure is a plot. Its axes are logarithmic unless XLinear or YLinear is set.
type Figure struct {
	Title, XLabel, YLabel string
	XLinear, YLinear      bool
	XText, YText          func(float64) string // formats the labels of the axis; nil: digits
	Series                []Series
}

// hues are the colours of Okabe and Ito, distinct for colour-blind readers.
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

// dashes distinguish lines of the same colour.
var dashes = [][]vg.Length{nil, {6, 2}, {2, 2}}

// Sizes of a figure. As a file it has the legend beside the plot; on a page it is
// narrow, and has the legend below.
const (
	bubbleRadius = 18 * vg.Length(1) // radius of the largest bubble
	plotWidth    = 7 * vg.Inch
	plotHeight   = 4.5 * vg.Inch
	narrowWidth  = 5 * vg.Inch
	narrowHeight = 3.2 * vg.Inch
	margin       = 4 * vg.Length(1)
	dotsAnInch   = 144 // resolution of a PNG
)

// newCanvas returns an empty drawing of a size.
type newCanvas func(width, height vg.Length) vg.CanvasWriterTo

func svgCanvas(width, height vg.Length) vg.CanvasWriterTo { return vgsvg.New(width, height) }

func pngCanvas(width, height vg.Length) vg.CanvasWriterTo {
	return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dotsAnInch))}
}

// WriteSVG draws the figure as SVG. Equal figures give equal bytes. It returns an error
// if a series is invalid or w fails.
func (f *Figure) WriteSVG(w io.Writer) error { return sansSVG(w, f.writeTo) }

// WritePNG draws the figure as PNG. It returns an error if a series is invalid or w
// fails.
func (f *Figure) WritePNG(w io.Writer) error { return f.writeTo(w, pngCanvas) }

// writeTo draws the figure for a file.
func (f *Figure) writeTo(w io.Writer, canvas newCanvas) error { return f.layOut(w, canvas, false) }

// writeNarrow draws the figure without its title, for a page.
func (f *Figure) writeNarrow(w io.Writer, canvas newCanvas) error { return f.layOut(w, canvas, true) }

// pictures are replacements in images embedded by vgsvg: the right media type for PNG,
// and stretching to the full size.
var pictures = []string{`"data:image/jpg;`, `"data:image/png;`, "<image ", `<image preserveAspectRatio="none" `}

// families lists fonts with equal widths.
const families = "Helvetica,Arial,Liberation Sans,sans-serif"

// sansSVG draws SVG that names fonts of the reader's system.
func sansSVG(w io.Writer, draw func(io.Writer, newCanvas) error) error {
	var b bytes.Buffer
	if err := draw(&b, svgCanvas); err != nil {
		return err
	}
	_, err := w.Write(inTags(b.Bytes(), append(pictures, "font-family:Liberation Sans;", "font-family:"+families+";")...))
	return err
}

// inTags replaces old strings by new ones, in pairs, within the tags of SVG but not in
// its text.
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

// prepare returns the axes of the figure, the parts of its series and its legend. It returns an error if
// a series is invalid.
func (f *Figure) prepare() (a axes, parts []drawnPart, l legend, err error) {
	a = axes{
		title: drawableText(f.Title),
		x:     axis{label: drawableText(f.XLabel), min: math.Inf(1), max: math.Inf(-1), logarithmic: !f.XLinear},
		y:     axis{label: drawableText(f.YLabel), min: math.Inf(1), max: math.Inf(-1), logarithmic: !f.YLinear},
	}
	pen := seriesPen{colour: color.Black, largest: f.largestArea()}
	for i := range f.Series {
		s := &f.Series[i]
		if err := f.checkSeries(s); err != nil {
			return a, nil, l, err
		}
		a.x.extendTo(s.X)
		a.y.extendTo(s.Y)
		a.y.extendTo(s.ErrorLow)
		a.y.extendTo(s.ErrorHigh)
		of := pen.seriesParts(s)
		parts = append(parts, of...)
		if s.Name != "" {
			l.addEntry(drawableText(s.Name), of)
		}
	}
	a.x.addTicks(f.XText)
	a.y.addTicks(f.YText)
	return a, parts, l, nil
}

// layOut draws the figure, with the legend beside the plot, or below if narrow.
func (f *Figure) layOut(w io.Writer, canvas newCanvas, narrow bool) error {
	a, parts, legend, err := f.prepare()
	if err != nil {
		return err
	}
	size := vg.Point{X: plotWidth, Y: plotHeight}
	var beside, below vg.Length // of the legend
	if narrow {
		a.title, size = "", vg.Point{X: narrowWidth, Y: narrowHeight}
		below = legend.flowEntries(size.X - 2*margin)
	} else {
		beside = legend.stackEntries()
	}
	c := canvas(size.X+beside, size.Y+below)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	// The last label of an axis reaches beyond it.
	a.drawPlot(draw.Crop(all, margin, -4*margin-beside, margin+below, -margin-tickFont/2), parts)
	if narrow {
		legend.drawEntries(draw.Crop(all, margin, -margin, margin, -size.Y))
	} else {
		legend.drawEntries(draw.Crop(all, size.X, -margin, margin, -8*margin))
	}
	_, err = c.WriteTo(w)
	return err
}

// drawPlot draws the grid, the axes and the parts of series to c.
func (a *axes) drawPlot(c draw.Canvas, parts []drawnPart) {
	inner := a.innerCanvas(c)
	a.drawGrid(inner)
	a.drawAxes(c, inner)
	for _, p := range parts {
		p.drawPart(&inner, func(x, y float64) vg.Point {
			return vg.Point{X: inner.X(a.x.fraction(x)), Y: inner.Y(a.y.fraction(y))}
		})
	}
}

// extendTo extends the axis to a list of numbers.
func (a *axis) extendTo(list []float64) {
	for _, x := range list {
		a.min, a.max = min(a.min, x), max(a.max, x)
	}
}

// addTicks widens the axis at both ends and sets its ticks. An axis without numbers runs
// from 1 to 10.
func (a *axis) addTicks(text func(float64) string) {
	if a.min > a.max {
		a.min, a.max = 1, 10
	}
	if !a.logarithmic {
		room := (a.max - a.min) * 0.02
		if a.max-a.min < minShown {
			if room = math.Abs(a.max) / 2; room < minShown {
				room = 0.5
			}
		}
		a.min, a.max = a.min-room, a.max+room
		a.ticks = evenTicks(a.min, a.max, text)
		return
	}
	room := math.Pow(a.max/a.min, 0.02)
	if a.min == a.max {
		room = 2
	}
	a.min, a.max = a.min/room, a.max*room
	a.ticks = powerTicks(a.min, a.max, text)
}

// drawGrid draws grey lines at the labels of both axes.
func (a *axes) drawGrid(c draw.Canvas) {
	style := draw.LineStyle{Color: color.Gray{0xdd}, Width: 0.25}
	for _, t := range a.x.visibleTicks() {
		if t.label != "" {
			x := c.X(a.x.fraction(t.value))
			c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
		}
	}
	for _, t := range a.y.visibleTicks() {
		if t.label != "" {
			y := c.Y(a.y.fraction(t.value))
			c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
		}
	}
}

// largestArea returns the largest area of all bubbles.
func (f *Figure) largestArea() (size float64) {
	for _, s := range f.Series {
		if s.Style == Bubbles {
			for _, x := range s.Size {
				size = max(size, x)
			}
		}
	}
	return size
}

// checkSeries returns an error if the series cannot be drawn.
func (f *Figure) checkSeries(s *Series) error {
	if len(s.X) != len(s.Y) || len(s.X) == 0 {
		return fmt.Errorf("%s: has %d values of x and %d of y", s.Name, len(s.X), len(s.Y))
	}
	if len(s.ErrorLow) != len(s.ErrorHigh) || len(s.ErrorLow) != 0 && len(s.ErrorLow) != len(s.Y) {
		return fmt.Errorf("%s: has %d values of y, %d low ends and %d high ones", s.Name, len(s.Y), len(s.ErrorLow), len(s.ErrorHigh))
	}
	if s.Style == Bubbles && len(s.Size) != len(s.X) {
		return fmt.Errorf("%s: has %d values of x and %d sizes", s.Name, len(s.X), len(s.Size))
	}
	for i, x := range s.X {
		if !canShow(x, f.XLinear) || !canShow(s.Y[i], f.YLinear) {
			return fmt.Errorf("%s: point %d is (%g, %g), which %s axes cannot show", s.Name, i, x, s.Y[i], f.axes())
		}
	}
	for i := range s.ErrorLow {
		if !canShow(s.ErrorLow[i], f.YLinear) || !canShow(s.ErrorHigh[i], f.YLinear) || s.ErrorLow[i] > s.Y[i] || s.ErrorHigh[i] < s.Y[i] {
			return fmt.Errorf("%s: the error bar of point %d is from %g to %g, y is %g", s.Name, i, s.ErrorLow[i], s.ErrorHigh[i], s.Y[i])
		}
	}
	for i, size := range s.Size {
		if !(size >= 0) || math.IsInf(size, 0) {
			return fmt.Errorf("%s: size %d is %g", s.Name, i, size)
		}
	}
	return nil
}

// maxShown is the largest number that is shown, and least the smallest on a logarithmic
// axis: differences and ratios of two such, and the room beside them, are finite.
const (
	maxShown = 1e150
	minShown = 1 / maxShown
)

// canShow reports whether x lies in the range of an axis.
func canShow(x float64, linear bool) bool {
	return math.Abs(x) <= maxShown && (linear || x >= minShown)
}

// axes returns the kind of axes, for errors.
func (f *Figure) axes() string {
	if f.XLinear && f.YLinear {
		return "linear"
	}
	return "logarithmic"
}

// seriesPen assigns colours and marks to successive series.
type seriesPen struct {
	colours, shapes numbering
	colour          color.Color
	turn            int // number of passes through the hues
	largest         float64
}

// drawnPart is a visible part of a series.
type drawnPart interface {
	// drawPart draws it to c, where a point of the data lies at at.
	drawPart(c *draw.Canvas, at func(x, y float64) vg.Point)
	// drawSample draws the symbol of the series in the legend.
	drawSample(c *draw.Canvas)
}

// seriesParts returns the parts of a series from back to front.
func (p *seriesPen) seriesParts(s *Series) []drawnPart {
	switch s.Style {
	case SolidLine, PlainLine, Bubbles:
		n := p.colours.numberOf(s.Colour, s.Colour == "")
		p.colour, p.turn = hues[n%len(hues)], n/len(hues)
	}
	line := &lineCurve{s, draw.LineStyle{Color: p.colour, Width: 1.5}}
	dots := &dotMarks{s, draw.GlyphStyle{Color: p.colour, Radius: 2.5}, p.largest}
	var parts []drawnPart
	switch s.Style {
	case SolidLine:
		dots.Shape = marks[(p.shapes.numberOf(s.Mark, false)+p.turn)%len(marks)]
		parts = []drawnPart{line, dots}
	case DashedLine:
		line.Dashes = []vg.Length{4, 3}
		parts = []drawnPart{line}
	case Crosses:
		dots.Radius, dots.Shape = 4, draw.CrossGlyph{}
		parts = []drawnPart{dots}
	case Rings:
		dots.Color, dots.Radius, dots.Shape = color.Black, 4, draw.RingGlyph{}
		parts = []drawnPart{dots}
	case PlainLine:
		line.Width = 1
		line.Dashes = dashes[p.turn%len(dashes)]
		parts = []drawnPart{line}
	case LevelLine:
		line.LineStyle = draw.LineStyle{Color: color.Gray{0x70}, Width: 1, Dashes: []vg.Length{1, 2}}
		parts = []drawnPart{line}
	case Bubbles:
		dots.Color, dots.Radius, dots.Shape = paleColour(p.colour), 4, draw.CircleGlyph{}
		parts = []drawnPart{dots}
	}
	if len(s.ErrorLow) > 0 {
		parts = append(parts, &errorBars{s, draw.LineStyle{Color: p.colour, Width: 0.5}})
	}
	return parts
}

// lineCurve is a line through the points.
type lineCurve struct {
	s *Series
	draw.LineStyle
}

func (l *lineCurve) drawPart(c *draw.Canvas, at func(x, y float64) vg.Point) {
	points := make([]vg.Point, len(l.s.X))
	for i, x := range l.s.X {
		points[i] = at(x, l.s.Y[i])
	}
	c.StrokeLines(l.LineStyle, points)
}

func (l *lineCurve) drawSample(c *draw.Canvas) {
	y := c.Center().Y
	c.StrokeLine2(l.LineStyle, c.Min.X, y, c.Max.X, y)
}

// dotMarks draws a mark at each point, with its own area for bubbles.
type dotMarks struct {
	s *Series
	draw.GlyphStyle
	largest float64
}

func (d *dotMarks) drawPart(c *draw.Canvas, at func(x, y float64) vg.Point) {
	for i, x := range d.s.X {
		style := d.GlyphStyle
		if d.s.Style == Bubbles {
			style.Radius = 1
			if d.largest > 0 {
				style.Radius = max(style.Radius, bubbleRadius*vg.Length(math.Sqrt(d.s.Size[i]/d.largest)))
			}
		}
		c.DrawGlyphNoClip(style, at(x, d.s.Y[i]))
	}
}

func (d *dotMarks) drawSample(c *draw.Canvas) { c.DrawGlyphNoClip(d.GlyphStyle, c.Center()) }

// errorBars draws the error bars of the points.
type errorBars struct {
	s *Series
	draw.LineStyle
}

func (b *errorBars) drawPart(c *draw.Canvas, at func(x, y float64) vg.Point) {
	const half = 2.5 // of the line at an end
	for i, x := range b.s.X {
		low, high := at(x, b.s.ErrorLow[i]), at(x, b.s.ErrorHigh[i])
		c.StrokeLines(b.LineStyle, []vg.Point{low, high})
		for _, end := range []vg.Point{low, high} {
			c.StrokeLine2(b.LineStyle, end.X-half, end.Y, end.X+half, end.Y)
		}
	}
}

func (b *errorBars) drawSample(*draw.Canvas) {}

// legend holds the names of series with samples of their parts.
type legend struct {
	names  []string
	parts  [][]drawnPart
	places []vg.Point // of the samples' upper left corners, below 0
}

func (l *legend) addEntry(name string, parts []drawnPart) {
	l.names, l.parts = append(l.names, name), append(l.parts, parts)
}

// Sizes of a legend.
const (
	sampleWidth = 20 * vg.Length(1)
	entryGap    = 12 * vg.Length(1) // between entries side by side
)

func legendStyle() draw.TextStyle { return textOf(titleFont, draw.XLeft, draw.YTop) }

// stackEntries places entries in a column and returns its width.
func (l *legend) stackEntries() (width vg.Length) {
	style := legendStyle()
	var y vg.Length
	for _, name := range l.names {
		l.places = append(l.places, vg.Point{Y: -y})
		y += style.Height(name) + 2
		width = max(width, style.Width(name))
	}
	return sampleWidth + 5*margin + width
}

// flowEntries places entries in lines of a width and returns the total height. Longer
// names are broken between words.
func (l *legend) flowEntries(width vg.Length) (height vg.Length) {
	style := legendStyle()
	var x, line vg.Length
	for i, name := range l.names {
		name = breakLines(style, name, width-sampleWidth-margin)
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

// breakLines breaks text between words into lines of at most width.
func breakLines(style draw.TextStyle, text string, width vg.Length) string {
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

// drawEntries draws the entries at their places below the upper left corner of c.
func (l *legend) drawEntries(c draw.Canvas) {
	style := legendStyle()
	height := style.Height("0") + 2
	for i, name := range l.names {
		place := c
		place.Min.X += l.places[i].X
		place.Max = vg.Point{X: place.Min.X + sampleWidth, Y: c.Max.Y + l.places[i].Y}
		place.Min.Y = place.Max.Y - height
		for _, p := range l.parts[i] {
			p.drawSample(&place)
		}
		c.FillText(style, vg.Point{X: place.Max.X + margin, Y: place.Max.Y - 1}, name)
	}
}

// paleColour returns a translucent colour.
func paleColour(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	return color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 0xa0}
}

// drawableText returns s with line breaks replaced by spaces, and control characters and
// invalid UTF-8 by a mark.
func drawableText(s string) string {
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

// numbering numbers names in order of appearance.
type numbering struct {
	numbers map[string]int
	next    int
}

// numberOf returns the number of name. A new name, or any name if alone is set, gets a
// new number.
func (p *numbering) numberOf(name string, alone bool) int {
	if i, seen := p.numbers[name]; seen && !alone {
		return i
	}
	if p.numbers == nil {
		p.numbers = map[string]int{}
	}
	i := p.next
	p.numbers[name] = i
	p.next++
	return i
}
