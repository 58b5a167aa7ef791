package report_test

import (
	"bytes"
	"image"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/report"
)

func decode(t *testing.T, draw func(io.Writer) error) image.Image {
	t.Helper()
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// colours counts the dots of each colour.
func colours(m image.Image) map[[3]uint32]int {
	count := map[[3]uint32]int{}
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			r, g, b, _ := m.At(x, y).RGBA()
			count[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	return count
}

func TestHeatColoursFollowValues(t *testing.T) {
	heat := func(values ...float64) map[[3]uint32]int {
		h := report.Heat{Rows: 1, Cols: len(values), Values: values}
		return colours(decode(t, h.WritePNG))
	}
	dark, bright, grey := [3]uint32{0x1b, 0x0c, 0x41}, [3]uint32{0xfc, 0xf0, 0x8a}, [3]uint32{0x9a, 0x9a, 0x9a}
	const cell = 1000 // dots, and fewer than there are of one cell
	c := heat(0, 1)
	if c[dark] < cell || c[bright] < cell || c[grey] > cell {
		t.Errorf("0 and 1: %d dark dots, %d bright, %d grey", c[dark], c[bright], c[grey])
	}
	if c := heat(0, 1, math.NaN(), math.Inf(1)); c[grey] < 2*cell {
		t.Errorf("%d grey dots for what is no number", c[grey])
	}
	if c := heat(-1, 1); c[dark]+c[bright] > 0 {
		t.Error("values of both signs have the colours of one")
	}
}

// TestLimitKeepsLargeWeightsFromDrowningTheRest: of a causal map the rows with few keys
// end the colours, and are marked so, and all maps have the same ends.
func TestLimitKeepsLargeWeightsFromDrowningTheRest(t *testing.T) {
	const n = 64
	causal := report.Heat{Title: "causal", Rows: n, Cols: n, Values: make([]float64, n*n)}
	for i := range n {
		for j := range i + 1 {
			causal.Values[i*n+j] = 1 / float64(i+1)
		}
	}
	m := report.Maps{Heats: []report.Heat{causal, {Title: "half", Rows: 1, Cols: 2, Values: []float64{0.02, -0.01}}, report.NewGreyHeat("picture", 1, 2, []byte{0, 255})}}
	end, _ := m.LimitColours(0.98)
	if !(end > 0.05 && end < 0.2) {
		t.Errorf("the colours end at %g, the first row has 1 and the last 1/64", end)
	}
	if m.Heats[0].ColourMax != end || m.Heats[1].ColourMax != end || m.Heats[0].ColourMin != m.Heats[1].ColourMin || m.Heats[2].ColourMax != 255 {
		t.Errorf("ends are %g, %g, of a picture %g", m.Heats[0].ColourMax, m.Heats[1].ColourMax, m.Heats[2].ColourMax)
	}
	var b bytes.Buffer
	if err := m.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "≥ ") != 1 {
		t.Error("the bar does not say that weights lie beyond it, or says it of maps where none does")
	}
	even := report.Maps{Heats: []report.Heat{{Rows: 1, Cols: 2, Values: []float64{1, 1.2}}}}
	if end, beyond := even.LimitColours(0.98); end != 0 || beyond != 0 || even.Heats[0].ColourMax != 1.2 {
		t.Errorf("weights of one size are cut off at %g", end)
	}
	nothing := report.Maps{Heats: []report.Heat{{Rows: 1, Cols: 2, Values: []float64{0, math.NaN()}}}}
	if end, _ := nothing.LimitColours(0.98); end != 0 {
		t.Errorf("maps of zeros end at %g", end)
	}
	for _, share := range []float64{1.5, -1, math.NaN(), math.Inf(1)} {
		even.LimitColours(share)
	}
	for value, want := range map[float64]float64{1. / 3: 0.34, 0.25: 0.25, 0.0991: 0.1, 0.3: 0.3} {
		thirds := report.Maps{Heats: []report.Heat{{Rows: 1, Cols: 6, Values: []float64{0, value, value, -value, 1, value}}}}
		if end, beyond := thirds.LimitColours(0.5); end != want || math.Abs(beyond-0.2) > 1e-12 {
			t.Errorf("four of %g and a one: ends at %g, %g lie beyond", value, end, beyond)
		}
	}
}

func TestHeatHasLabelsOfBothAxes(t *testing.T) {
	h := report.Heat{Title: "head 3", Rows: 2, Cols: 3, Values: make([]float64, 6),
		X: report.Axis{Label: "keys", Ticks: []string{"q", "<", "long label"}}, Y: report.Axis{Label: "queries", First: 40, Step: 5}}
	var a, b bytes.Buffer
	if err := h.WriteSVG(&a); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same matrix gives other bytes")
	}
	for _, want := range []string{"head 3", "keys", "queries", ">q<", "&lt;", "long label", ">40<", "data:image/png;base64"} {
		if !strings.Contains(a.String(), want) {
			t.Errorf("the map has no %q", want)
		}
	}
}

func TestReducedCellsAreMeansOfBlocks(t *testing.T) {
	h := report.Heat{Rows: 3, Cols: 4, Values: []float64{
		1, 3, 5, 5,
		5, 7, 5, math.NaN(),
		2, 4, 0, 9,
	}, X: report.Axis{First: 10, Ticks: make([]string, 4)}}
	got, side := h.ReduceCells(2)
	if want := []float64{4, 5, 3, 4.5}; side != 2 || got.Rows != 2 || got.Cols != 2 || !slices.Equal(got.Values, want) {
		t.Errorf("%d x %d by %d: %v, want %v", got.Rows, got.Cols, side, got.Values, want)
	}
	if got.X.First != 10 || got.X.Step != 2 || got.X.Ticks != nil {
		t.Errorf("columns are %+v", got.X)
	}
	if _, side := h.ReduceCells(4); side != 1 {
		t.Errorf("a small matrix is reduced by %d", side)
	}
	if _, side := (report.Heat{Rows: 100, Cols: 100}).ReduceCells(10); side != 1 {
		t.Errorf("a matrix without values is reduced by %d", side)
	}
}

func TestMapsThatCannotBe(t *testing.T) {
	for want, m := range map[string]report.Maps{
		"none: has 0 matrices":           {Title: "none"},
		"x: has 3 values, 2 rows of 2":   {Heats: []report.Heat{{Title: "x", Rows: 2, Cols: 2, Values: make([]float64, 3)}}},
		"x: has 0 values, 0 rows of 0":   {Heats: []report.Heat{{Title: "x"}}},
		"x: x has 1 labels, needs 2":     {Heats: []report.Heat{{Title: "x", Rows: 1, Cols: 2, Values: make([]float64, 2), X: report.Axis{Ticks: []string{"a"}}}}},
		"x: y has a step of -1":          {Heats: []report.Heat{{Title: "x", Rows: 1, Cols: 1, Values: make([]float64, 1), Y: report.Axis{Step: -1}}}},
		"x: colours are from 1 to 0":     {Heats: []report.Heat{{Title: "x", Rows: 1, Cols: 1, Values: make([]float64, 1), ColourMin: 1}}},
		"x: colours are from 0 to +Inf":  {Heats: []report.Heat{{Title: "x", Rows: 1, Cols: 1, Values: make([]float64, 1), ColourMax: math.Inf(1)}}},
		"x: has 4 values, -2 rows of -2": {Heats: []report.Heat{{Title: "x", Rows: -2, Cols: -2, Values: make([]float64, 4)}}},
	} {
		if err := m.WriteSVG(io.Discard); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A grey picture keeps its own ends beside matrices.
func TestGreyPictureKeepsItsOwnRange(t *testing.T) {
	picture := report.NewGreyHeat("a picture", 1, 3, []byte{0, 128, 255})
	maps := &report.Maps{Heats: []report.Heat{picture, {Rows: 1, Cols: 2, Values: []float64{0, 1}}}}
	c := colours(decode(t, maps.WritePNG))
	const cell = 1000
	for _, want := range [][3]uint32{{0, 0, 0}, {0x1b, 0x0c, 0x41}, {0xfc, 0xf0, 0x8a}} {
		if c[want] < cell {
			t.Errorf("%d dots of colour %x", c[want], want)
		}
	}
	middle := 0
	for k, n := range c {
		if k[0] == k[1] && k[1] == k[2] && k[0] > 64 && k[0] < 192 {
			middle = max(middle, n)
		}
	}
	if middle < cell {
		t.Errorf("%d dots of a grey between", middle)
	}
}
