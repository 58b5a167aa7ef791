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

var write = flag.Bool("write", false, "write the lines of mixers to docs/mechanisms.md")

// The lines of a section that the catalogue gives are the items from the first of these beginnings to the
// line that begins with the second.
const (
	pageBegin = "- **Kind** "
	pageEnd   = "- **Source** "
)

// mixerLines returns the lines of the page for a mixer.
func mixerLines(t *testing.T, name string) string {
	row, found := LookupMixer(name)
	if !found {
		t.Fatal(name)
	}
	size := 0
	m, err := NewMixer(row, 64, mechanism.Options{Heads: 4, Length: 8192}, &WeightMaker{
		New: func(name string, _ bool, _ Initializer, shape ...int) *param.Param {
			n := 1
			for _, d := range shape {
				n *= d
			}
			size += n
			return &param.Param{Name: name, Shape: shape}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := m.Traits()
	kind := "linear cost"
	if g := m.FLOPs(8192, x.Causal) / m.FLOPs(4096, x.Causal); g > 2.1 {
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
	switch {
	case x.Streaming:
		kind += ", state of fixed size"
	case x.Causal:
		kind += ", state grows"
	}
	text := fmt.Sprintf("%s%s; %d weights at width 64 with 4 heads\n", pageBegin, kind, size)
	var set []string
	for _, s := range row.Settings {
		set = append(set, "`"+s.Name+"="+s.Default+"`")
	}
	if set != nil {
		text += "- **Settings** " + strings.Join(set, ", ") + "\n"
	}
	return text + pageEnd + row.Source + "\n"
}

// TestMixersPage holds the section of each mixer in docs/mechanisms.md to its row.
func TestMixersPage(t *testing.T) {
	page := filepath.Join("..", "docs", "mechanisms.md")
	file, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	for _, name := range MixerNames() {
		before, section, found := strings.Cut(text, "\n### "+name+"\n")
		head, lines, begins := strings.Cut(section, pageBegin)
		_, after, ends := strings.Cut(lines, pageEnd)
		_, after, _ = strings.Cut(after, "\n")
		if !found || !begins || !ends || strings.Contains(head, "\n#") {
			t.Errorf("docs/mechanisms.md has no section %s with lines that begin with %q and %q", name, pageBegin, pageEnd)
			continue
		}
		want := mixerLines(t, name)
		if !strings.HasPrefix(section[len(head):], want) && !*write {
			t.Errorf("the section of %s does not have (go test ./nn -run TestMixersPage -write)\n%s", name, want)
		}
		text = before + "\n### " + name + "\n" + head + want + after
	}
	if *write && !t.Failed() {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
