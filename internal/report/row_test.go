package report_test

import (
	"bytes"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/report"
)

func TestRowHasItsFiguresAndOneLegend(t *testing.T) {
	figure := func(title string) *report.Figure {
		return &report.Figure{Title: title, Series: []report.Series{{Name: "softmax", X: []float64{1, 10}, Y: []float64{1, 100}}}}
	}
	r := report.Row{figure("time"), figure("memory")}
	var b bytes.Buffer
	if err := r.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]int{"time": 1, "memory": 1, "softmax": 1, "<svg": 1} {
		if n := strings.Count(b.String(), what); n != want {
			t.Errorf("%s is there %d times, want %d", what, n, want)
		}
	}
	one, two := new(bytes.Buffer), new(bytes.Buffer)
	for w, r := range map[*bytes.Buffer]report.Row{one: r[:1], two: r} {
		if err := r.WritePNG(w); err != nil {
			t.Fatal(err)
		}
	}
	a, errA := png.DecodeConfig(one)
	c, errC := png.DecodeConfig(two)
	if errA != nil || errC != nil || c.Width-2*a.Width > 1 || 2*a.Width-c.Width > 1 || c.Height != a.Height {
		t.Errorf("one figure has %d×%d pixels, two %d×%d; %v, %v", a.Width, a.Height, c.Width, c.Height, errA, errC)
	}
	if err := (report.Row{}).WriteSVG(io.Discard); err == nil {
		t.Error("a row without figures is drawn")
	}
}
