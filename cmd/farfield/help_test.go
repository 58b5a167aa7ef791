package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/help"
	"github.com/farfield-ml/farfield/internal/cli/version"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/task"
)

// commandLine is the parser of a command line, or of all verbs.
func commandLine(t *testing.T, args ...string) *kong.Kong {
	t.Helper()
	parser, err := farfield().NewParser(args, io.Discard, io.Discard, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

func TestOverviewFitsATerminal(t *testing.T) {
	out := works(t)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) > 23 { // and the prompt
		t.Errorf("it has %d lines, a terminal shows 24", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	for _, verb := range commandLine(t).Model.Children {
		if !verb.Hidden && !regexp.MustCompile(`  `+verb.Name+`\s`).MatchString(out) {
			t.Errorf("%s is not there", verb.Name)
		}
	}
	for _, command := range help.FirstCommands {
		parses(t, command)
		if !strings.Contains(out, command) {
			t.Errorf("%q is not there", command)
		}
	}
	if works(t, "--help") != out || works(t, "help") != out {
		t.Error("--help or help prints something else")
	}
	if verb := works(t, "help", "bench", "gemm"); verb != works(t, "bench", "gemm", "--help") || verb == out {
		t.Errorf("help of a verb prints\n%s", verb)
	}
}

// The parser of a command line has the verb in full and all others by name.
func TestParsersOfCommandLinesHaveAllVerbs(t *testing.T) {
	whole := commandLine(t).Model.Children
	for _, named := range []string{"none", "train", "version", "complete"} {
		some := commandLine(t, named, "--help").Model.Children
		if len(some) != len(whole) {
			t.Fatalf("%d verbs, there are %d", len(some), len(whole))
		}
		for i, verb := range some {
			want := whole[i]
			if verb.Name != want.Name || verb.Help != want.Help || verb.Hidden != want.Hidden || !reflect.DeepEqual(verb.Group, want.Group) {
				t.Errorf("verb %d is %s in %v: %q, want %s in %v: %q", i, verb.Name, verb.Group, verb.Help, want.Name, want.Group, want.Help)
			}
			if got := len(verb.Flags) + len(verb.Positional); verb.Name == named && got != len(want.Flags)+len(want.Positional) || verb.Name != named && got > 0 {
				t.Errorf("%s: %d flags and arguments of %s", named, got, verb.Name)
			}
		}
	}
}

var (
	quoted   = regexp.MustCompile(`"[^"]*"|\$\([^)]*\)|\S+`)
	redirect = regexp.MustCompile(`^[<>]+`)
)

// words returns the arguments of the program in a shell command, without redirections,
// pipes and the commands around it.
func words(command string) (list []string) {
	if i := strings.Index(command, "farfield "); i > 0 {
		command = command[i:]
	}
	for _, w := range quoted.FindAllString(command, -1) {
		if !redirect.MatchString(w) {
			list = append(list, strings.Trim(w, `"`))
		}
	}
	return list[1:]
}

// parses lets the parser read a command, in which numbers may come from the shell.
func parses(t *testing.T, command string) {
	t.Helper()
	args := words(command)
	for i, w := range args {
		if strings.HasPrefix(w, "$(") {
			args[i] = "7"
		}
	}
	if _, err := commandLine(t, args...).Parse(args); err != nil {
		t.Errorf("%s: %v", command, err)
	}
}

// exampleLines are the commands that the help of a verb has.
func exampleLines(leaf *kong.Node) (list []string) {
	for _, line := range strings.Split(leaf.Detail, "\n") {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			list = append(list, command)
		}
	}
	return list
}

func TestEveryVerbHasExamplesThatParse(t *testing.T) {
	for _, leaf := range commandLine(t).Model.Leaves(true) {
		list := exampleLines(leaf)
		if len(list) == 0 {
			t.Errorf("%s has no examples", leaf.FullPath())
		}
		for _, command := range list {
			parses(t, command)
		}
		own := 0
		for _, command := range list {
			if strings.HasPrefix(command, leaf.FullPath()+" ") || command == leaf.FullPath() {
				own++
			}
		}
		if own == 0 {
			t.Errorf("%s has examples of other verbs alone", leaf.FullPath())
		}
		out := works(t, append(strings.Fields(leaf.FullPath())[1:], "--help")...)
		for _, command := range list {
			if !strings.Contains(out, "    "+command+"\n") {
				t.Errorf("%s --help does not print %q as it is", leaf.FullPath(), command)
			}
		}
		if !strings.Contains(out, flags.ExitStatuses) {
			t.Errorf("%s --help does not tell the exit statuses", leaf.FullPath())
		}
	}
}

// TestFlagIsCalledTheSameByEveryVerb: -n is --n and -o is --out wherever there is one.
func TestFlagIsCalledTheSameByEveryVerb(t *testing.T) {
	short, of := map[string]rune{}, map[string]string{}
	for _, leaf := range commandLine(t).Model.Leaves(true) {
		for _, f := range leaf.Flags {
			if before, seen := short[f.Name]; seen && before != f.Short {
				t.Errorf("--%s is -%c for %s, -%c for %s", f.Name, before, of[f.Name], f.Short, leaf.FullPath())
			}
			short[f.Name], of[f.Name] = f.Short, leaf.FullPath()
		}
	}
	parses(t, "farfield plan -n 65536 -d 64")
	parses(t, "farfield plan --n 65536 --d 64")
	parses(t, "farfield bench attention --n 256 --d 16")
}

func TestMistypedVerbGetsASuggestion(t *testing.T) {
	for mistake, verb := range map[string]string{"evl": "eval", "compar": "compare", "inspct": "inspect"} {
		refuses(t, `there is no verb `+mistake+`, did you mean "`+verb+`"? (see farfield --help)`, mistake)
	}
}

func TestVersionIsAVerbToo(t *testing.T) {
	if verb, flag := works(t, "version"), works(t, "--version"); verb != flag {
		t.Errorf("version prints %q, --version %q", verb, flag)
	}
}

// TestHelpOfATaskListsItsSettings has all settings of every task, with what its preset
// chooses.
func TestHelpOfATaskListsItsSettings(t *testing.T) {
	for _, row := range task.Rows() {
		out := works(t, "train", "--task", row.Name, "--help")
		for _, s := range row.Settings {
			want := "--task-set " + s.Name + "=VALUE"
			if s.Name == "data" {
				want = "--data PATH"
			}
			if !strings.Contains(out, "  "+want) || !strings.Contains(out, s.Doc) {
				t.Errorf("%s: %q and %q are not in\n%s", row.Name, want, s.Doc, out[strings.Index(out, "\nTask"):])
			}
		}
		if strings.Contains(out, "Mechanisms (") {
			t.Errorf("%s: the catalogue of mechanisms follows", row.Name)
		}
	}
	for args, want := range map[string][]string{
		"--task file":                       {"(default 4096)", "preset bpe", "Task file: ", "(needed)"},
		"--task file --mechanism performer": {"Task file: ", "Mechanism performer: "},
		"":                                  {"Tasks (--task NAME", "Mechanisms ("},
	} {
		out := works(t, append(strings.Fields("train "+args), "--help")...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("train %s --help lacks %q", args, w)
			}
		}
	}
	if status, _, errs := command(t, "train", "--task", "fil", "--help"); status != env.StatusInput || !strings.Contains(errs, `task "fil": unknown; there are: shapes`) {
		t.Errorf("an unknown task: status %d, %s", status, errs)
	}
}

func TestVersion(t *testing.T) {
	defer func(r, c, d string) { version.Release, version.Commit, version.Date = r, c, d }(version.Release, version.Commit, version.Date)
	version.Release, version.Commit, version.Date = "v1.2.3", "0123456789abcdef", "2026-01-02T03:04:05Z"
	out := works(t, "--version")
	for _, want := range []string{"farfield v1.2.3 (commit 0123456789ab, 2026-01-02T03:04:05Z, go", cpu.ActiveSet() + " kernels)\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
	version.Release, version.Commit, version.Date = "", "", ""
	if out := works(t, "--version"); !strings.HasPrefix(out, "farfield ") || strings.Contains(out, "(, ") {
		t.Errorf("without a release: %q", out)
	}
}

func TestQuiet(t *testing.T) {
	data := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(data, bytes.Repeat([]byte("one two three four\n"), 100), 0o666); err != nil {
		t.Fatal(err)
	}
	train := []string{"train", "--data", data, "--preset", "tiny", "--steps", "1", "--context", "16", "--batch", "1", "--sample-tokens", "0", "--out"}
	status, loud, notes := command(t, append(train, filepath.Join(t.TempDir(), "run"))...)
	if status != 0 || notes == "" || !strings.Contains(loud, "model ") {
		t.Errorf("status %d\nstdout %q\nstderr %q", status, loud, notes)
	}
	status, out, notes := command(t, append(train, filepath.Join(t.TempDir(), "run"), "--quiet")...)
	if status != 0 || notes != "" || !strings.HasPrefix(out, "verdict ") || strings.Contains(out, "more ") {
		t.Errorf("--quiet: status %d\nstdout %q\nstderr %q", status, out, notes)
	}
	refuses(t, "no such file", "inspect", "-q", filepath.Join(t.TempDir(), "none"))
}

// Errors say what to do next.
func TestErrorsSuggest(t *testing.T) {
	dir := t.TempDir()
	arrays := written(t, "qkv.npz", normal(t, "q", 1, 5, 4), normal(t, "k", 2, 5, 4), normal(t, "v", 3, 5, 4))
	for _, c := range []struct{ want, args string }{
		{`there is no verb atend, did you mean "attend"? (see farfield --help)`, "atend"},
		{"there is no verb nothing (see farfield --help)", "nothing"},
		{"nearest: fastmax", "attend --mechanism fastmx " + arrays + " out.npz"},
		{"there are: mnist", "data fetch mnits"},
		{"needs .npz or .safetensors", "attend --mechanism fastmax " + arrays + " " + filepath.Join(dir, "out.txt")},
		{"no such file", "attend --mechanism fastmax none.npz out.npz"},
		{"--out has to name the folder of the run", "train --resume"},
		{"holds no run: it has no config.json; farfield train --out", "train --resume --out " + filepath.Join(dir, "none")},
		{"holds no run", "report " + dir},
		{"--precision must be one of", "embed --precision int4 notes.txt"},
		{"no such file", "train --data " + filepath.Join(dir, "none.txt")},
	} {
		refuses(t, c.want, strings.Fields(c.args)...)
	}
}

func TestExitStatuses(t *testing.T) {
	stopped, stop := context.WithCancel(context.Background())
	stop()
	full := &os.PathError{Op: "write", Path: "out", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err    error
		ctx    context.Context
		status int
	}{
		{errors.New("it failed"), context.Background(), env.StatusFailure},
		{env.InputErrorf("it is wrong"), context.Background(), env.StatusInput},
		{env.MarkInput(full), context.Background(), env.StatusFailure},
		{context.Canceled, stopped, env.StatusInterrupted},
		{env.MarkInput(fmt.Errorf("reading: %w", context.Canceled)), stopped, env.StatusInterrupted},
		{env.Interruption{Err: context.Canceled, Text: "stopped"}, stopped, env.StatusInterrupted},
	} {
		var errs bytes.Buffer
		if got := farfield().ReportError(&env.Env{Context: c.ctx, Stderr: &errs}, c.err); got != c.status || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: status %d, want %d; %q", c.err, got, c.status, errs.String())
		}
	}
	page, err := os.ReadFile("../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{0, env.StatusFailure, env.StatusInput, env.StatusInterrupted} {
		if !strings.Contains(string(page), fmt.Sprintf("\n| %d | ", status)) || !strings.Contains(flags.ExitStatuses, fmt.Sprintf(" %d ", status)) {
			t.Errorf("status %d is not documented", status)
		}
	}
}
