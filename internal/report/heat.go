package report

import (
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Axis describes the rows or columns of a matrix.
type Axis struct {
	Label string
	Ticks []string // label of each row or column; nil: its position
	First int      // position of the first one
	Step  int      // positions for each row or column; 0: one
}

// Heat is a matrix that is drawn as colours, with the first row at the top. If a value is negative,
// the colour scale diverges at 0. NaN and values beyond ±1e150 are grey. Values beyond the scale
// have the colour of its end, which is then marked ≥ or ≤.
type Heat struct {
	Title                string
	X, Y                 Axis // the columns and the rows
	Rows, Cols           int
	Values               []float64 // [Rows·Cols], row by row
	ColourMin, ColourMax float64   // ends of the colour scale; if equal: the range of the values
	Grey                 bool      // draw a picture from black to white, with a scale of its own
}

// NewGreyHeat returns the picture levels [height·width] as a matrix.
func NewGreyHeat(title string, height, width int, levels []byte) Heat {
	h := Heat{Title: title, Rows: height, Cols: width, ColourMax: 255, Grey: true}
	for _, p := range levels {
		h.Values = append(h.Values, float64(p))
	}
	return h
}

// Maps is a set of matrices side by side.
type Maps struct {
	Title   string
	Heats   []Heat
	Columns int // matrices side by side; 0: all, but at most 4
}

// Sizes of maps.
const (
	mapSize      = 220 * vg.Length(1) // of the longer side of a matrix, and of the least of the other
	labelledCell = 9 * vg.Length(1)   // least distance of labels
	maxLabelled  = 64                 // rows or columns that are labelled one by one
	barWidth     = 62 * vg.Length(1)
	titleHeight  = 24 * vg.Length(1)
	mapsInARow   = 4
	colourSteps  = 255
)

// WriteSVG draws the matrix as SVG. Equal matrices give equal bytes. It returns an error
// if the matrix is invalid or w fails.
func (h *Heat) WriteSVG(w io.Writer) error { return h.singleMap().WriteSVG(w) }

// WritePNG draws the matrix as PNG. It returns an error if the matrix is invalid or w
// fails.
func (h *Heat) WritePNG(w io.Writer) error { return h.singleMap().WritePNG(w) }

// singleMap returns the matrix as Maps.
func (h *Heat) singleMap() *Maps { return &Maps{Heats: []Heat{*h}} }

// WriteSVG draws the matrices as SVG. Equal matrices give equal bytes. It returns an
// error if a matrix is invalid or w fails.
func (m *Maps) WriteSVG(w io.Writer) error { return sansSVG(w, m.writeTo) }

// WritePNG draws the matrices as PNG. It returns an error if a matrix is invalid or w
// fails.
func (m *Maps) WritePNG(w io.Writer) error { return m.writeTo(w, pngCanvas) }

// writeTo draws the matrices.
func (m *Maps) writeTo(w io.Writer, canvas newCanvas) error {
	if len(m.Heats) == 0 {
		return fmt.Errorf("%s: has 0 matrices", m.Title)
	}
	cols := m.Columns
	if cols <= 0 {
		cols = min(len(m.Heats), mapsInARow)
	}
	cols = min(cols, len(m.Heats))
	ends, err := m.colourRanges()
	if err != nil {
		return err
	}
	panels := make([]panel, len(m.Heats))
	var width, height vg.Length // of the widest and the highest panel
	for i := range m.Heats {
		if panels[i], err = m.Heats[i].layOutPanel(ends[i], false); err != nil {
			return err
		}
		width, height = max(width, panels[i].width), max(height, panels[i].height)
	}
	style := textOf(titleFont, draw.XCenter, draw.YTop)
	top := margin
	if m.Title != "" {
		top += titleHeight
	}
	rows := (len(panels) + cols - 1) / cols
	all := vg.Point{X: max(vg.Length(cols)*width, style.Width(drawableText(m.Title))) + 2*margin, Y: vg.Length(rows)*height + margin + top}
	c := canvas(all.X, all.Y)
	dc := draw.New(c)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	if m.Title != "" {
		dc.FillText(style, vg.Point{X: all.X / 2, Y: all.Y - margin}, drawableText(m.Title))
	}
	for i := range panels {
		x := margin + vg.Length(i%cols)*width
		y := all.Y - top - vg.Length(i/cols+1)*height
		panels[i].drawPanel(draw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y + height - panels[i].height},
			Max: vg.Point{X: x + panels[i].width, Y: y + height},
		}})
	}
	_, err = c.WriteTo(w)
	return err
}

// colourRanges returns the ends of each colour scale.
func (m *Maps) colourRanges() ([][2]float64, error) {
	ends := make([][2]float64, len(m.Heats))
	for i := range m.Heats {
		h := &m.Heats[i]
		if !h.hasAllValues() {
			return nil, fmt.Errorf("%s: has %d values, %d rows of %d", h.Title, len(h.Values), h.Rows, h.Cols)
		}
		if err := errorsOf(h.Title, "y", h.Y, h.Rows); err != nil {
			return nil, err
		}
		if err := errorsOf(h.Title, "x", h.X, h.Cols); err != nil {
			return nil, err
		}
		if !canShow(h.ColourMin, true) || !canShow(h.ColourMax, true) || h.ColourMin > h.ColourMax {
			return nil, fmt.Errorf("%s: colours are from %g to %g", h.Title, h.ColourMin, h.ColourMax)
		}
		ends[i] = h.colourRange()
	}
	return ends, nil
}

// hasAllValues reports whether there is a value for each row and column.
func (h *Heat) hasAllValues() bool {
	return h.Rows > 0 && h.Cols > 0 && len(h.Values)/h.Rows == h.Cols && len(h.Values)%h.Rows == 0
}

// errorsOf returns an error if an axis does not fit n rows or columns.
func errorsOf(title, name string, a Axis, n int) error {
	switch {
	case a.Ticks != nil && len(a.Ticks) != n:
		return fmt.Errorf("%s: %s has %d labels, needs %d", title, name, len(a.Ticks), n)
	case a.Step < 0:
		return fmt.Errorf("%s: %s has a step of %d", title, name, a.Step)
	}
	return nil
}

// colourRange returns the ends of the colour scale: Low and High, or the range of the
// values and 0.
func (h *Heat) colourRange() [2]float64 {
	if h.ColourMin < h.ColourMax {
		return [2]float64{h.ColourMin, h.ColourMax}
	}
	var low, high float64
	for _, x := range h.Values {
		if canShow(x, true) {
			low, high = min(low, x), max(high, x)
		}
	}
	if low == high {
		high = low + 1
	}
	return [2]float64{low, high}
}

// panel is a matrix with its axes and its colour bar.
type panel struct {
	axes, bar     axes
	isBare        bool // without the bar
	matrix, scale image.Image
	width, height vg.Length // including axes and bar
	size          vg.Point  // of the matrix
}

// layOutPanel lays out the matrix with its title and colour bar; without both if bare,
// for a page.
func (h *Heat) layOutPanel(ends [2]float64, bare bool) (panel, error) {
	colours, err := h.colourPalette(ends)
	if err != nil {
		return panel{}, err
	}
	width, height := h.pageSize()
	x, y := h.X.layOutTicks(h.Cols, width), h.Y.layOutTicks(h.Rows, height)
	for i := range y { // the first row is at the top
		y[i].value = float64(h.Rows) - y[i].value
	}
	p := panel{
		axes: axes{
			title: drawableText(h.Title),
			x:     axis{label: drawableText(h.X.Label), max: float64(h.Cols), ticks: x, upright: h.X.Ticks != nil && longestLabel(x) > 2, isTight: true},
			y:     axis{label: drawableText(h.Y.Label), max: float64(h.Rows), ticks: y, isTight: true},
		},
		bar: axes{
			x: axis{hidden: true},
			y: axis{min: ends[0], max: ends[1], ticks: h.barTicks(ends), isTight: true},
		},
		matrix: h.rasterise(ends, colours, width, height), scale: scaleOf(colours),
		size: vg.Point{X: width, Y: height},
	}
	barRoom := barWidth
	if bare {
		p.axes.title, barRoom = "", 0
	}
	p.isBare = bare
	// The room that the axes take.
	page := draw.Canvas{Rectangle: vg.Rectangle{Max: vg.Point{X: 2 * width, Y: 2 * height}}}
	inner := p.axes.innerCanvas(page)
	left, below, above := inner.Min.X, inner.Min.Y, page.Max.Y-inner.Max.Y
	title := textOf(titleFont, 0, 0).Width(p.axes.title)
	p.width = max(width+left+2*margin, title) + barRoom
	p.height = height + below + above + 2*margin
	return p, nil
}

// drawPanel draws the panel on c.
func (p *panel) drawPanel(c draw.Canvas) {
	c = draw.Crop(c, 0, 0, margin, -margin)
	inner := p.axes.innerCanvas(c)
	inner.Max.X = inner.Min.X + p.size.X
	p.axes.drawAxes(c, inner)
	inner.DrawImage(inner.Rectangle, p.matrix)
	if p.isBare {
		return
	}
	// The bar is as high as the matrix.
	bar := c
	bar.Min, bar.Max = vg.Point{X: c.Max.X - barWidth + 2*margin, Y: inner.Min.Y}, vg.Point{X: c.Max.X - 2*margin, Y: inner.Max.Y}
	scale := p.bar.innerCanvas(bar)
	p.bar.drawAxes(bar, scale)
	scale.DrawImage(scale.Rectangle, p.scale)
}

// barTicks returns the ticks of the colour bar, and marks the ends that values exceed.
func (h *Heat) barTicks(ends [2]float64) []tick {
	low, high := h.exceedsRange(ends)
	list := evenTicks(ends[0], ends[1], nil)
	room := (ends[1] - ends[0]) / 10
	mark := func(value float64, sign string) {
		for i := range list {
			if math.Abs(list[i].value-value) < room {
				list[i].label = ""
			}
		}
		list = append(list, tick{value, sign + strconv.FormatFloat(value, 'g', 2, 64)})
	}
	if low {
		mark(ends[0], "≤ ")
	}
	if high {
		mark(ends[1], "≥ ")
	}
	return list
}

// exceedsRange reports whether values lie below and above the ends.
func (h *Heat) exceedsRange(ends [2]float64) (low, high bool) {
	for _, x := range h.Values {
		if canShow(x, true) {
			low, high = low || x < ends[0], high || x > ends[1]
		}
	}
	return low, high
}

// pageSize returns the sides of the matrix on the page. Cells are square unless the
// matrix would be too flat.
func (h *Heat) pageSize() (width, height vg.Length) {
	width, height = mapSize, mapSize
	if r := vg.Length(h.Rows) / vg.Length(h.Cols); r < 1 {
		height = max(height*r, mapSize/4)
	} else {
		width = max(width/r, mapSize/4)
	}
	grow := vg.Length(1)
	if n := len(h.X.Ticks); n <= maxLabelled {
		grow = max(grow, labelledCell*vg.Length(n)/width)
	}
	if n := len(h.Y.Ticks); n <= maxLabelled {
		grow = max(grow, labelledCell*vg.Length(n)/height)
	}
	return width * grow, height * grow
}

// layOutTicks returns the labels of n cells along a side, at the middles of the cells.
func (a Axis) layOutTicks(n int, length vg.Length) []tick {
	var list []tick
	if a.Ticks != nil && n <= maxLabelled {
		for i, text := range a.Ticks {
			list = append(list, tick{float64(i) + 0.5, drawableText(text)})
		}
		return list
	}
	step := max(a.Step, 1)
	every := niceStep(float64(n*step) * float64(4*labelledCell/length)) // in positions
	for i := range n {
		// A cell of several positions has the label that lies in it.
		at := a.First + i*step
		if mark := (at + step - 1) / every * every; mark >= at && at+step-1 >= 0 {
			list = append(list, tick{float64(i) + (float64(mark-at)+0.5)/float64(step), strconv.Itoa(mark)})
		}
	}
	return list
}

// niceStep returns the least of 1, 2, 5, 10, 20 … that is at least x.
func niceStep(x float64) int {
	for p := 1; ; p *= 10 {
		for _, m := range []int{1, 2, 5} {
			if float64(m*p) >= x {
				return m * p
			}
		}
	}
}

// longestLabel returns the number of characters of the longest label.
func longestLabel(list []tick) (n int) {
	for _, t := range list {
		n = max(n, len([]rune(t.label)))
	}
	return n
}

// lightness is a scale from dark to light with even steps in lightness, also distinct for
// readers with red or green blindness.
var lightness = []color.Color{
	color.RGBA{0x1b, 0x0c, 0x41, 0xff},
	color.RGBA{0x3b, 0x4d, 0x8a, 0xff},
	color.RGBA{0x1f, 0x8f, 0x8c, 0xff},
	color.RGBA{0x6c, 0xc8, 0x5c, 0xff},
	color.RGBA{0xfc, 0xf0, 0x8a, 0xff},
}

// colourPalette returns the colours between two ends, with lightness linear in the value.
// The scale runs from dark to light. If 0 lies between the ends, it runs from blue over
// white at 0 to red.
func (h *Heat) colourPalette(ends [2]float64) (color.Palette, error) {
	some := lightness
	if h.Grey {
		some = []color.Color{color.Black, color.White}
	}
	colours, err := moreland.NewLuminance(some)
	if err != nil {
		return nil, err
	}
	low, high := ends[0], ends[1]
	if low < 0 && high > 0 && !h.Grey {
		colours = moreland.SmoothBlueRed()
		high = max(-low, high)
		low = -high
	}
	colours.SetMin(low)
	colours.SetMax(high)
	list := make(color.Palette, colourSteps, colourSteps+1)
	for i := range list {
		x := ends[0] + (ends[1]-ends[0])*float64(i)/(colourSteps-1)
		c, err := colours.At(min(max(x, low), high))
		if err != nil {
			return nil, err
		}
		list[i] = color.RGBAModel.Convert(c)
	}
	return append(list, color.RGBA{0x9a, 0x9a, 0x9a, 0xff}), nil
}

// rasterise returns the matrix as an image, with enough dots per cell to stay sharp when
// enlarged.
func (h *Heat) rasterise(ends [2]float64, colours color.Palette, width, height vg.Length) image.Image {
	const inch = 72
	dots := func(cells int, length vg.Length) int {
		return max(1, int(math.Ceil(float64(length)*dotsAnInch/inch/float64(cells))))
	}
	dx, dy := dots(h.Cols, width), dots(h.Rows, height)
	m := image.NewPaletted(image.Rect(0, 0, h.Cols*dx, h.Rows*dy), colours)
	for i := range h.Rows {
		row := m.Pix[i*dy*m.Stride:]
		for j := range h.Cols {
			c := uint8(colourSteps) // grey
			if x := h.Values[i*h.Cols+j]; canShow(x, true) {
				c = uint8(math.Round(min(max((x-ends[0])/(ends[1]-ends[0]), 0), 1) * (colourSteps - 1)))
			}
			for d := range dx {
				row[j*dx+d] = c
			}
		}
		for d := 1; d < dy; d++ {
			copy(row[d*m.Stride:][:m.Stride], row)
		}
	}
	return m
}

// scaleOf returns a column of all colours, the last at the top.
func scaleOf(colours color.Palette) image.Image {
	m := image.NewPaletted(image.Rect(0, 0, 1, colourSteps), colours)
	for i := range m.Pix {
		m.Pix[i] = uint8(colourSteps - 1 - i)
	}
	return m
}

// LimitColours sets the colour scales of all matrices except grey ones to ±q, so that a few large
// values do not hide the rest. The fraction share of the nonzero values lies within ±q.
// LimitColours returns q and the fraction of the nonzero values beyond it, or zeros if there are
// none. A share below 0 or NaN counts as 0, and a share above 1 as 1.
func (m *Maps) LimitColours(share float64) (q, beyond float64) {
	var sizes []float64
	low := 0.
	for _, h := range m.Heats {
		for _, x := range h.Values {
			if !h.Grey && x != 0 && canShow(x, true) {
				sizes = append(sizes, math.Abs(x))
				low = min(low, x)
			}
		}
	}
	if len(sizes) == 0 {
		return 0, 0
	}
	slices.Sort(sizes)
	largest := sizes[len(sizes)-1]
	if !(share >= 0) {
		share = 0
	}
	q = roundUp(sizes[int(min(share, 1)*float64(len(sizes)-1))])
	if q <= 0 || largest < 1.5*q {
		q = largest
	}
	for i := range m.Heats {
		if h := &m.Heats[i]; !h.Grey {
			h.ColourMin, h.ColourMax = max(low, -q), q
		}
	}
	if q == largest {
		return 0, 0
	}
	within, _ := slices.BinarySearch(sizes, math.Nextafter(q, math.Inf(1)))
	return q, 1 - float64(within)/float64(len(sizes))
}

// roundUp returns the least number of two digits that is not below x ≥ 0, so that the label
// at the end of the bar is exact.
func roundUp(x float64) float64 {
	text := strconv.FormatFloat(x, 'e', 1, 64) // such as 3.3e-01
	q, _ := strconv.ParseFloat(text, 64)
	if q < x {
		unit, _ := strconv.ParseFloat("0.1"+text[3:], 64)
		q, _ = strconv.ParseFloat(strconv.FormatFloat(q+unit, 'e', 1, 64), 64)
	}
	return q
}

// ReduceCells returns the matrix with at most most rows and columns. Each element is the mean of a
// square block, whose side is returned, without its NaNs. A most below 1 counts as 1. If Values
// does not have Rows·Cols elements, the matrix is returned unchanged.
func (h Heat) ReduceCells(most int) (_ Heat, side int) {
	most = max(most, 1)
	side = max(1, (max(h.Rows, h.Cols)+most-1)/most)
	if side == 1 || !h.hasAllValues() {
		return h, 1
	}
	rows, cols := (h.Rows+side-1)/side, (h.Cols+side-1)/side
	values := make([]float64, rows*cols)
	for i := range rows {
		for j := range cols {
			var sum float64
			var n int
			for r := i * side; r < min((i+1)*side, h.Rows); r++ {
				for _, x := range h.Values[r*h.Cols+j*side : r*h.Cols+min((j+1)*side, h.Cols)] {
					if canShow(x, true) {
						sum += x
						n++
					}
				}
			}
			values[i*cols+j] = sum / float64(n)
		}
	}
	h.X, h.Y = h.X.reduceTicks(side), h.Y.reduceTicks(side)
	h.Rows, h.Cols, h.Values = rows, cols, values
	return h, side
}

// reduceTicks returns the axis for blocks of side cells.
func (a Axis) reduceTicks(side int) Axis {
	a.Ticks, a.Step = nil, max(a.Step, 1)*side
	return a
}

// turnedImage is a column of dots laid down as a row, the last dot first.
type turnedImage struct{ image.Image }

// Bounds returns the size of the turned row.
func (t turnedImage) Bounds() image.Rectangle { return image.Rect(0, 0, t.Image.Bounds().Dy(), 1) }

// At returns the colour of dot x.
func (t turnedImage) At(x, _ int) color.Color { return t.Image.At(0, t.Image.Bounds().Dy()-1-x) }
