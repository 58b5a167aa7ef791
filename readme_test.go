package farfield_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/page"
)

var write = flag.Bool("write", false, "write the table of README.md")

// scalingPart is the README's part of docs/scaling.md, which farfield demo --out docs
// writes beside the picture: the machine, and the rows of powers of ten.
var scalingPart = page.Part{
	Begin: "<!-- scaling: written by make readme -->",
	End:   "<!-- scaling: end -->",
}

func TestReadmeShowsScaling(t *testing.T) {
	path := filepath.Join("docs", "scaling.md")
	table, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var part strings.Builder
	powers := 0
	for line := range strings.Lines(string(table)) {
		cell, isRow := strings.CutPrefix(line, "| 1")
		cell, _, _ = strings.Cut(cell, " ")
		if isRow && strings.Trim(cell, "0") == "" {
			powers++
		} else if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| tokens ") {
			continue
		}
		part.WriteString(line)
	}
	if powers < 5 {
		t.Errorf("%d rows of powers of ten in docs/scaling.md", powers)
	}
	if *write {
		if err := scalingPart.WriteFile("README.md", []byte(part.String())); err != nil {
			t.Fatal(err)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := scalingPart.Begin + "\n" + part.String() + scalingPart.End; !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not show what docs/scaling.md has; make readme writes it:\n%s", want)
	}
}
