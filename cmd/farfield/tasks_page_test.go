package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRecipesOfTasksRun runs the recipes of docs/tasks.md, with five updates each: what the
// shell writes, what train makes of it, and what predict says of it.
func TestRecipesOfTasksRun(t *testing.T) {
	if testing.Short() {
		t.Skip("trains six models")
	}
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("there is no awk")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "tasks.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "all-MiniLM-L6-v2"), os.DirFS(tinyModel)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for name, content := range map[string]string{"labelled.tsv": "text\tlabel\n" + strings.Repeat("to be\tyes\nor not\tno\n", 20), "lines.txt": "to be\nor not\n",
		"labelled.jsonl": strings.Repeat("{\"text\": \"to be\", \"label\": \"yes\"}\n{\"text\": \"or not\", \"label\": \"no\"}\n", 20)} {
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	trained, said := 0, 0
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		var shell strings.Builder
		for line := range strings.Lines(block[1]) {
			if !strings.HasPrefix(line, "farfield ") {
				shell.WriteString(line)
			}
		}
		if out, err := exec.Command("sh", "-e", "-c", shell.String()).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, shell.String())
		}
		for _, q := range quotes("tasks.md", block[0]) {
			args := slices.Clone(q.words[1:])
			switch args[0] {
			case "train":
				trained++
				args = append(args, "--steps", "5", "--quiet")
			case "predict":
				said++
			}
			if out := works(t, args...); args[0] == "predict" && strings.Count(out, "\n") < 2 {
				t.Errorf("%v prints\n%s", args, out)
			}
		}
	}
	if trained != 7 || said != 6 {
		t.Errorf("%d trainings and %d predictions, the page has 7 and 6", trained, said)
	}
}
