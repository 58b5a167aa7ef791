package farfield_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestStepsAreTargets holds the Makefile and the workflow of GitHub to the steps of
// .ci/run: the same names, each of them a function.
func TestStepsAreTargets(t *testing.T) {
	text := map[string]string{}
	for _, name := range []string{".ci/run", "Makefile", ".github/workflows/ci.yml"} {
		b, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(b)
	}
	find := func(file, pattern string) []string {
		t.Helper()
		m := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(text[file])
		if m == nil {
			t.Fatalf("%s: nothing matches %s", file, pattern)
		}
		return strings.FieldsFunc(m[1], func(r rune) bool { return r == ' ' || r == ',' })
	}
	steps, more := find(".ci/run", `^steps=\((.*)\)$`), find(".ci/run", `^more=\((.*)\)$`)
	if made := find("Makefile", `^steps := (.*)$`); !slices.Equal(steps, made) {
		t.Errorf("steps of .ci/run %v, of the Makefile %v", steps, made)
	}
	if made := find("Makefile", `^more := (.*)$`); !slices.Equal(more, made) {
		t.Errorf("more steps of .ci/run %v, of the Makefile %v", more, made)
	}
	all := slices.Concat(steps, more)
	for _, step := range all {
		if !strings.Contains(text[".ci/run"], "\n"+step+"() {\n") {
			t.Errorf(".ci/run: no function %s", step)
		}
	}
	jobs := find(".github/workflows/ci.yml", `^ +step: \[(.*)\]$`)
	for _, step := range steps {
		if !slices.Contains(jobs, step) {
			t.Errorf("ci.yml: no job of step %s", step)
		}
	}
	for _, job := range jobs {
		if !slices.Contains(all, job) {
			t.Errorf("ci.yml: no step %s", job)
		}
	}
}
