package mechanism

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
)

// The lines of a section that the catalogue gives are the items from the first of these beginnings to the
// line that begins with the second.
const (
	pageBegin = "- **Kind** "
	pageEnd   = "- **Source** "
)

var page = filepath.Join("..", "docs", "mechanisms.md")

// growth is by how much the planned operations of one head grow from 4096 to 8192
// tokens, in the linear form where there is one.
func growth(m attention.Mechanism, causal bool) float64 {
	form := attention.Auto
	if m.Traits().Linear {
		form = attention.Linear
	}
	flops := func(n int) float64 {
		return m.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: 32, Dv: 32, Causal: causal, Form: form}).FLOPs
	}
	return flops(8192) / flops(4096)
}

// names lists parameters or constants after a title.
func names(title string, s *param.Set, shapes []Param) string {
	var list []string
	for i := range s.All() {
		list = append(list, "`"+shapes[i].Name+"` "+shapes[i].Shape)
	}
	if list == nil {
		return ""
	}
	return title + strings.Join(list, ", ")
}

// catalogueLines returns the lines of the page for a row, from the row and from the mechanism it
// makes.
func catalogueLines(t *testing.T, name string) string {
	t.Helper()
	row, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(name, Options{Heads: 1, Width: 32, Length: 8192})
	if err != nil {
		t.Fatal(err)
	}
	x := m.Traits()
	kind := "linear cost"
	if g := growth(m, x.Causal); g > maxGrowth {
		kind = fmt.Sprintf("cost ×%.2g for twice the tokens", g)
	}
	switch {
	case x.CausalOnly:
		kind += ", always causal"
	case x.Causal:
		kind += ", causal"
	default:
		kind += ", not causal"
	}
	if x.Positive {
		kind += ", weights ≥ 0"
	}
	switch {
	case x.Streaming:
		kind += ", state of fixed size"
	case x.Causal:
		kind += ", state grows"
	}
	text := pageBegin + kind + names("; learned: ", m.Params(), row.Params) + names("; drawn: ", m.Constants(), row.Constants) + "\n"
	var set []string
	if row.Order > 0 {
		set = append(set, fmt.Sprintf("order %d", row.Order))
	} else if row.MaxOrder > 0 {
		set = append(set, fmt.Sprintf("order 0 to %d", row.MaxOrder))
	}
	for _, s := range row.Settings {
		switch s {
		case joinSetting, gammaSetting: // stand beside the window
		case windowSetting:
			set = append(set, "[window](#windows)")
		default:
			set = append(set, "`"+s.Name+"="+s.Default+"`")
		}
	}
	if set != nil {
		text += "- **Settings** " + strings.Join(set, ", ") + "\n"
	}
	return text + pageEnd + row.Source + "\n"
}

// TestPage holds the section of each row in docs/mechanisms.md to the catalogue.
func TestPage(t *testing.T) {
	file, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	for _, name := range Names() {
		before, section, found := strings.Cut(text, "\n### "+name+"\n")
		if !found {
			t.Errorf("docs/mechanisms.md has no section %s", name)
			continue
		}
		head, lines, begins := strings.Cut(section, pageBegin)
		_, after, ends := strings.Cut(lines, pageEnd)
		_, after, _ = strings.Cut(after, "\n")
		if !begins || !ends || strings.Contains(head, "\n#") {
			t.Errorf("the section of %s has no lines that begin with %q and %q", name, pageBegin, pageEnd)
			continue
		}
		want := catalogueLines(t, name)
		if !strings.HasPrefix(section[len(head):], want) && !*write {
			t.Errorf("the section of %s does not have (go test ./mechanism -run TestPage -write)\n%s", name, want)
		}
		text = before + "\n### " + name + "\n" + head + want + after
	}
	if *write && !t.Failed() {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// settingLines returns the lines of the package comment that list the settings of all rows.
func settingLines() string {
	const width = 100 // of a line
	var text strings.Builder
	for _, row := range table {
		words := make([]string, 0, len(row.Settings)+1)
		if row.Order > 0 {
			words = append(words, fmt.Sprintf("Order=%d", row.Order))
		} else if row.MaxOrder > 0 {
			words = append(words, fmt.Sprintf("Order=0 (to %d)", row.MaxOrder))
		}
		for _, s := range row.Settings {
			words = append(words, s.Name+"="+s.Default)
		}
		line := fmt.Sprintf("//\t%-18s", row.Name)
		for _, word := range words {
			if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
				text.WriteString(line + "\n")
				line = fmt.Sprintf("//\t%-18s", "")
			}
			line += " " + word
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}

// TestPageOfPackage holds the settings in the package comment to the catalogue.
func TestPageOfPackage(t *testing.T) {
	const begin, end = "Their defaults are\n//\n", "//\n// Those of one name"
	file, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(file), begin)
	lines, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("doc.go has no lines between %q and %q", begin, end)
	}
	want := settingLines()
	if *write {
		if err := os.WriteFile("doc.go", []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if lines != want {
		t.Errorf("doc.go does not have (go test ./mechanism -run TestPage -write)\n%s", want)
	}
}

// maxGrowth is bench.MaxGrowth.
const maxGrowth = 2.1

// What claims a linear cost plans no more than maxGrowth times the operations for
// twice the tokens, and what has a linear form claims one.
func TestLinearIsLinear(t *testing.T) {
	for _, name := range Names() {
		m, err := New(name, Options{Heads: 1, Width: 32, Length: 8192})
		if err != nil {
			t.Fatal(err)
		}
		row, _ := Lookup(name)
		if m.Traits().Linear && !row.Linear {
			t.Errorf("%s has a linear form and does not say so: %s", name, row.Traits)
		}
		for _, causal := range []bool{false, true} {
			if x := m.Traits(); causal && !x.Causal || !causal && x.CausalOnly {
				continue
			}
			if g := growth(m, causal); row.Linear && !(g <= maxGrowth) {
				t.Errorf("%s, causal %t: %.3g times the operations", name, causal, g)
			}
		}
	}
}
