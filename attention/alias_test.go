package attention

import (
	"bytes"
	"flag"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var writeAliases = flag.Bool("write-aliases", false, "write the fields and methods of aliased types into their comments")

// aliasHeading is the line of an alias's comment that the declaration follows.
const aliasHeading = "// Fields and methods:\n//\n"

// The packages whose types have aliases here.
var aliased = strings.NewReplacer("contract.", "", "engine.", "", "spec.", "")

// Tools show the comment of an alias, not the type in an internal package. So the comment
// repeats the exported fields and methods: -write-aliases takes them from the type.
func TestAliasesShowFieldsAndMethods(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]*doc.Package{}
	fset := token.NewFileSet()
	shown := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Clone(text)
		for _, d := range slices.Backward(file.Decls) {
			target := aliasTarget(d)
			if target == nil {
				continue
			}
			where := target.X.(*ast.Ident).Name
			if packages[where] == nil {
				packages[where] = readPackage(t, fset, filepath.Join("internal", where))
			}
			block := describeType(t, fset, packages[where], target.Sel.Name)
			if block == "" {
				continue
			}
			shown++
			comment := d.(*ast.GenDecl).Doc
			from, to := fset.Position(comment.Pos()).Offset, fset.Position(d.(*ast.GenDecl).TokPos).Offset
			head, _, _ := strings.Cut(string(text[from:to]), "//\n"+aliasHeading)
			want = slices.Concat(want[:from], []byte(head+"//\n"+aliasHeading+block), want[to:])
		}
		switch {
		case bytes.Equal(want, text):
		case *writeAliases:
			if err := os.WriteFile(name, want, 0o666); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s: comments of aliases differ from their types; go test ./attention -run Aliases -write-aliases renews them", name)
		}
	}
	if shown == 0 {
		t.Error("no alias was found")
	}
}

// aliasTarget returns the type in another package that a declaration is an alias of; nil for
// other declarations.
func aliasTarget(d ast.Decl) *ast.SelectorExpr {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.TYPE || len(g.Specs) != 1 || g.Doc == nil {
		return nil
	}
	s := g.Specs[0].(*ast.TypeSpec)
	if !s.Assign.IsValid() {
		return nil
	}
	x := s.Type
	if i, ok := x.(*ast.IndexExpr); ok {
		x = i.X
	}
	target, _ := x.(*ast.SelectorExpr)
	return target
}

func readPackage(t *testing.T, fset *token.FileSet, folder string) *doc.Package {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, folder)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// describeType returns exported fields and methods of a type as an indented comment, "" for
// a type without them.
func describeType(t *testing.T, fset *token.FileSet, p *doc.Package, name string) string {
	t.Helper()
	at := slices.IndexFunc(p.Types, func(x *doc.Type) bool { return x.Name == name })
	if at < 0 {
		t.Errorf("%s: has no type %s", p.Name, name)
		return ""
	}
	x := p.Types[at]
	var text bytes.Buffer
	list := []ast.Node{}
	switch x.Decl.Specs[0].(*ast.TypeSpec).Type.(type) {
	case *ast.StructType, *ast.InterfaceType:
		d := *x.Decl
		d.Doc = nil
		list = append(list, &d)
	}
	for _, m := range x.Methods {
		d := *m.Decl
		d.Doc, d.Body = nil, nil
		list = append(list, &d)
	}
	for _, d := range list {
		if err := format.Node(&text, fset, d); err != nil {
			t.Fatal(err)
		}
		text.WriteByte('\n')
	}
	var out strings.Builder
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimRight(line, "\n"); line == "" {
			out.WriteString("//\n")
			continue
		}
		out.WriteString("//\t" + aliased.Replace(line) + "\n")
	}
	return out.String()
}
