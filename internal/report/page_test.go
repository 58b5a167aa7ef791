package report_test

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"image"
	"image/png"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/report"
)

var write = flag.Bool("write", false, "write the golden pages")

func ExamplePage() {
	p := report.Page{
		Title: "Loss by mechanism",
		Sections: []report.Section{{
			Title: "Result",
			Text:  "One seed.",
			Table: &report.Table{
				Head: []string{"mechanism", "loss"},
				Rows: [][]string{{"softmax", "1.52"}, {"fastmax", "1.49"}},
			},
		}},
		Origin: report.Origin{Command: "farfield train", Seeds: []uint64{1}},
	}
	if err := p.WriteMarkdown(os.Stdout, ""); err != nil {
		fmt.Println(err)
	}
	// Output:
	// # Loss by mechanism
	//
	// ## Result
	//
	// One seed.
	//
	// | mechanism | loss |
	// |---|---:|
	// | softmax | 1.52 |
	// | fastmax | 1.49 |
	//
	// - command: farfield train
	// - seeds: 1
}

func dots(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fullPage has one of everything; every text of it is text.
func fullPage(t *testing.T, text string) *report.Page {
	h := report.Heat{Title: text, Rows: 2, Cols: 2, Values: []float64{0, 1, 2, 3}, X: report.Axis{Label: text, Ticks: []string{text, "b"}}}
	return &report.Page{
		Title: text, Verdict: text, Lead: text,
		Sections: []report.Section{
			{Title: text, Text: text, Table: &report.Table{Title: text, Head: []string{text, "n"}, Rows: [][]string{{text, "1"}, {"", text}}, Note: text}},
			{Figure: &report.Figure{Title: text, XLabel: text, YLabel: text, Series: []report.Series{{Name: text, X: []float64{1, 2}, Y: []float64{1, 3}}}}, Caption: text},
			{Maps: &report.Maps{Title: text, Heats: []report.Heat{h, h}}},
			{Picture: &report.Picture{Name: text, PNG: dots(t)}, Caption: text, Code: text},
		},
		Origin: report.Origin{Command: text, Config: map[string]string{"key": text}, Machine: text, Commit: text},
	}
}

func htmlOf(t *testing.T, p *report.Page) string {
	t.Helper()
	var b strings.Builder
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func markdownOf(t *testing.T, p *report.Page, prefix string) string {
	t.Helper()
	var b strings.Builder
	if err := p.WriteMarkdown(&b, prefix); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var tags = regexp.MustCompile(`<[/!a-zA-Z][^>]*>`)

// skeleton is what a browser reads as marks: all tags, with what texts and sizes put in them
// left out.
func skeleton(page string) string {
	var b strings.Builder
	for _, tag := range tags.FindAllString(page, -1) {
		name, _, _ := strings.Cut(strings.Trim(tag, "<>"), " ")
		name, _, _ = strings.Cut(name, "\n")
		b.WriteString(name + " ")
	}
	// Long text is turned, or has several lines.
	return regexp.MustCompile(`(text /text )+`).ReplaceAllString(regexp.MustCompile(`/?\bg `).ReplaceAllString(b.String(), ""), "text /text ")
}

// hostile are texts that would be something else than text.
var hostile = []string{
	`<script>alert(1)</script>`,
	`</td></table><img src=x onerror=alert(1)>`,
	`" onload="alert(1)`,
	`{{.About}} {{template "x"}}`,
	"a|b\\|c `code` *x* _y_ [l](http://x) &lt; ![i](x)",
	"</svg><!-- ]]> -->",
	"\x00\x1b[31m\xff\u202e",
	"</title></style></pre>",
}

func TestTextStaysText(t *testing.T) {
	plain := skeleton(htmlOf(t, fullPage(t, "text")))
	for _, text := range hostile {
		page := htmlOf(t, fullPage(t, text))
		if got := skeleton(page); got != plain {
			t.Errorf("%q changes the marks of the page", text)
		}
	}
}

func FuzzTextStaysText(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 || strings.TrimSpace(text) == "" {
			t.Skip()
		}
		page := func(text string) *report.Page {
			return &report.Page{Title: text, Verdict: text, Origin: report.Origin{Config: map[string]any{text: []string{text}}}, Sections: []report.Section{{
				Maps:  &report.Maps{Title: text, Heats: []report.Heat{{Title: text, Rows: 1, Cols: 1, Values: []float64{1}, X: report.Axis{Label: text, Ticks: []string{text}}}}},
				Title: text, Table: &report.Table{Head: []string{text}, Rows: [][]string{{text}}}, Code: text,
				Figure: &report.Figure{Title: text, Series: []report.Series{{Name: text, X: []float64{1}, Y: []float64{1}}}},
			}}}
		}
		if got, want := skeleton(htmlOf(t, page(text))), skeleton(htmlOf(t, page("text"))); got != want {
			t.Errorf("%q changes the marks of the page:\n%s\n%s", text, got, want)
		}
		var table strings.Builder
		if err := (&report.Table{Head: []string{text, "b"}, Rows: [][]string{{text, "b"}}}).WriteMarkdown(&table); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(table.String()) {
			bars := strings.Count(line, "|") - strings.Count(line, `\|`)
			if bars != 3 {
				t.Errorf("%q: a line of the table has %d bars: %s", text, bars, line)
			}
		}
	})
}

func TestPageNeedsNothingElse(t *testing.T) {
	page := htmlOf(t, fullPage(t, "text"))
	for _, bad := range []string{"<script", "<link", "@import", "http:", "https:", "url(", " id="} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, want := range []string{`name="viewport"`, "prefers-color-scheme", "@media print", "data:image/png;base64,", `aria-label="text"`, `class="wide"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if n := strings.Count(page, "<svg"); n != 4 { // a figure, two maps and the bar of their colours
		t.Errorf("%d drawings in SVG, want 4", n)
	}
	if htmlOf(t, fullPage(t, "text")) != page {
		t.Error("the same page gives other bytes")
	}
}

// The golden pages have no drawings of their own, whose bytes differ between
// processors and versions of the encoder.
func TestGoldenPage(t *testing.T) {
	p := &report.Page{
		Title: "A small page", Verdict: "Better than nothing: 1 < 2.", Lead: "What it shows.\n\nAnd why.",
		Sections: []report.Section{
			{Title: "Numbers", Text: "Published beside measured: 1 < 2.", Table: &report.Table{
				Title: "loss", Head: []string{"mechanism", "published", "measured"},
				Rows: [][]string{{"softmax", "1.8", "≈ 1.9"}, {"fastmax|2", "–", "1.7 ± 0.1"}}, Note: "Two seeds.",
			}},
			{Title: "Sample", Picture: &report.Picture{Name: "a picture", PNG: []byte("PNG")}, Caption: "A digit.", Code: "a <b>\n```\n"},
		},
		Origin: report.Origin{
			Command: "farfield reproduce x", Seeds: []uint64{1, 2}, Config: map[string]any{"lr": 1e-3, "model": map[string]any{"set": []string{"a", "b"}, "width": 8}}, Duration: 90 * time.Second,
			Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Machine: "one", Commit: "abc",
		},
	}
	for path, got := range map[string]string{
		"testdata/page.html": htmlOf(t, p),
		"testdata/page.md":   markdownOf(t, p, "page"),
	} {
		if *write {
			if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (go test ./internal/report -run TestGoldenPage -write):\n%s", path, got)
		}
	}
	if page := htmlOf(t, p); !strings.Contains(page, html.EscapeString("a <b>")) {
		t.Error("code is not there as it stands")
	}
}

// TestVerdictComesFirst holds that a page begins with what its reader came for.
func TestVerdictComesFirst(t *testing.T) {
	p := fullPage(t, "text")
	p.Verdict = "the verdict"
	for _, page := range []string{htmlOf(t, p), markdownOf(t, p, "x")} {
		_, body, _ := strings.Cut(page, "</head>")
		at := strings.Index(body, "the verdict")
		for _, later := range []string{"<table", "<svg", "| ---", "Configuration"} {
			if i := strings.Index(body, later); i >= 0 && i < at {
				t.Errorf("%q stands before the verdict", later)
			}
		}
	}
}

// TestChartsHaveTheFaceOfThePage: one family without serifs for text and drawings, and
// colours of the page where drawings had black on white.
func TestChartsHaveTheFaceOfThePage(t *testing.T) {
	page := htmlOf(t, fullPage(t, "#000000 #FFFFFF"))
	if n := strings.Count(page, "font-family"); n != 0 {
		t.Errorf("drawings name %d fonts of their own", n)
	}
	for _, tag := range tags.FindAllString(page, -1) {
		named := strings.Contains(tag, "aria-label") || strings.Contains(tag, "alt=")
		if !named && (strings.Contains(tag, "#000000") || strings.Contains(tag, "#FFFFFF")) {
			t.Errorf("black or white on a page that may be dark: %s", tag)
		}
	}
	if !strings.Contains(page, ">#000000 #FFFFFF</text>") {
		t.Error("text that looks like a colour is changed")
	}
	var alone strings.Builder
	if err := fullPage(t, "text").Sections[1].Figure.WriteSVG(&alone); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(alone.String(), "sans-serif") || strings.Contains(alone.String(), "Serif") {
		t.Error("a drawing by itself has another font")
	}
}

func TestFlattenNamesFieldsInOrder(t *testing.T) {
	got, err := report.FlattenFields(struct {
		B     int `json:"b"`
		Model struct {
			Set map[string]string `json:"set"`
			N   []float64         `json:"n"`
		} `json:"model"`
		Rate float64 `json:"rate"`
		A    string  `json:"a"`
	}{B: 1, Rate: 0.003 * 0.1, A: `x","y`})
	want := [][2]string{{"b", "1"}, {"model.set", "none"}, {"model.n", "none"}, {"rate", "0.0003"}, {"a", `x","y`}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestDrawingsOfMarkdown(t *testing.T) {
	p := fullPage(t, "text")
	text := markdownOf(t, p, "x")
	list := p.Drawings("x")
	if len(list) != 3 {
		t.Fatalf("%d drawings, want 3", len(list))
	}
	for i, d := range list {
		if want := fmt.Sprintf("x-%d.%s", i+1, []string{"svg", "png", "png"}[i]); d.Name != want {
			t.Errorf("drawing %d is %s, want %s", i, d.Name, want)
		}
		if !strings.Contains(text, "![text](<"+d.Name+">)") {
			t.Errorf("the text does not show %s", d.Name)
		}
		var b bytes.Buffer
		if err := d.Write(&b); err != nil || b.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", d.Name, b.Len(), err)
		}
	}
	if strings.Contains(markdownOf(t, p, ""), "![") {
		t.Error("drawings without a name")
	}
}

func TestPagesThatCannotBe(t *testing.T) {
	for want, p := range map[string]*report.Page{
		"table x: row 0 has 1 cells, the head has 2": {Sections: []report.Section{{Table: &report.Table{Title: "x", Head: []string{"a", "b"}, Rows: [][]string{{"1"}}}}}},
		"has 0 values of x":                          {Sections: []report.Section{{Figure: &report.Figure{Series: []report.Series{{Name: "x"}}}}}},
		"configuration: json":                        {Origin: report.Origin{Config: math.NaN()}},
	} {
		var b bytes.Buffer
		if err := p.WriteHTML(&b); err == nil || !strings.Contains(err.Error(), want) || b.Len() > 0 {
			t.Errorf("%v and %d bytes, want %s", err, b.Len(), want)
		}
	}
}

func TestColumnsOfNumbers(t *testing.T) {
	for _, c := range []struct {
		cells []string
		right bool
	}{
		{[]string{"1", "2.5", "–", ""}, true},
		{[]string{"-0.5", "+1", "≈ 3", "< 4 ms"}, true},
		{[]string{".5"}, true},
		{[]string{"1", "none"}, false},
		{[]string{"–", ""}, false},
		{[]string{"p=2"}, false},
	} {
		table := report.Table{Head: []string{"x"}}
		for _, cell := range c.cells {
			table.Rows = append(table.Rows, []string{cell})
		}
		if got := table.NumericColumns(); got[0] != c.right {
			t.Errorf("%q: right %t, want %t", c.cells, got[0], c.right)
		}
	}
	short := report.Table{Head: []string{"x", "y"}, Rows: [][]string{{"1", "2"}, {"3"}}}
	if got := short.NumericColumns(); !got[0] || got[1] {
		t.Errorf("a column that a row lacks: %v", got)
	}
}
