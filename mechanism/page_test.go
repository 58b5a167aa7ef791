package mechanism

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
)

const (
	pageBegin = "<!-- catalogue: go test ./mechanism -run TestPage -write -->\n"
	pageEnd   = "<!-- end of catalogue -->\n"
)

var page = filepath.Join("..", "docs", "mechanisms.md")

// growth is by how much the planned operations of one head grow from 4096 to 8192
// tokens, in the linear form where there is one.
func growth(m attention.Mechanism[float32], causal bool) float64 {
	form := attention.Auto
	if m.Traits().Linear {
		form = attention.Linear
	}
	flops := func(n int) float64 {
		return m.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: 32, Dv: 32, Causal: causal, Form: form}).FLOPs
	}
	return flops(8192) / flops(4096)
}

// names lists parameters or constants.
func names(s *param.Set[float32], shapes []Param) string {
	var list []string
	for i := range s.All() {
		list = append(list, "`"+shapes[i].Name+"` "+shapes[i].Shape)
	}
	if list == nil {
		return "–"
	}
	return strings.Join(list, ", ")
}

// entry returns the line of the page for a row, from the row and from the mechanism it
// makes.
func entry(t *testing.T, name string) string {
	t.Helper()
	row, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New[float32](name, Options{Heads: 1, Width: 32, Length: 8192})
	if err != nil {
		t.Fatal(err)
	}
	x := m.Traits()
	sign, causal, state := "any", "no: "+x.NoCausal, "none"
	if x.Positive {
		sign = "≥ 0"
	}
	if x.Causal {
		causal, state = "yes", "grows with the tokens"
	}
	if x.Streaming {
		state = "fixed size"
	}
	cost := "linear"
	if g := growth(m, x.Causal); g > MaxGrowth {
		cost = fmt.Sprintf("×%.2g for twice the tokens", g)
	}
	text := fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, row.Family,
		strings.ReplaceAll(row.Doc, "|", "\\|"), row.Source, cost, sign, causal, state, names(m.Params(), row.Params), names(m.Constants(), row.Constants))
	return text
}

// TestPageHasAllSettings holds the section of each row in docs/mechanisms.md to its settings.
// Settings of windows have a section of their own.
func TestPageHasAllSettings(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		row, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(string(text), "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if _, other, ok := strings.Cut(section, "settings and constants are the same as for `"); ok {
			other, _, _ = strings.Cut(other, "`")
			_, same, _ := strings.Cut(string(text), "\n## "+other+"\n")
			same, _, _ = strings.Cut(same, "\n## ")
			section += same
		}
		for _, s := range row.Settings {
			windows := s == windowSetting || s == joinSetting || s == gammaSetting
			if !windows && !strings.Contains(section, "`"+s.Name+"`") && !strings.Contains(section, "`"+s.Name+"=") {
				t.Errorf("the section of %s does not have the setting %s: %s", name, s.Name, s.Doc)
			}
		}
	}
}

// TestPage holds the table of docs/mechanisms.md to the catalogue.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), pageBegin)
	table, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		t.Fatal("docs/mechanisms.md has no place for the catalogue")
	}
	want := "| name | family | weights | source | operations | sign | causal | state | learned | drawn |\n|---|---|---|---|---|---|---|---|---|---|\n"
	var missing []string
	order := []Family{Dense, LowRank, Nested, Kernelised, Sparse, Recurrent}
	family := func(name string) int {
		row, _ := Lookup(name)
		return slices.Index(order, row.Family)
	}
	list := slices.Clone(Names())
	slices.SortStableFunc(list, func(a, b string) int { return family(a) - family(b) })
	for _, name := range list {
		if family(name) < 0 {
			t.Errorf("%s is of no family", name)
		}
		line := entry(t, name)
		want += line
		if !strings.Contains(table, "| `"+name+"` |") {
			missing = append(missing, name)
		} else if !strings.Contains(table, line) && !*write {
			t.Errorf("the line of %s is not\n%s", name, line)
		}
		if !strings.Contains(before+after, "\n## "+name+"\n") {
			missing = append(missing, name+" (its section)")
		}
	}
	if *write {
		if err := os.WriteFile(page, []byte(before+pageBegin+want+pageEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if len(missing) > 0 {
		t.Errorf("docs/mechanisms.md lacks %s: run go test ./mechanism -run TestPage -write", strings.Join(missing, ", "))
	}
}

// What claims a linear cost plans no more than MaxGrowth times the operations for
// twice the tokens, and what has a linear form claims one.
func TestLinearIsLinear(t *testing.T) {
	for _, name := range Names() {
		m, err := New[float32](name, Options{Heads: 1, Width: 32, Length: 8192})
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
			if g := growth(m, causal); row.Linear && !(g <= MaxGrowth) {
				t.Errorf("%s, causal %t: %.3g times the operations", name, causal, g)
			}
		}
	}
}
