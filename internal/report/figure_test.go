package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/report"
)

func ExampleFigure_WriteSVG() {
	f := report.Figure{
		Title: "time of a call", XLabel: "tokens", YLabel: "seconds",
		Series: []report.Series{
			{Name: "softmax", X: []float64{100, 1000}, Y: []float64{1e-4, 1e-2}},
			{Name: "softmax, extrapolated", X: []float64{1000, 10000}, Y: []float64{1e-2, 1}, Style: report.DashedLine},
		},
	}
	var b bytes.Buffer
	err := f.WriteSVG(&b)
	fmt.Println(err, strings.Count(b.String(), "<svg"))
	// Output: <nil> 1
}

func TestSVGHasTitlesLabelsAndSeries(t *testing.T) {
	f := report.Figure{
		Title: "title", XLabel: "across", YLabel: "up",
		YText: func(y float64) string { return fmt.Sprintf("<%g>", y) },
		Series: []report.Series{
			{Name: "first", X: []float64{1, 10, 100}, Y: []float64{1, 2, 4}},
			{Name: "second", X: []float64{1, 10, 100}, Y: []float64{1, 100, 1e4}},
			{Name: "beyond", X: []float64{100, 1000}, Y: []float64{1e4, 1e6}, Style: report.DashedLine},
			{Name: "never", X: []float64{1000}, Y: []float64{1e8}, Style: report.Crosses},
			{Name: "meeting", X: []float64{1}, Y: []float64{1}, Style: report.Rings},
		},
	}
	var a, b bytes.Buffer
	if err := f.WriteSVG(&a); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same figure gives other bytes")
	}
	for _, want := range []string{"title", "across", "up", "first", "second", "beyond", "never", "meeting", "stroke-dasharray", ">100<", "&lt;10000&gt;"} {
		if !strings.Contains(a.String(), want) {
			t.Errorf("the figure has no %q", want)
		}
	}
	for d := xml.NewDecoder(&a); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPNGShowsEverySeries(t *testing.T) {
	line := report.Series{Name: "line", X: []float64{1, 10}, Y: []float64{1, 10}}
	cross := report.Series{X: []float64{100}, Y: []float64{100}, Style: report.Crosses}
	var plain, crossed bytes.Buffer
	for b, f := range map[*bytes.Buffer]report.Figure{
		&plain:   {Series: []report.Series{line}},
		&crossed: {Series: []report.Series{line, cross}},
	} {
		if err := f.WritePNG(b); err != nil {
			t.Fatal(err)
		}
		if _, err := png.Decode(bytes.NewReader(b.Bytes())); err != nil {
			t.Error(err)
		}
	}
	if bytes.Equal(plain.Bytes(), crossed.Bytes()) {
		t.Error("a cross changes nothing")
	}
}

// svg returns the figure of those series as SVG.
func svg(t *testing.T, series ...report.Series) string {
	t.Helper()
	var b strings.Builder
	f := report.Figure{Series: series}
	if err := f.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestColoursAndMarks(t *testing.T) {
	line := func(colour, mark string) report.Series {
		return report.Series{X: []float64{1, 10}, Y: []float64{1, 10}, Colour: colour, Mark: mark}
	}
	const blue, red = "#0072B2", "#D55E00"
	for _, c := range []struct {
		name string
		svg  string
		red  bool
	}{
		{"the same", svg(t, line("a", "x"), line("a", "y")), false},
		{"another", svg(t, line("a", "x"), line("b", "x")), true},
		{"none", svg(t, line("", ""), line("", "")), true},
	} {
		if !strings.Contains(c.svg, blue) || strings.Contains(c.svg, red) != c.red {
			t.Errorf("%s: blue %t, red %t", c.name, strings.Contains(c.svg, blue), strings.Contains(c.svg, red))
		}
	}
	if svg(t, line("a", "x"), line("a", "x")) == svg(t, line("a", "x"), line("a", "y")) {
		t.Error("other marks look the same")
	}
}

func TestLegendIsBeside(t *testing.T) {
	width := func(name string) float64 {
		text := svg(t, report.Series{Name: name, X: []float64{1, 10}, Y: []float64{1, 10}})
		_, text, _ = strings.Cut(text, `<svg width="`)
		text, _, _ = strings.Cut(text, "pt")
		w, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if short, long := width("a"), width("a long name of a series"); long < short+50 {
		t.Errorf("%g points wide with a long name, %g with a short one", long, short)
	}
}

func TestFigureOfOnePointIsDrawn(t *testing.T) {
	f := report.Figure{Series: []report.Series{{Name: "one", X: []float64{0.5}, Y: []float64{0.25}}}}
	if err := f.WriteSVG(io.Discard); err != nil {
		t.Error(err)
	}
}

// Axes of any numbers that they show have ends and marks.
func TestAxesSpanAnyFiniteRange(t *testing.T) {
	for _, y := range [][]float64{{1e-150, 1e150}, {1, math.Nextafter(1, 2)}, {-1e150, 1e150}, {0, 5e-324}, {-1e-310, 1e-310}, {1e150, math.Nextafter(1e150, 0)}} {
		f := report.Figure{XLinear: true, YLinear: y[0] <= 0, Series: []report.Series{{X: []float64{1, 2}, Y: y}}}
		var b bytes.Buffer
		if err := f.WriteSVG(&b); err != nil || bytes.Contains(b.Bytes(), []byte("NaN")) || bytes.Contains(b.Bytes(), []byte("Inf")) {
			t.Errorf("y from %g to %g: %v, %d bytes", y[0], y[1], err, b.Len())
		}
	}
}

func TestFiguresThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		s    report.Series
		want string
	}{
		{report.Series{Name: "short", X: []float64{1, 2}, Y: []float64{1}}, "short: has 2 values of x and 1 of y"},
		{report.Series{Name: "empty"}, "empty: has 0 values of x and 0 of y"},
		{report.Series{Name: "zero", X: []float64{1}, Y: []float64{0}}, "zero: point 0 is (1, 0)"},
		{report.Series{Name: "none", X: []float64{1}, Y: []float64{math.NaN()}}, "none: point 0 is (1, NaN)"},
		{report.Series{Name: "far", X: []float64{1, 2}, Y: []float64{1, 1e308}}, "far: point 1 is (2, 1e+308)"},
		{report.Series{Name: "near", X: []float64{1e-310, 2}, Y: []float64{1, 1}}, "near: point 0 is (1e-310, 1)"},
		{report.Series{Name: "bars", X: []float64{1}, Y: []float64{1}, ErrorLow: []float64{0.5}}, "bars: has 1 values of y, 1 low ends and 0 high ones"},
		{report.Series{Name: "bar", X: []float64{1}, Y: []float64{1}, ErrorLow: []float64{2}, ErrorHigh: []float64{3}}, "bar: the error bar of point 0 is from 2 to 3, y is 1"},
		{report.Series{Name: "discs", X: []float64{1}, Y: []float64{1}, Style: report.Bubbles}, "discs: has 1 values of x and 0 sizes"},
		{report.Series{Name: "disc", X: []float64{1}, Y: []float64{1}, Size: []float64{-1}, Style: report.Bubbles}, "disc: size 0 is -1"},
	} {
		f := report.Figure{Series: []report.Series{c.s}}
		if err := f.WriteSVG(io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestLinearAxes(t *testing.T) {
	f := report.Figure{XLinear: true, YLinear: true, YText: func(y float64) string { return fmt.Sprintf("%g%%", y) }, Series: []report.Series{
		{Name: "a", X: []float64{-1, 0, 1}, Y: []float64{-10, 0, 10}, ErrorLow: []float64{-12, -1, 9}, ErrorHigh: []float64{-9, 1, 11}},
		{Name: "b", X: []float64{-1, 1}, Y: []float64{3, 3}, Style: report.LevelLine},
		{Name: "c", X: []float64{-1, 1}, Y: []float64{4, 5}, Style: report.PlainLine},
	}}
	var b strings.Builder
	if err := f.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">-10%<", ">10%<", ">0%<"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the figure has no %q", want)
		}
	}
	f.YLinear = false
	if err := f.WriteSVG(&b); err == nil {
		t.Error("a logarithmic axis shows -10")
	}
}

func TestErrorBarsAndBubbles(t *testing.T) {
	point := report.Series{X: []float64{1, 10}, Y: []float64{1, 10}}
	bars := point
	bars.ErrorLow, bars.ErrorHigh = []float64{0.5, 5}, []float64{2, 20}
	if len(svg(t, bars)) <= len(svg(t, point)) {
		t.Error("error bars draw nothing")
	}
	bubbles := point
	sizes := []float64{1, 4, 9}
	bubbles.Style, bubbles.Size = report.Bubbles, sizes[:2]
	text := svg(t, bubbles)
	if sizes[2] != 9 {
		t.Errorf("the number behind the sizes is %v, was 9", sizes[2])
	}
	for _, want := range []string{"A18,18", "A9,9"} { // radii go with the root of the area
		if !strings.Contains(text, want) {
			t.Errorf("no disc of %s", want)
		}
	}
}

func TestManySeriesDiffer(t *testing.T) {
	var all []report.Series
	for range 8 {
		all = append(all, report.Series{X: []float64{1, 10}, Y: []float64{1, 10}})
	}
	one, eight := svg(t, all[:1]...), svg(t, all...)
	if circles := strings.Count(eight, "A2.5,2.5"); circles > 7*strings.Count(one, "A2.5,2.5") {
		t.Error("the eighth series has the colour and the mark of the first")
	}
}
