package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/completion"
)

func TestComplete(t *testing.T) {
	root := commandLine(t).Model.Node
	for _, c := range []struct {
		words string // separated by spaces; the last one is completed
		want  []string
		all   bool // nothing else
	}{
		{"", []string{"attend", "data", "completion"}, false},
		{"da", []string{"data"}, true},
		{"data ", []string{"list", "fetch", "generate", "verify"}, true},
		{"data fetch tiny", []string{"tinyshakespeare"}, true},
		{"data fetch mnist im", []string{"imdb"}, true},
		{"data generate ", []string{"listops", "pathfinder32"}, true},
		{"bench gemm --transpose nn,t", []string{"nn,tn", "nn,tt"}, true},
		{"bench attention --mechanism fastmax,soft", []string{"fastmax,softmax"}, true},
		{"bench attention --form ", []string{"auto", "direct", "linear", "step"}, true},
		{"attend --mech", []string{"--mechanism"}, true},
		{"attend --mechanism tay", []string{"taylorshift"}, true},
		{"attend --mechanism=tay", []string{"--mechanism=taylorshift"}, true},
		{"attend --mechanism = tay", []string{"taylorshift"}, true},
		{"attend --mechanism =", []string{"softmax", "fastmax"}, false},
		{"attend --mechanism taylorshift --set t", []string{"tau="}, true},
		{"attend --causal ", []string{completion.FilesHint}, true},
		{"attend --threads 1 --causal qkv", []string{completion.FilesHint}, true},
		{"attend --model ", []string{completion.FoldersHint}, true},
		{"attend a b c", nil, true},
		{"attend -- --", []string{completion.FilesHint}, true},
		{"train --mechanism mam", []string{"mamba-2"}, true},
		{"train --task listops --task-set ", []string{"from=", "above=", "below="}, true},
		{"train --preset lra-t", []string{"lra-text"}, true},
		{"train --optimizer ad", []string{"adamw", "adam"}, true},
		{"train --steps ", nil, true},
		{"train --no-ti", []string{"--no-tied"}, true},
		{"embed --no-jsonl qkv", []string{completion.FilesHint}, true},
		{"train --wrong --steps", []string{"--steps"}, true},
		{"inspect m", []string{"mechanisms", completion.FilesHint}, true},
		{"inspect x", []string{completion.FilesHint}, true},
		{"completion ", []string{"bash", "zsh", "fish"}, true},
		{"completion z", []string{"zsh"}, true},
	} {
		var got []string
		for _, x := range completion.CompleteWords(root, strings.Split(c.words, " ")) {
			got = append(got, x.Text)
		}
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q is not among %q", c.words, want, got)
			}
		}
		if c.all && len(got) != len(c.want) {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}

// What a tag lists is what the flag takes.
func TestCompletedListsAreNames(t *testing.T) {
	for _, leaf := range commandLine(t).Model.Leaves(true) {
		values := slices.Clone(leaf.Positional)
		for _, f := range leaf.Flags {
			values = append(values, f.Value)
		}
		for _, v := range values {
			how := v.Tag.Get("complete")
			if how == "" || completion.NamedLists[how] != nil {
				continue
			}
			for _, name := range strings.Split(how, ",") {
				if !strings.Contains(v.Help+v.Tag.PlaceHolder, name) {
					t.Errorf("%s: the help of %s does not know %q", leaf.FullPath(), v.Name, name)
				}
			}
		}
	}
}

func TestCompleteAnswers(t *testing.T) {
	out := works(t, "complete", "--", "attend", "--causal", "--mech")
	if !strings.HasPrefix(out, "--mechanism\tAttention function") || strings.Count(out, "\n") != 1 {
		t.Errorf("answered %q", out)
	}
	for line := range strings.Lines(works(t, "complete", "--", "train", "--")) {
		if name, what, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, "--") || what == "" || len([]rune(what)) > 60 {
			t.Errorf("answered %q", line)
		}
	}
}

// installed puts the program into a folder of its own in front of the path.
func installed(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nFARFIELD_AS_PROGRAM=1 exec '%s' \"$@\"\n", self)
	if err := os.WriteFile(filepath.Join(dir, "farfield"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// shell runs a script in a shell, or skips where there is none.
func shell(t *testing.T, name, script string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	c := exec.Command(path, "-c", script)
	c.Env = installed(t)
	c.Dir = t.TempDir()
	for _, file := range []string{"a file.npz", "another.npz"} {
		if err := os.WriteFile(filepath.Join(c.Dir, file), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(c.Dir, "a folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func TestBash(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{`farfield pl`, "plan\n"},
		{`farfield attend --mechanism tay`, "taylorshift\n"},
		{`farfield attend --mechanism = tay`, "taylorshift\n"},
		{`farfield attend --mechanism = soft`, "softmax\n"},
		{`farfield attend --mechanism fastmax a`, "a file.npz\na folder\nanother.npz\n"},
		{`farfield inspect --model a`, "a folder\n"},
		{`farfield no such`, ""},
	} {
		out := shell(t, "bash", fmt.Sprintf(`source <(farfield completion bash)
			COMP_WORDS=(%s) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
			_farfield
			complete -p farfield >/dev/null || exit
			for word in "${COMPREPLY[@]}"; do printf '%%s\n' "$word"; done | LC_ALL=C sort`, c.words))
		if out != c.want {
			t.Errorf("%s: %q, want %q", c.words, out, c.want)
		}
	}
}

func TestZsh(t *testing.T) {
	shell(t, "zsh", "farfield completion zsh >_farfield && zsh -n _farfield && autoload -U compinit && compinit -D -u && source ./_farfield && whence _farfield")
}

func TestFish(t *testing.T) {
	out := shell(t, "fish", `farfield completion fish | source; complete -C "farfield attend --mechanism tay"`)
	if !strings.Contains(out, "taylorshift") {
		t.Errorf("fish completes to %q", out)
	}
}
