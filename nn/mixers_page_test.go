package nn

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
)

var write = flag.Bool("write", false, "write the table of mixers to docs/mechanisms.md")

const (
	pageBegin = "<!-- mixers: go test ./nn -run TestMixersPage -write -->\n"
	pageEnd   = "<!-- end of mixers -->\n"
)

// TestMixersPage holds the table of docs/mechanisms.md to mixers.
func TestMixersPage(t *testing.T) {
	page := filepath.Join("..", "docs", "mechanisms.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), pageBegin)
	table, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		t.Fatal("docs/mechanisms.md has no place for the mixers")
	}
	want := "| name | what it computes | source | operations | causal | state | weights of width 64 with 4 heads |\n|---|---|---|---|---|---|---|\n"
	for _, name := range MixerNames() {
		row, _ := LookupMixer(name)
		size := 0
		m, err := NewMixer(row, 64, mechanism.Options{Heads: 4, Length: 8192}, &WeightMaker[float32]{
			New: func(name string, _ bool, _ Initializer, shape ...int) *param.Param[float32] {
				n := 1
				for _, d := range shape {
					n *= d
				}
				size += n
				return &param.Param[float32]{Name: name, Shape: shape}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		x := m.Traits()
		causal, state := "if asked", "none"
		switch {
		case x.CausalOnly:
			causal = "always"
		case !x.Causal:
			causal = "no: " + x.NoCausal
		}
		if x.Streaming {
			state = "fixed size"
		} else if x.Causal {
			state = "grows with the tokens"
		}
		cost := "linear"
		if g := m.FLOPs(8192, x.Causal) / m.FLOPs(4096, x.Causal); g > 2.1 {
			cost = fmt.Sprintf("×%.2g for twice the tokens", g)
		}
		want += fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %d |\n", name, row.Doc, row.Source, cost, causal, state, size)
		if !strings.Contains(after, "\n### "+name+"\n") {
			t.Errorf("docs/mechanisms.md has no section %s", name)
		}
	}
	if *write {
		if err := os.WriteFile(page, []byte(before+pageBegin+want+pageEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Error("the table of mixers is another: run go test ./nn -run TestMixersPage -write")
	}
}
