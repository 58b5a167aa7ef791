//go:build docs

package farfield_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// functions returns the names that a file declares: functions, types, methods
// as Type.Method, constants and variables.
func functions(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				r := d.Recv.List[0].Type
				if s, ok := r.(*ast.StarExpr); ok {
					r = s.X
				}
				if x, ok := r.(*ast.IndexExpr); ok {
					r = x.X
				}
				if id, ok := r.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			names[name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
					if it, ok := s.Type.(*ast.InterfaceType); ok {
						for _, m := range it.Methods.List {
							for _, id := range m.Names {
								names[s.Name.Name+"."+id.Name] = true
							}
						}
					}
					if st, ok := s.Type.(*ast.StructType); ok {
						for _, m := range st.Fields.List {
							for _, id := range m.Names {
								names[s.Name.Name+"."+id.Name] = true
							}
						}
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						names[id.Name] = true
					}
				}
			}
		}
	}
	return names
}

// TestNamesOfPagesExist holds pages to the code: every `package.Name` in them is
// declared.
func TestNamesOfPagesExist(t *testing.T) {
	declared := map[string]map[string]bool{}
	lookup := func(dir string) map[string]bool {
		if names, ok := declared[dir]; ok {
			return names
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
		if len(files) == 0 {
			return nil
		}
		names := map[string]bool{}
		for _, f := range files {
			file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for n := range functions(file) {
				names[n] = true
			}
		}
		declared[dir] = names
		return names
	}
	name := regexp.MustCompile("`([a-z/]+)\\.([A-Za-z0-9]+(?:\\.[A-Za-z0-9]+)?)`")
	for _, page := range []struct {
		file, end string // the page, and what stands near its end
		least     int    // names on it
	}{
		{"math.md", "## 8. Where it is in the code", 15},
		{"extending.md", "## Other additions", 15},
		{"reproduce.md", "## Files from strangers", 25},
	} {
		b, err := os.ReadFile(filepath.Join("docs", page.file))
		if err != nil {
			t.Fatal(err)
		}
		text, named := string(b), 0
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			dir, name := m[1], m[2]
			if dir == "farfield" {
				dir = "."
			}
			var names map[string]bool
			for _, parent := range []string{"", "internal/", "lab/", "attention/", "internal/attention/", "internal/cli/"} {
				if names == nil {
					names = lookup(parent + dir)
				}
			}
			if names == nil {
				t.Errorf("%s: %s: no package %s", page.file, m[0], dir)
				continue
			}
			named++
			if !names[name] {
				t.Errorf("%s: %s: not declared", page.file, m[0])
			}
		}
		if named < page.least {
			t.Errorf("%s: only %d names found: the pattern does not read the page", page.file, named)
		}
		if !strings.Contains(text, page.end) {
			t.Errorf("%s: does not reach %q", page.file, page.end)
		}
	}
}

// TestItemsOfThePapersAreCounted holds docs/paper.md to its own count: each of the 126 items
// stands in one row, whose state begins with a word that is counted above.
func TestItemsOfThePapersAreCounted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "paper.md"))
	if err != nil {
		t.Fatal(err)
	}
	const items = 126
	seen, states := map[int]bool{}, map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-9][0-9, –]*) \| [^|]* \| (works|partly|declined|background)`).FindAllStringSubmatch(string(text), -1) {
		for part := range strings.SplitSeq(m[1], ", ") {
			first, last, isRange := strings.Cut(part, "–")
			if !isRange {
				last = first
			}
			from, err1 := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err1 != nil || err2 != nil || to < from || to > items {
				t.Fatalf("items %q", m[1])
			}
			for i := from; i <= to; i++ {
				if seen[i] {
					t.Errorf("item %d is there twice", i)
				}
				seen[i] = true
				states[m[2]]++
			}
		}
	}
	if len(seen) != items {
		t.Errorf("%d of %d items", len(seen), items)
	}
	if want := fmt.Sprintf("%d work, %d work in part, %d are declined, %d are background.", states["works"], states["partly"], states["declined"], states["background"]); !strings.Contains(string(text), want) {
		t.Errorf("the page does not say: %s", want)
	}
}

// fences are blocks of code between lines of three backquotes.
var fences = regexp.MustCompile("(?ms)^```.*?^```$")

// listPages returns the pages at the root, in docs and in docs/results.
func listPages(t *testing.T) []string {
	pages := []string{"README.md", "ARCHITECTURE.md", "RESULTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, dir := range []string{"docs", filepath.Join("docs", "results")} {
		found, err := filepath.Glob(filepath.Join(dir, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// TestTablesOfPagesAreWhole holds each row of a table to as many cells as its header has: a row
// of another table, or a bar that is not escaped, is drawn in wrong columns.
func TestTablesOfPagesAreWhole(t *testing.T) {
	rows := 0
	for _, page := range listPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		header := 0
		for line := range strings.Lines(fences.ReplaceAllString(string(text), "")) {
			if !strings.HasPrefix(line, "|") {
				header = 0
				continue
			}
			rows++
			cells := strings.Count(line, "|") - strings.Count(line, `\|`) - 1
			if header == 0 {
				header = cells
			}
			if cells != header {
				t.Errorf("%s: %d cells under a header of %d: %s", page, cells, header, line)
			}
		}
	}
	if rows < 500 {
		t.Errorf("only %d rows found: the pattern does not read the pages", rows)
	}
}

// TestLinksOfPagesExist holds what pages link to within the repository: files,
// and headings by the names that GitHub gives them.
func TestLinksOfPagesExist(t *testing.T) {
	link, odd := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	found := 0
	for _, page := range listPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fences.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			path, anchor, within := strings.Cut(m[1], "#")
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			target, err := os.ReadFile(to)
			if err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
				continue
			}
			there := !within
			for _, h := range heading.FindAllStringSubmatch(string(target), -1) {
				name := strings.ReplaceAll(odd.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
				there = there || name == anchor
			}
			if !there {
				t.Errorf("%s: %s: no such heading", page, m[1])
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d links found: the pattern does not read the pages", found)
	}
}

// TestPagesQuoteTheCode holds the blocks of Go on pages to the code: to the file
// that their first line names, or else to some test or example, which compiles.
func TestPagesQuoteTheCode(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var compiled []string // tests and examples, without indentation
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "examples/*/*.go"} {
		files, _ := filepath.Glob(filepath.FromSlash(pattern))
		for _, f := range files {
			code, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			compiled = append(compiled, flush(string(code)))
		}
	}
	named := regexp.MustCompile(`^// (\S+\.go)\n`)
	found := 0
	for _, page := range append(pages, "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if all := strings.Count(string(text), "```go"); len(blocks) != all {
			t.Errorf("%s: %d of %d blocks end", page, len(blocks), all)
		}
		for _, b := range blocks {
			found++
			if m := named.FindStringSubmatch(b[1]); m != nil {
				code, err := os.ReadFile(filepath.FromSlash(m[1]))
				if err != nil {
					t.Error(err)
				} else if !strings.Contains(string(code), b[1][len(m[0]):]) {
					t.Errorf("%s: %s does not have\n%s", page, m[1], b[1][len(m[0]):])
				}
				continue
			}
			quote := flush(b[1])
			if !slices.ContainsFunc(compiled, func(code string) bool { return strings.Contains(code, quote) }) {
				t.Errorf("%s: no test or example has\n%s", page, b[1])
			}
		}
	}
	if found < 7 {
		t.Errorf("only %d blocks found: the pattern does not read the pages", found)
	}
}

// flush is code without its indentation.
func flush(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t ")
	}
	return strings.Join(lines, "\n")
}
