package recipes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/suite"
)

var root = filepath.Join("..", "..")

func readme(t *testing.T) (readme, recipes []block) {
	t.Helper()
	readme, recipes, err := readBlocks(root)
	if err != nil {
		t.Fatal(err)
	}
	return readme, recipes
}

// README.md has two commands, docs/recipes.md a line that installs and seven recipes
// with their output.
func TestPagesHaveRecipes(t *testing.T) {
	commands, recipes := readme(t)
	var first string
	for _, b := range commands {
		first += b.commands
	}
	if want := "go run ./cmd/farfield demo\ngo test ./...\n"; first != want {
		t.Errorf("the two commands are\n%swant\n%s", first, want)
	}
	if len(recipes) != 8 {
		t.Fatalf("%d blocks of recipes; want 8", len(recipes))
	}
	for _, b := range recipes[1:] {
		if b.title == "" || b.commands == "" || len(b.prints) == 0 {
			t.Errorf("recipe %+v has no title, no command or no output", b)
		}
	}
}

func TestRecipesRun(t *testing.T) {
	if !suite.IsLong() {
		t.Skip("takes a minute: go test ./recipes -long")
	}
	ctx := context.Background()
	a, err := newAccount(ctx, t.TempDir(), root, false)
	if err != nil {
		t.Fatal(err)
	}
	_, recipes := readme(t)
	if _, err := a.run(ctx, recipes, t.Output()); err != nil {
		t.Error(err)
	}
}

func TestBlocks(t *testing.T) {
	list := parseBlocks("## A\n```sh\none\ntwo\n```\nwords\n```text\n3 s\n…\n```\n### B\n```go\n## x\n```\n```sh python3\nthree\n```\n")
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
	a := &account{home: dir, checkout: dir, env: os.Environ()}
	ctx := context.Background()
	done, err := a.run(ctx, []block{{title: "good", commands: "pwd; echo 5 s", prints: []string{"6 s"}}}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if left, err := a.run(ctx, []block{{commands: "false", needs: "no-such-program"}}, t.Output()); err != nil || len(left) > 0 {
		t.Errorf("a block without its program: %v, %v", left, err)
	}
	if strings.Contains(done[0].output, dir) || !strings.Contains(done[0].output, "~") {
		t.Errorf("prints %q", done[0].output)
	}
	for commands, want := range map[string]string{"echo 5; false\necho 6": "exit status 1", "echo x": `the page has "5"`} {
		_, err := a.run(ctx, []block{{title: "bad", commands: commands, prints: []string{"5"}}}, t.Output())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", commands, err, want)
		}
	}
}

func TestPage(t *testing.T) {
	var b strings.Builder
	r := result{block{title: "A", commands: "echo\n"}, "one  \n```\n", 1500 * time.Millisecond}
	if err := writePage(&b, "abc", []result{r, r}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"commit abc", "| A: `echo` | 1.5 s |\n", "| together | 3.0 s |", "## A\n\n```sh\necho\n```\n\n```text\none\n    ```\n```\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
