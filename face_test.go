package farfield_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// publicPackages are the packages that a user imports.
var publicPackages = []string{
	".", "attention", "attention/factorised", "attention/headwise", "client", "comm", "comm/mpi", "mechanism", "model",
	"nn", "optim", "param", "pretrained", "rng", "safetensors", "stream", "tensor", "tokenizer", "train", "train/data",
}

// Each package that mentions a generic type or function compiles it, with all that it reaches. Arrays are of
// tensor.Float, so nothing exported has a parameter for it; the sums of package comm are of both types.
func TestNothingExportedIsGenericOverFloats(t *testing.T) {
	for _, dir := range publicPackages {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, "_test.go") || file.Name.Name == "comm" {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				var name string
				var list *ast.FieldList
				switch n := n.(type) {
				case *ast.FuncDecl:
					name, list = n.Name.Name, n.Type.TypeParams
				case *ast.TypeSpec:
					name, list = n.Name.Name, n.TypeParams
				}
				if list != nil && ast.IsExported(name) {
					for _, p := range list.List {
						if text := types.ExprString(p.Type); strings.Contains(strings.ToLower(text), "float") {
							t.Errorf("%s: %s has a parameter of %s", path, name, text)
						}
					}
				}
				return true
			})
		}
	}
}

// A user can name every type that an exported declaration mentions: none is of an internal package.
func TestNothingExportedMentionsInternalTypes(t *testing.T) {
	for _, dir := range publicPackages {
		fset := token.NewFileSet()
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for name, of := range mentionedInternals(file) {
				t.Errorf("%s: mentions a type of %s", strings.TrimPrefix(filepath.ToSlash(dir)+"."+name, ".."), of)
			}
		}
	}
}

// A user can compile every example: none mentions an internal package.
func TestExamplesMentionNoInternalPackages(t *testing.T) {
	fset := token.NewFileSet()
	for _, dir := range publicPackages {
		paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			internals := importedInternals(file)
			for _, e := range doc.Examples(file) {
				ast.Inspect(e.Code, func(n ast.Node) bool {
					if n, is := n.(*ast.SelectorExpr); is {
						if x, is := n.X.(*ast.Ident); is && internals[x.Name] != "" {
							t.Errorf("%s: Example%s: uses %s of %s", path, e.Name, n.Sel.Name, internals[x.Name])
						}
					}
					return true
				})
			}
		}
	}
}

// mentionedInternals returns the exported declarations of a file that mention a type of an internal
// package, each with the path of the package.
func mentionedInternals(file *ast.File) map[string]string {
	internals := importedInternals(file)
	mentioned := map[string]string{}
	check := func(name string, nodes ...ast.Node) {
		for _, node := range nodes {
			ast.Inspect(node, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit, *ast.BlockStmt:
					return false
				case *ast.SelectorExpr:
					if x, is := n.X.(*ast.Ident); is && internals[x.Name] != "" && ast.IsExported(n.Sel.Name) {
						mentioned[name] = internals[x.Name]
					}
				}
				return true
			})
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver := receiverName(d); d.Name.IsExported() && (receiver == "" || ast.IsExported(receiver)) {
				check(strings.TrimPrefix(receiver+"."+d.Name.Name, "."), d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						check(spec.Name.Name, exportedParts(spec.Type)...)
					}
				case *ast.ValueSpec:
					if d.Tok == token.VAR && slices.ContainsFunc(spec.Names, func(x *ast.Ident) bool { return x.IsExported() }) {
						nodes := []ast.Node{}
						if spec.Type != nil {
							nodes = append(nodes, spec.Type)
						} else {
							for _, v := range spec.Values {
								ast.Inspect(v, func(n ast.Node) bool {
									if x, is := n.(*ast.CompositeLit); is && x.Type != nil {
										nodes = append(nodes, x.Type)
									}
									return true
								})
							}
						}
						check(spec.Names[0].Name, nodes...)
					}
				}
			}
		}
	}
	return mentioned
}

// importedInternals returns the paths of the internal packages that a file imports, by their names in it.
func importedInternals(file *ast.File) map[string]string {
	internals := map[string]string{}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if parts := strings.Split(path, "/"); strings.HasPrefix(path, module) && slices.Contains(parts, "internal") {
			name := parts[len(parts)-1]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			internals[name] = path
		}
	}
	return internals
}

// receiverName returns the name of the type of a method; "": d is a function.
func receiverName(d *ast.FuncDecl) (name string) {
	if d.Recv == nil {
		return ""
	}
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if x, is := n.(*ast.Ident); is && name == "" {
			name = x.Name
		}
		return true
	})
	return name
}

// exportedParts returns the parts of a type that a user sees: of a struct its exported and embedded
// fields.
func exportedParts(typ ast.Expr) (parts []ast.Node) {
	of, is := typ.(*ast.StructType)
	if !is {
		return []ast.Node{typ}
	}
	for _, f := range of.Fields.List {
		if len(f.Names) == 0 || slices.ContainsFunc(f.Names, func(x *ast.Ident) bool { return x.IsExported() }) {
			parts = append(parts, f.Type)
		}
	}
	return parts
}
