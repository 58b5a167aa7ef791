package farfield_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	styleDir   = flag.String("style", "", "list breaches of style below this folder alone")
	writeStyle = flag.Bool("write-style", false, "write testdata/style.txt")
	styleDraw  = flag.Uint64("draw", 0, "with TestDrawnIdentifiers: seed of 60 exported identifiers to be printed")
)

// A breach is a place that breaks a rule of docs/style.md.
type breach struct {
	file string
	line int
	rule int
	text string
}

func (b breach) String() string {
	return fmt.Sprintf("%s:%d: rule %d: %s", b.file, b.line, b.rule, b.text)
}

// Rule 3: constructions that leave a noun out.
var bannedWords = regexp.MustCompile(`(?i)\b(that of|those of|the one of|the ones of|of which|of what|so many|as many as|told|nobody|whoever)\b|\bwhat (?:[a-z]+ ){1,4}(?:has|have)\b`)

// Rule 3 for code: a person's pronoun.
var personWord = regexp.MustCompile(`(?i)\b(who|whom)\b`)

// Rule 5: prepositions, adverbs and bare adjectives that are no names.
var bannedNames = map[string]bool{}

func init() {
	for _, n := range strings.Fields(`
		about above across after against along among around at before behind below beneath beside between beyond by
		down during except for from inside into like near of off on onto outside over past per since than
		through throughout till to toward towards under until up upon via with within without
		again ago ahead already alone always apart away back else enough even ever far first formerly further here
		hence how later lately least less most mostly never next none now often once only otherwise perhaps quite
		rather seldom so sometimes soon still then there thus together too twice very well when where why yet
		big bare both broad busy cheap clean clear close cold deep dense dirty divided done drawn dry dull early easy
		empty equal exact false fast few fine fixed flat free fresh full given gone good great hard heavy high hot
		huge idle known large last late lazy left light little long loose lost low made main many mean misread more
		much narrow new noisy odd old open parted plain poor quick ready rare raw real right round sad safe same
		sharp short shut slow small smooth soft some sparse steep stiff strict strong sure tall thick thin tight tiny
		total true unseen used usual vast warm weak wet whole wide young owed owes kept taken asked meant seen`) {
		bannedNames[n] = true
	}
	// Words that are nouns or verbs of the field although they are adjectives elsewhere.
	for _, n := range strings.Fields(`back mean main open close clear clean empty sparse dense round total next last first new free`) {
		delete(bannedNames, n)
	}
}

// hasShape reports that a doc comment states a shape, such as [N, D].
var hasShape = regexp.MustCompile(`\[[^\]\n]*\]`)

var saysError = regexp.MustCompile(`(?i)\berrors?\b|\bErr[A-Z]\w*|\bfails?\b|\brefuse[sd]?\b`)

// isArray reports that a parameter holds numbers that have a shape.
func isArray(t ast.Expr, params map[string]bool) bool {
	switch t := t.(type) {
	case *ast.ArrayType:
		if t.Len != nil {
			return false
		}
		return isNumber(t.Elt, params) || isArray(t.Elt, params)
	case *ast.Ellipsis:
		return false
	case *ast.StarExpr:
		return false
	}
	return false
}

func isNumber(t ast.Expr, params map[string]bool) bool {
	id, ok := t.(*ast.Ident)
	if !ok {
		return false
	}
	return id.Name == "float32" || id.Name == "float64" || params[id.Name]
}

// breachesOfFile returns the breaches of a Go file. Test files have comments and names alone.
func breachesOfFile(name string, src []byte) ([]breach, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(f) {
		return nil, nil
	}
	var bs []breach
	add := func(p token.Pos, rule int, text string) {
		bs = append(bs, breach{name, fset.Position(p).Line, rule, text})
	}
	for _, g := range f.Comments {
		// Constructions cross the ends of lines.
		text := strings.Join(strings.Fields(g.Text()), " ")
		for _, re := range []*regexp.Regexp{bannedWords, personWord} {
			for _, m := range re.FindAllString(text, -1) {
				add(g.Pos(), 3, m)
			}
		}
	}
	test := strings.HasSuffix(name, "_test.go")
	checkName := func(id *ast.Ident) {
		if bannedNames[strings.ToLower(id.Name)] {
			add(id.Pos(), 5, id.Name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !test && !isPixel(d) {
				checkName(d.Name)
			}
			if test || !d.Name.IsExported() || f.Name.Name == "main" {
				break
			}
			if d.Recv != nil && !exportedReceiver(d.Recv) {
				break
			}
			doc := d.Doc.Text()
			if doc == "" {
				add(d.Pos(), 2, d.Name.Name+" has no doc comment")
				break
			}
			params := map[string]bool{}
			for _, l := range []*ast.FieldList{d.Type.TypeParams} {
				if l == nil {
					continue
				}
				for _, p := range l.List {
					for _, n := range p.Names {
						params[n.Name] = isNumeric(p.Type)
					}
				}
			}
			if d.Recv != nil {
				switch t := star(d.Recv.List[0].Type).(type) {
				case *ast.IndexExpr:
					if id, ok := t.Index.(*ast.Ident); ok {
						params[id.Name] = true
					}
				}
			}
			for _, p := range d.Type.Params.List {
				if isArray(p.Type, params) && !hasShape.MatchString(doc) {
					add(d.Pos(), 2, d.Name.Name+" takes arrays and states no shape")
					break
				}
			}
			if r := d.Type.Results; r != nil {
				if id, ok := r.List[len(r.List)-1].Type.(*ast.Ident); ok && id.Name == "error" && !saysError.MatchString(doc) {
					add(d.Pos(), 2, d.Name.Name+" returns an error and does not say when")
				}
			}
		case *ast.GenDecl:
			for _, text := range helpTexts(d) {
				if n := len([]rune(text)); n > 60 {
					add(d.Pos(), 6, fmt.Sprintf("help of %d characters: %s", n, text))
				}
				for _, m := range bannedWords.FindAllString(text, -1) {
					add(d.Pos(), 3, "help: "+m)
				}
			}
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if test {
						continue
					}
					checkName(s.Name)
					if s.Name.IsExported() && f.Name.Name != "main" && s.Doc.Text()+d.Doc.Text() == "" {
						add(s.Pos(), 2, s.Name.Name+" has no doc comment")
					}
					var l *ast.FieldList
					switch t := s.Type.(type) {
					case *ast.StructType:
						l = t.Fields
					case *ast.InterfaceType:
						l = t.Methods
					}
					if l != nil {
						for _, fl := range l.List {
							for _, id := range fl.Names {
								checkName(id)
							}
						}
					}
				case *ast.ValueSpec:
					if d.Tok != token.VAR && d.Tok != token.CONST || test {
						continue
					}
				}
			}
		}
	}
	return bs, nil
}

// isPixel reports that d is the method At of an image.Image, whose name the standard
// library has chosen.
func isPixel(d *ast.FuncDecl) bool {
	if d.Recv == nil || d.Name.Name != "At" || d.Type.Results == nil {
		return false
	}
	r, ok := d.Type.Results.List[0].Type.(*ast.SelectorExpr)
	return ok && r.Sel.Name == "Color"
}

// isNumeric reports that a type parameter with the constraint t is a number.
func isNumeric(t ast.Expr) bool {
	var b strings.Builder
	if err := format.Node(&b, token.NewFileSet(), t); err != nil {
		return true
	}
	return strings.Contains(strings.ToLower(b.String()), "float") || strings.Contains(b.String(), "Element")
}

func star(t ast.Expr) ast.Expr {
	if s, ok := t.(*ast.StarExpr); ok {
		return s.X
	}
	return t
}

func exportedReceiver(l *ast.FieldList) bool {
	t := star(l.List[0].Type)
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

// breachesOfPage returns the breaches of a page, code blocks and inline code apart.
func breachesOfPage(name, text string) []breach {
	var bs []breach
	fenced := false
	inline := regexp.MustCompile("`[^`]*`")
	for i, l := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(l, "    ") {
			continue
		}
		for _, m := range bannedWords.FindAllString(inline.ReplaceAllString(l, "`x`"), -1) {
			bs = append(bs, breach{name, i + 1, 3, m})
		}
	}
	return bs
}

// helpTexts returns the help texts in the tags of a declaration's fields.
func helpTexts(d *ast.GenDecl) []string {
	var texts []string
	ast.Inspect(d, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			if tag, err := strconv.Unquote(f.Tag.Value); err == nil {
				texts = append(texts, reflect.StructTag(tag).Get("help"))
			}
		}
		return true
	})
	return texts
}

// unlisted are pages that quote what they forbid.
var unlisted = []string{"docs/style.md"}

// walkSources calls visit with every Go file and page of the tree.
func walkSources(t *testing.T, visit func(name string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".md") {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			visit(filepath.ToSlash(name), text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rules 2, 3 and 5 of docs/style.md, as far as a program can judge them. Breaches that
// testdata/style.txt still allows, a number for each folder or page, may only become
// fewer: go test . -run FollowTheStyle -write-style takes the present numbers.
func TestTextAndNamesFollowTheStyle(t *testing.T) {
	found := map[string][]breach{}
	walkSources(t, func(name string, text []byte) {
		if !strings.HasPrefix(name, *styleDir) || slices.Contains(unlisted, name) {
			return
		}
		if !strings.HasSuffix(name, ".go") {
			if list := breachesOfPage(name, string(text)); len(list) > 0 {
				found[name] = list
			}
			return
		}
		list, err := breachesOfFile(name, text)
		if err != nil {
			t.Error(err)
		}
		if len(list) > 0 {
			found[path.Dir(name)] = append(found[path.Dir(name)], list...)
		}
	})
	if *styleDir != "" {
		for _, list := range found {
			for _, b := range list {
				t.Error(b)
			}
		}
		return
	}
	const file = "testdata/style.txt"
	if *writeStyle {
		var lines []string
		for where, list := range found {
			lines = append(lines, fmt.Sprintf("%s %d\n", where, len(list)))
		}
		slices.Sort(lines)
		if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]int{}
	for line := range strings.Lines(string(text)) {
		where, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if allowed[where], err = strconv.Atoi(number); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	for where, list := range found {
		if len(list) > allowed[where] {
			t.Errorf("%s breaks the style %d times, %d are allowed:", where, len(list), allowed[where])
			for _, b := range list {
				t.Error(b)
			}
		}
	}
	for where, n := range allowed {
		if len(found[where]) < n {
			t.Errorf("%s breaks the style %d times, %s allows %d: write it anew with -write-style", where, len(found[where]), file, n)
		}
	}
}

// What the rules find in a file that breaks each of them.
func TestStyleFindsBreaches(t *testing.T) {
	const src = `package p

// Sum adds those of x.
func Sum(x []float64) float64 { return 0 }

// Load reads a file.
func Load(name string) error { return nil }

type box struct{ whole, width int }

func over() {}

type flags struct {
	A int ` + "`help:\"Nobody reads it.\"`" + `
}
`
	found, err := breachesOfFile("p.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range found {
		got = append(got, strconv.Itoa(b.rule)+" "+b.text)
	}
	slices.Sort(got)
	want := []string{
		"2 Load returns an error and does not say when",
		"2 Sum takes arrays and states no shape",
		"3 help: Nobody",
		"3 those of",
		"5 over",
		"5 whole",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := breachesOfPage("p.md", "as `so many` as\n\nthere are so many rows\n"); len(got) != 1 {
		t.Errorf("page: found %v, want one", got)
	}
}

// TestDrawnIdentifiers prints the documentation of 60 exported identifiers for a reader
// to judge: go test . -run DrawnIdentifiers -v -draw 7.
func TestDrawnIdentifiers(t *testing.T) {
	if *styleDraw == 0 {
		t.Skip("without -draw there is nothing to print")
	}
	var all []string
	for _, p := range packages(t) {
		if strings.HasPrefix(p.dir, "internal/") || strings.HasPrefix(p.dir, "cmd/") || strings.HasPrefix(p.dir, "examples/") {
			continue
		}
		fset := token.NewFileSet()
		var files []*ast.File
		names, err := filepath.Glob(filepath.Join(".", p.dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
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
		d, err := doc.NewFromFiles(fset, files, p.dir)
		if err != nil {
			t.Fatal(err)
		}
		add := func(name, text string) { all = append(all, fmt.Sprintf("%s.%s: %s", p.dir, name, text)) }
		for _, f := range d.Funcs {
			add(f.Name, f.Doc)
		}
		for _, y := range d.Types {
			add(y.Name, y.Doc)
			for _, f := range append(y.Funcs, y.Methods...) {
				add(y.Name+"."+f.Name, f.Doc)
			}
		}
	}
	slices.Sort(all)
	r := rand.New(rand.NewPCG(*styleDraw, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, s := range all[:min(60, len(all))] {
		t.Log(s)
	}
}
