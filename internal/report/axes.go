package report

import (
	"image/color"
	"math"
	"strconv"
	"sync"

	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The axes stand on gonum's canvases alone. Its package plot would bring twelve
// fonts and the writers of three more formats into every program.

// Sizes of axes and of their text.
const (
	titleFont  = 12 * vg.Length(1)
	tickFont   = 10 * vg.Length(1)
	tickLength = 8 * vg.Length(1)
	axisRoom   = 5 * vg.Length(1) // between an axis and what is drawn, and between parts of an axis
)

// hairline is the style of axis lines.
var hairline = draw.LineStyle{Color: color.Black, Width: 0.5}

// sans is the font of all text. Helvetica and Arial have the same widths.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

var fonts = sync.OnceValue(func() *font.Cache {
	face, err := opentype.Parse(liberationsansregular.TTF)
	if err != nil {
		panic("report: the font of the program: " + err.Error())
	}
	return font.NewCache(font.Collection{{Font: sans, Face: face}})
})

// textOf returns a style of black text, aligned to a point by x and y.
func textOf(size vg.Length, x draw.XAlignment, y draw.YAlignment) draw.TextStyle {
	return draw.TextStyle{Color: color.Black, Font: font.From(sans, size), XAlign: x, YAlign: y, Handler: text.Plain{Fonts: fonts()}}
}

// tick is a mark on an axis; a mark without label is shorter.
type tick struct {
	value float64
	label string
}

// axis is the horizontal or the vertical axis.
type axis struct {
	label       string
	min, max    float64
	logarithmic bool
	ticks       []tick
	upright     bool // labels are rotated
	hidden      bool
	isTight     bool // no gap between the axis and the plot
}

// fraction returns the position of x on the axis, 0 at the low end and 1 at the high end.
func (a *axis) fraction(x float64) float64 {
	if a.logarithmic {
		return math.Log(x/a.min) / math.Log(a.max/a.min)
	}
	return (x - a.min) / (a.max - a.min)
}

// gap returns the distance between the axis and the plot.
func (a *axis) gap() vg.Length {
	if a.isTight {
		return 0
	}
	return axisRoom
}

// visibleTicks returns the ticks within the ends of the axis.
func (a *axis) visibleTicks() (list []tick) {
	const edge = 1e-9 // tolerance for rounding
	for _, t := range a.ticks {
		if p := a.fraction(t.value); p >= -edge && p <= 1+edge {
			list = append(list, t)
		}
	}
	return list
}

// widestLabel returns the width of the longest label.
func widestLabel(style draw.TextStyle, list []tick) (w vg.Length) {
	for _, t := range list {
		w = max(w, style.Width(t.label))
	}
	return w
}

// axes holds a title, a vertical axis on the left and a horizontal axis below.
type axes struct {
	title string
	x, y  axis
}

// innerCanvas returns the part of c that the axes leave for the plot.
func (a *axes) innerCanvas(c draw.Canvas) draw.Canvas {
	name, mark := textOf(titleFont, 0, 0), textOf(tickFont, 0, 0)
	var left, below, above vg.Length
	if !a.y.hidden {
		left = widestLabel(mark, a.y.visibleTicks()) + axisRoom + tickLength + a.y.gap()
		if a.y.label != "" {
			left += name.Height(a.y.label) + axisRoom
		}
	}
	if !a.x.hidden {
		below = mark.Height("0") + axisRoom + tickLength + a.x.gap()
		if a.x.upright {
			below += widestLabel(mark, a.x.visibleTicks())
		}
		if a.x.label != "" {
			below += name.Height(a.x.label) + axisRoom
		}
	}
	if a.title != "" {
		above = name.Height(a.title) + axisRoom
	}
	return draw.Crop(c, left, 0, below, -above)
}

// drawAxes draws the title and the axes around the inner part of c.
func (a *axes) drawAxes(c, inner draw.Canvas) {
	if a.title != "" {
		c.FillText(textOf(titleFont, draw.XCenter, draw.YTop), vg.Point{X: inner.Center().X, Y: c.Max.Y}, a.title)
	}
	if !a.x.hidden {
		a.x.drawBelow(c, inner)
	}
	if !a.y.hidden {
		a.y.drawLeft(c, inner)
	}
}

// markLength returns the length of the mark.
func (t tick) markLength() vg.Length {
	if t.label == "" {
		return tickLength / 2
	}
	return tickLength
}

// drawBelow draws a horizontal axis below the plot.
func (a *axis) drawBelow(c, inner draw.Canvas) {
	style := textOf(tickFont, draw.XCenter, draw.YTop)
	if a.upright {
		style.Rotation, style.XAlign, style.YAlign = math.Pi/2, draw.XRight, draw.YCenter
	}
	y := inner.Min.Y - a.gap()
	c.StrokeLine2(hairline, inner.Min.X, y, inner.Max.X, y)
	for _, t := range a.visibleTicks() {
		x := inner.X(a.fraction(t.value))
		c.StrokeLine2(hairline, x, y, x, y-t.markLength())
		c.FillText(style, vg.Point{X: x, Y: y - tickLength - axisRoom/2}, t.label)
	}
	c.FillText(textOf(titleFont, draw.XCenter, draw.YBottom), vg.Point{X: inner.Center().X, Y: c.Min.Y}, a.label)
}

// drawLeft draws a vertical axis left of the plot.
func (a *axis) drawLeft(c, inner draw.Canvas) {
	style := textOf(tickFont, draw.XRight, draw.YCenter)
	x := inner.Min.X - a.gap()
	c.StrokeLine2(hairline, x, inner.Min.Y, x, inner.Max.Y)
	for _, t := range a.visibleTicks() {
		y := inner.Y(a.fraction(t.value))
		c.StrokeLine2(hairline, x, y, x-t.markLength(), y)
		c.FillText(style, vg.Point{X: x - tickLength - axisRoom/2, Y: y}, t.label)
	}
	name := textOf(titleFont, draw.XCenter, draw.YTop)
	name.Rotation = math.Pi / 2
	c.FillText(name, vg.Point{X: c.Min.X, Y: inner.Center().Y}, a.label)
}

// powerTicks returns marks at 1 to 9 times the powers of ten from low to high. Powers of
// ten have labels, every second of them over many powers; over few, 2 and 5 times a power
// too.
func powerTicks(low, high float64, text func(float64) string) []tick {
	if text == nil {
		text = func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	}
	few, many := high < 1000*low, high > 1e9*low
	var list []tick
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for m := 1.0; m < 10; m++ {
			t := tick{value: m * math.Pow(10, e)}
			if m == 1 && !(many && math.Mod(e, 2) != 0) || few && (m == 2 || m == 5) {
				t.label = text(t.value)
			}
			list = append(list, t)
		}
	}
	return list
}

// evenTicks returns marks from low to high at a distance of 1, 2 or 5 times a power of
// ten, with labels on the major marks.
func evenTicks(low, high float64, text func(float64) string) []tick {
	const most = 6 // labels
	power := math.Pow(10, math.Floor(math.Log10((high-low)/most)))
	step, between := power, 5.0
	for _, m := range []struct{ times, between float64 }{{2, 2}, {5, 5}, {10, 5}} {
		if (high-low)/step > most {
			step, between = m.times*power, m.between
		}
	}
	if text == nil {
		digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
		text = func(x float64) string {
			if digits > 6 || math.Abs(x) >= 1e7 {
				return strconv.FormatFloat(x, 'g', 4, 64)
			}
			return strconv.FormatFloat(x, 'f', digits, 64)
		}
	}
	var list []tick
	first := math.Ceil(low * between / step)
	for i := range int(math.Floor(high*between/step)-first) + 1 {
		n := first + float64(i)
		// A number of steps, not a sum of them: 0 is 0.
		t := tick{value: n * step / between}
		if math.Mod(n, between) == 0 {
			t.label = text(t.value)
		}
		list = append(list, t)
	}
	return list
}
