package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// quotation is a command on a page.
type quotation struct {
	where string
	words []string
	whole bool // it is on a line of its own, not a part of a sentence that leaves arguments out
}

var (
	fence      = regexp.MustCompile("(?ms)^```.*?^```")
	shellBlock = regexp.MustCompile("(?ms)^```(?:sh|shell|bash|console)?\n(.*?)^```")
	inline     = regexp.MustCompile("`([^`]+)`")
	comment    = regexp.MustCompile(`\s#.*`)
	word       = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	setting    = regexp.MustCompile(`^[A-Z_]+=`)
)

// quotes returns the commands of a text that begin with farfield, go or make, in the
// shell's words, without what runs them (mpirun, variables).
func quotes(where, text string) (list []quotation) {
	add := func(line string, whole bool) {
		all := word.FindAllString(comment.ReplaceAllString(line+" ", ""), -1)
		for len(all) > 0 {
			end := slices.IndexFunc(all, func(w string) bool { return w == "&&" || w == "|" || w == ";" })
			words := slices.Clone(all)
			if all = nil; end >= 0 {
				words, all = words[:end], words[end+1:]
			}
			for i, w := range words {
				words[i] = strings.Trim(w, `'"`)
			}
			words = slices.DeleteFunc(words, func(w string) bool { return w == "…" || w == "..." }) // left out
			if len(words) > 2 && words[0] == "mpirun" {
				words = words[3:]
			}
			for len(words) > 0 && (words[0] == "$" || setting.MatchString(words[0])) {
				words = words[1:]
			}
			if len(words) == 0 {
				continue
			}
			if len(words) > 2 && words[0] == "go" && words[1] == "run" && words[2] == "./cmd/farfield" {
				words = append([]string{"farfield"}, words[3:]...)
			}
			switch words[0] {
			case "farfield", "go", "make":
				list = append(list, quotation{where, words, whole})
			}
		}
	}
	for _, block := range shellBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			add(line, true)
		}
	}
	text = fence.ReplaceAllString(text, "")
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if code, found := strings.CutPrefix(line, "    "); found {
			add(code, true)
		}
	}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		for _, m := range inline.FindAllStringSubmatch(paragraph, -1) {
			add(m[1], false)
		}
	}
	return list
}

// pages returns the commands of all pages.
func pages(t *testing.T) []quotation {
	t.Helper()
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := filepath.Glob(filepath.Join(root, "docs", "results", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, results...)
	for _, name := range []string{"README.md", "RESULTS.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", filepath.Join("internal", "lab", "peers", "README.md")} {
		files = append(files, filepath.Join(root, name))
	}
	var list []quotation
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, quotes(filepath.Base(f), string(text))...)
	}
	return list
}

// notCommands are the first words of files, which pages about formats tell, and
// what stands for any verb.
var notCommands = []string{"farfield session", "farfield session state", "farfield generation", "farfield origin", "farfield model", "farfield VERB --help"}

// TestCommandsOfPages holds the commands that pages show to the
// program: verbs, flags, values and names of mechanisms, tasks, presets and
// reproductions. A sentence may leave arguments out; a line of its own may not.
func TestCommandsOfPages(t *testing.T) {
	n := 0
	for _, q := range pages(t) {
		if q.words[0] != "farfield" || len(q.words) == 1 || slices.Contains(notCommands, strings.Join(q.words, " ")) {
			continue
		}
		n++
		if err := understood(q); err != nil {
			t.Errorf("%s: %s: %v", q.where, strings.Join(q.words, " "), err)
		}
	}
	if n < 140 {
		t.Errorf("only %d commands found: the patterns do not read the pages", n)
	}
	for _, bad := range []string{"farfield nothing", "farfield plan --wrong", "farfield train --preset nothing",
		"farfield bench zoo --mechanism fastmx"} {
		if understood(quotation{words: strings.Fields(bad)}) == nil {
			t.Errorf("%s: passes", bad)
		}
	}
	if understood(quotation{words: []string{"farfield", "attend"}, whole: true}) == nil {
		t.Error("farfield attend: passes on a line of its own")
	}
}

// omitted matches parse errors about parts that a sentence leaves out.
var omitted = regexp.MustCompile(`^missing |^expected "<|^expected one of|but got "?EOL"?`)

// placeholder stands for a value of the reader's: S, FILE, NAME.
var placeholder = regexp.MustCompile(`^[A-Z]+$`)

func understood(q quotation) error {
	left := false
	parser, err := farfield().NewParser(io.Discard, io.Discard, func() { left = true })
	if err != nil {
		return err
	}
	args := slices.Clone(q.words[1:])
	if args[0] == "A" { // a page's own name for what its table shows
		args[0] = "train"
	}
	for i, a := range args {
		if a == "NAME" && args[i-1] == "--mechanism" {
			args[i] = "fastmax"
		}
		if a == "S" || a == "K" || a == "N" || a == "P" {
			args[i] = "1"
		}
	}
	ctx, err := parser.Parse(args)
	if left {
		return nil
	}
	if err != nil {
		if !q.whole && omitted.MatchString(err.Error()) {
			return nil
		}
		return err
	}
	known := map[string]func(string) error{
		"mechanism": func(s string) error { _, err := flags.LookupRow(s); return err },
		"task":      func(s string) error { _, err := task.Lookup(s); return err },
		"preset":    func(s string) error { _, err := train.LookupPreset(s); return err },
	}
	check := func(name string, v reflect.Value) error {
		valid := known[name]
		if valid == nil {
			return nil
		}
		values, _ := v.Interface().([]string)
		if one, is := v.Interface().(string); is {
			values = []string{one}
		}
		for _, s := range values {
			if s != "" && !placeholder.MatchString(s) {
				if err := valid(s); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, p := range ctx.Path {
		if p.Flag != nil {
			err = check(p.Flag.Name, p.Flag.Target)
		} else if p.Positional != nil {
			err = check(p.Positional.Name, p.Positional.Target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goFlags are the flags of the go command on pages.
var goFlags = map[string]string{
	"test": "run bench benchtime short v timeout count tags race fuzz fuzztime fuzzminimizetime cpu skip overlay",
	"run":  "tags", "build": "tags o", "install": "tags", "vet": "tags", "generate": "", "list": "m", "tool": "http size",
	"get": "", "work": "",
}

// TestBuildCommandsOfPages holds the lines of go and make that pages show to the
// packages, the tests with their flags, and the Makefile.
func TestBuildCommandsOfPages(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:steps :=|more :=|([a-z]+):)(.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		if m[1] != "" {
			targets[m[1]] = true
			continue
		}
		for _, name := range strings.Fields(m[2]) {
			targets[name] = true
		}
	}
	n := 0
	for _, q := range pages(t) {
		switch q.words[0] {
		case "make":
			n++
			for _, w := range q.words[1:] {
				if !targets[w] && !strings.Contains(w, "=") {
					t.Errorf("%s: %s: no target %s", q.where, strings.Join(q.words, " "), w)
				}
			}
		case "go":
			if len(q.words) > 1 {
				n++
				goLine(t, q)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d commands found: the patterns do not read the pages", n)
	}
}

// goLine checks a command of go: its verb, packages and flags, and that patterns
// of tests match one.
func goLine(t *testing.T, q quotation) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s: "+format, append([]any{q.where, strings.Join(q.words, " ")}, args...)...)
	}
	flags, known := goFlags[q.words[1]]
	if !known {
		fail("not a verb that the test knows")
		return
	}
	var code string // of the tests of the packages that are named
	args := q.words[2:]
	for i, a := range args {
		if dir, whole := strings.CutSuffix(a, "/..."); strings.HasPrefix(a, ".") {
			if a == "./cmd/farfield-lab" && i+1 < len(args) {
				if args[i+1] == "reproduce" || args[i+1] == "verify" {
					return // the test of their command has them
				}
				dir = "./internal/lab/" + args[i+1]
			}
			pattern := "*.go"
			if whole {
				pattern = filepath.Join("*", "*.go")
			}
			files, _ := filepath.Glob(filepath.Join("..", "..", dir, pattern))
			if len(files) == 0 {
				fail("no package %s", a)
			}
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				code += string(text)
			}
		}
	}
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		if !isFlag {
			continue
		}
		if name == "long" && strings.Contains(code, `/internal/suite"`) {
			continue
		}
		if !slices.Contains(strings.Fields(flags), name) && !regexp.MustCompile(`\bf(?:lag)?\.\w+\((&[\w.]+, )?"`+name+`"`).MatchString(code) {
			fail("no flag -%s", name)
		}
		if q.words[1] != "test" {
			continue
		}
		kind := map[string]string{"run": "(?:Test|Example|Fuzz)", "bench": "Benchmark"}[name]
		if kind == "" || i+1 == len(args) || args[i+1] == "x" || args[i+1] == "^$" {
			continue
		}
		first, _, _ := strings.Cut(args[i+1], "/")
		found := false
		for _, m := range regexp.MustCompile(`(?m)^func (`+kind+`\w*)\(`).FindAllStringSubmatch(code, -1) {
			matches, err := regexp.MatchString(first, m[1])
			if err != nil {
				fail("%v", err)
			}
			found = found || matches
		}
		if !found {
			fail("-%s %s matches nothing", name, args[i+1])
		}
	}
}
