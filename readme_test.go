//go:build docs

package farfield_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/page"
)

var write = flag.Bool("write", false, "write the figures of README.md")

// demoPart is the README's part of docs/results/demo.md, which farfield demo --out docs/results writes beside
// the picture: what was found about time, memory and quality.
var demoPart = page.Part{
	Begin: "<!-- demo: written by make readme -->",
	End:   "<!-- demo: end -->",
}

func TestReadmeShowsDemo(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "results", "demo.md"))
	if err != nil {
		t.Fatal(err)
	}
	var part strings.Builder
	found := 0
	for line := range strings.Lines(string(text)) {
		for _, what := range []string{"- Time: ", "- Memory: ", "- Quality: ", "- The window alone "} {
			if strings.HasPrefix(line, what) {
				part.WriteString(line)
				found++
			}
		}
	}
	if found < 3 {
		t.Errorf("docs/results/demo.md has %d findings, needs time, memory and quality", found)
	}
	if *write {
		if err := demoPart.WriteFile("README.md", []byte(part.String())); err != nil {
			t.Fatal(err)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := demoPart.Begin + "\n" + part.String() + demoPart.End; !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not show what docs/results/demo.md has; make readme writes it:\n%s", want)
	}
}
