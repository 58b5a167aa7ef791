package recipes

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
)

var pageNames = flag.String("pages", "", "with -long: run the blocks of these pages alone, such as \"train serve\"")

var root = filepath.Join("..", "..")

// Each block that runs has a title and commands, and all but a few have output to compare.
func TestPagesHaveRecipes(t *testing.T) {
	pages, err := readPages(root)
	if err != nil {
		t.Fatal(err)
	}
	n, silent := 0, 0
	for _, p := range pages {
		for _, b := range p.blocks {
			n++
			if b.title == "" || b.commands == "" {
				t.Errorf("%s: recipe %+v has no title or no command", p.name, b)
			}
			if len(b.prints) == 0 {
				silent++
			}
		}
	}
	if len(pages) < 4 || n < 15 || silent > 2 {
		t.Errorf("%d blocks on %d pages, %d of them without output; want 15 on 4 or more, at most 2 without", n, len(pages), silent)
	}
}

func TestRecipesRun(t *testing.T) {
	if !suite.IsLong() {
		t.Skip("takes a minute: go test ./recipes -long")
	}
	ctx := context.Background()
	dir := t.TempDir()
	a, err := newAccount(ctx, dir, root, false)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := readPages(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.runPages(ctx, pages, strings.Fields(*pageNames), t.Output()); err != nil {
		t.Error(err)
	}
}

func TestBlocks(t *testing.T) {
	list := parseBlocks("## A\n```sh run\none\ntwo\n```\nwords\n```text\n3 s\n…\n```\n### B\n```sh\n## x\n```\n```sh run python3\nthree\n```\n```\nfour\n```\n")
	want := []block{{"A", "one\ntwo\n", "", []string{"3 s", "…"}}, {"B", "three\n", "python3", nil}}
	if !slices.EqualFunc(list, want, func(a, b block) bool {
		return a.title == b.title && a.commands == b.commands && a.needs == b.needs && slices.Equal(a.prints, b.prints)
	}) {
		t.Errorf("blocks %+v, want %+v", list, want)
	}
}

func TestMissing(t *testing.T) {
	const output = "made in 3.2 s\nloss 1.25,  7 of 9\npeak 118 GFLOP/s\n272023 bytes\nwrote out/page.html\n"
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"peak 240 GFLOP/s", "260000 bytes"}, ""},
		{[]string{"224988 bytes"}, "224988 bytes"},
		{[]string{"loss 1.05, 7 of 9"}, "loss 1.05, 7 of 9"},
		{[]string{"made in 12 ms", "…", "loss 1.3, 70 of 90", "wrote out/page.html"}, ""},
		{[]string{"loss …", "wrote …"}, ""},
		{[]string{"loss 1.25"}, "loss 1.25"},
		{[]string{"wrote out/page.html", "made in 3 s"}, "made in 3 s"},
		{[]string{"wrote out/page.htm"}, "wrote out/page.htm"},
	} {
		line, why := findMissing(c.lines, output)
		if line != c.want || (why != "") != (c.want != "") {
			t.Errorf("%q: %q is missing, want %q", c.lines, line, c.want)
		}
	}
}

// A command that fails, and one that prints something else, are errors that show
// what was printed, without the account's folders.
func TestRunTells(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	a := &account{home: dir, env: os.Environ()}
	ctx := context.Background()
	done, err := a.run(ctx, dir, []block{{title: "good", commands: "pwd; echo 5 s", prints: []string{"6 s"}}}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if left, err := a.run(ctx, dir, []block{{commands: "false", needs: "no-such-program"}}, t.Output()); err != nil || len(left) > 0 {
		t.Errorf("a block without its program: %v, %v", left, err)
	}
	if strings.Contains(done[0], dir) || !strings.Contains(done[0], "~") {
		t.Errorf("prints %q", done[0])
	}
	for commands, want := range map[string]string{"echo 5; false\necho 6": "exit status 1", "echo x": `the page has "5"`} {
		_, err := a.run(ctx, dir, []block{{title: "bad", commands: commands, prints: []string{"5"}}}, t.Output())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", commands, err, want)
		}
	}
}
