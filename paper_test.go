package farfield_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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

// TestPaperNamesExist holds docs/paper.md to the code: every `package.Name` in
// it is declared, every `farfield verb` is a command.
func TestPaperNamesExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "paper.md"))
	if err != nil {
		t.Fatal(err)
	}
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
	named := 0
	for _, m := range regexp.MustCompile("`([a-z/]+)\\.([A-Za-z0-9]+(?:\\.[A-Za-z0-9]+)?)`").FindAllStringSubmatch(string(text), -1) {
		dir, name := m[1], m[2]
		if dir == "farfield" {
			dir = "."
		}
		names := lookup(dir)
		if names == nil {
			names = lookup("internal/" + dir)
		}
		if names == nil {
			t.Errorf("%s: no package %s", m[0], dir)
			continue
		}
		named++
		if !names[name] {
			t.Errorf("%s: not declared", m[0])
		}
	}
	if named < 40 {
		t.Errorf("only %d names found: the pattern no longer reads the page", named)
	}
	for _, m := range regexp.MustCompile("`farfield ([a-z]+)").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join("cmd", "farfield", m[1]+".go")); err != nil {
			t.Errorf("%s`: no such command", m[0])
		}
	}
	if !strings.Contains(string(text), "| Table 2 |") {
		t.Error("the page does not reach the papers' tables")
	}
}
