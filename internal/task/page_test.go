package task

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/page"
)

var writePage = flag.Bool("write", false, "write the catalogue to docs/train.md")

// The catalogue on the page equals the program's catalogue.
func TestPage(t *testing.T) {
	part := page.Part{Begin: "<!-- tasks, written by go test ./internal/task -run TestPage -write -->", End: "<!-- end of tasks -->"}
	path := filepath.Join("..", "..", "docs", "train.md")
	var b strings.Builder
	b.WriteString("\n| task | what is asked | data sets |\n|---|---|---|\n")
	cell := func(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
	for _, row := range table {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.Name, cell(row.Doc), strings.Join(row.DataSets, ", "))
	}
	b.WriteString("\n")
	if *writePage {
		if err := part.WriteFile(path, []byte(b.String())); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := part.ReadFile(path); err != nil || string(have) != b.String() {
		t.Errorf("docs/train.md is not the catalogue, %v: run go test ./internal/task -run TestPage -write", err)
	}
}
