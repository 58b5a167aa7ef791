//go:build docs

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
	"github.com/farfield-ml/farfield/internal/task"
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
	block      = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```")
	inline     = regexp.MustCompile("`([^`]+)`")
	comment    = regexp.MustCompile(`\s#.*`)
	word       = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	setting    = regexp.MustCompile(`^[A-Z_]+=`)
	redirected = regexp.MustCompile(`^([0-9]?[<>]|&$)`)
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
			words = slices.DeleteFunc(words, func(w string) bool { return w == "…" || w == "..." || redirected.MatchString(w) })
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
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		language, _, _ := strings.Cut(m[1], " ")
		if !slices.Contains([]string{"", "sh", "shell", "bash", "console"}, language) {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(m[2], "\\\n", " ")) {
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
	for _, name := range []string{"README.md", "RESULTS.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", filepath.Join("lab", "peers", "README.md")} {
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
var notCommands = []string{"farfield session", "farfield session state", "farfield generation", "farfield origin", "farfield model", "farfield index", "farfield VERB --help"}

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
	left := false
	parser, err := farfield().NewParser(args, io.Discard, io.Discard, func() { left = true })
	if err != nil {
		return err
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
