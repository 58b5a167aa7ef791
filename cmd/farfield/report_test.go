package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	t.Parallel()
	run := trained(t)
	page := func() string {
		t.Helper()
		works(t, "report", "--sample-tokens", "20", run)
		text, err := os.ReadFile(filepath.Join(run, "report.html"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	own, err := os.ReadFile(filepath.Join(run, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"8 of 8 updates", ">Loss<", "Sample"} {
		if !strings.Contains(string(own), want) {
			t.Errorf("the page that train wrote has no %s", want)
		}
	}
	whole := page()
	for _, want := range []string{"8 of 8 updates", ">Loss<", ">validation<", "Learning rate", ">valid, whole<", "Sample", "Configuration", "model.width", "machine", "counts after two tokens"} {
		if !strings.Contains(whole, want) {
			t.Errorf("the page has no %s", want)
		}
	}

	// A run that was killed has half a row at the end, and perhaps no checkpoint.
	path := filepath.Join(run, "metrics.jsonl")
	rows, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, rows[:len(rows)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(run, "ckpt")); err != nil {
		t.Fatal(err)
	}
	if half := page(); strings.Contains(half, "8 of 8") || strings.Contains(half, "Sample") || !strings.Contains(half, ">Loss<") {
		t.Error("the page of half a run is not of half a run")
	}
	refuses(t, "config.json", "report", t.TempDir())
}

// A run of another task has scores by its metric, and no text.
func TestReportOfTask(t *testing.T) {
	t.Parallel()
	run := filepath.Join(t.TempDir(), "run")
	works(t, littleTask(run)...)
	own, err := os.ReadFile(filepath.Join(run, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"induction by fastmax", ">accuracy<", ">valid<", ">test, part, of update ", "commonest label", ">recall<", ">By class<"} {
		if !strings.Contains(string(own), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	out := works(t, "eval", "--model", run)
	_, verdict, _ := strings.Cut(string(own), `<p class="verdict">`)
	verdict, rest, _ := strings.Cut(verdict, "</p>")
	if !strings.Contains(verdict, "baseline") || strings.Contains(verdict, "<") || !strings.Contains(rest, "<table") {
		t.Errorf("the page begins with %q", verdict)
	}
	if !strings.HasPrefix(out, "verdict     ") || !strings.Contains(out, "baseline") {
		t.Errorf("eval begins with %.60q", out)
	}
	works(t, "report", run)
	if again, err := os.ReadFile(filepath.Join(run, "report.html")); err != nil || strings.Contains(string(again), ">Sample<") {
		t.Errorf("a run without a text has a sample, or %v", err)
	}
}

func TestPagesDoNotReplaceFilesOfRuns(t *testing.T) {
	t.Parallel()
	run := trained(t)
	for _, name := range []string{"config.json", "metrics.jsonl", "result.json", "ckpt/latest", "ckpt/step-00000008/model.safetensors"} {
		path := filepath.Join(run, name)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"report", "compare"} {
			refuses(t, "--out: "+path+": is what is read, and would be lost", verb, "--out", path, run)
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Fatalf("%s replaced %s", verb, path)
			}
		}
	}
	for _, verb := range []string{"report", "compare"} {
		refuses(t, "run: its name is empty", verb, "")
	}
	page := filepath.Join(run, "page.html")
	for range 2 {
		works(t, "report", "--sample-tokens", "0", "--out", page, run)
	}
}

func TestRunsAreFoundBehindALinkToTheirFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	works(t, littleRun(textFile(t), filepath.Join(root, "runs", "a"))...)
	link := filepath.Join(root, "link")
	if err := os.Symlink("runs", link); err != nil {
		t.Skip(err)
	}
	out := works(t, "compare", "--json", "--out", filepath.Join(root, "page.html"), link)
	if want := filepath.ToSlash(filepath.Join("link", "a")); !strings.Contains(filepath.ToSlash(out), want) {
		t.Errorf("%s has no run %s", out, want)
	}
	works(t, "report", "--out", filepath.Join(root, "page.html"), link)
}
