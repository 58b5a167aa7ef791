package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/report"
)

func ExampleFigure_WriteSVG() {
	f := report.Figure{
		Title: "time of a call", XLabel: "tokens", YLabel: "seconds",
		Series: []report.Series{
			{Name: "softmax", X: []float64{100, 1000}, Y: []float64{1e-4, 1e-2}},
			{Name: "softmax, extrapolated", X: []float64{1000, 10000}, Y: []float64{1e-2, 1}, Dashed: true},
		},
	}
	var b bytes.Buffer
	err := f.WriteSVG(&b)
	fmt.Println(err, strings.Count(b.String(), "<svg"))
	// Output: <nil> 1
}

func TestWriteSVG(t *testing.T) {
	f := report.Figure{
		Title: "title", XLabel: "across", YLabel: "up",
		Series: []report.Series{
			{Name: "first", X: []float64{1, 10, 100}, Y: []float64{1, 2, 4}},
			{Name: "second", X: []float64{1, 10, 100}, Y: []float64{1, 100, 1e4}},
			{Name: "beyond", X: []float64{100, 1000}, Y: []float64{1e4, 1e6}, Dashed: true},
			{Name: "never", X: []float64{1000}, Y: []float64{1e8}, Crosses: true},
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
	for _, want := range []string{"title", "across", "up", "first", "second", "beyond", "stroke-dasharray"} {
		if !strings.Contains(a.String(), want) {
			t.Errorf("the figure has no %q", want)
		}
	}
	if strings.Contains(a.String(), "never") {
		t.Error("crosses have a name in the legend")
	}
	for d := xml.NewDecoder(&a); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWritePNG(t *testing.T) {
	line := report.Series{Name: "line", X: []float64{1, 10}, Y: []float64{1, 10}}
	cross := report.Series{X: []float64{100}, Y: []float64{100}, Crosses: true}
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

func TestOnePoint(t *testing.T) {
	f := report.Figure{Series: []report.Series{{Name: "one", X: []float64{0.5}, Y: []float64{0.25}}}}
	if err := f.WriteSVG(io.Discard); err != nil {
		t.Error(err)
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
	} {
		f := report.Figure{Series: []report.Series{c.s}}
		if err := f.WriteSVG(io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
