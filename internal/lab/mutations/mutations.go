// Package mutations makes mistakes on purpose, one at a time, and demands that each
// of the tests which should catch them fails. It runs in the root of a checkout, and changes
// nothing there: the go command reads a changed file in the place of the one that
// is there (go help build, -overlay).
//
//	mutations [-run REGEXP] [-page FILE]
//
// -run takes the faults whose file or description matches. -page runs nothing and
// writes the table of all faults into a page.
package mutations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/page"
)

// Run makes the mistakes that args choose. It returns an error if an argument is wrong or
// a mistake is not caught.
func Run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("mutations", flag.ContinueOnError)
	choice := f.String("run", "", "faults whose file or description matches")
	path := f.String("page", "", "page to write the table into")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q: no arguments but flags", f.Arg(0))
	}
	if *path != "" {
		return written.WriteFile(*path, writeTable())
	}
	chosen, err := regexp.Compile(*choice)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	dir, err := os.MkdirTemp("", "mutations")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ran, missed := 0, 0
	for _, m := range faults {
		if !chosen.MatchString(m.file) && !chosen.MatchString(m.what) || !m.runTests() {
			continue
		}
		start := time.Now()
		why, err := m.isSurvivor(ctx, dir)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		verdict := "caught"
		switch {
		case err != nil:
			verdict, why = "BROKEN", err.Error()
		case why != "":
			verdict = "SURVIVES"
		}
		fmt.Printf("%-8s  %4.0f s  %s: %s\n", verdict, time.Since(start).Seconds(), m.file, m.what)
		if ran++; why != "" {
			missed++
			fmt.Println(why)
		}
	}
	switch {
	case missed > 0:
		return fmt.Errorf("%d of %d faults are not caught", missed, ran)
	case ran == 0:
		return fmt.Errorf("-run: no fault matches %q", *choice)
	}
	fmt.Printf("%d faults, all caught\n", ran)
	return nil
}

// runTests reports that the fault is in what this machine compiles.
func (m *fault) runTests() bool {
	return !strings.HasSuffix(m.file, "_amd64.s") || runtime.GOARCH == "amd64"
}

// applyTo returns the file with the fault in it.
func (m *fault) applyTo() ([]byte, error) {
	text, err := os.ReadFile(filepath.FromSlash(m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.text)); n != 1 {
		return nil, fmt.Errorf("%s: %q stands there %d times, needs 1", m.file, m.text, n)
	}
	return bytes.Replace(text, []byte(m.text), []byte(m.new), 1), nil
}

// isSurvivor runs each of the tests that should catch the fault alone, with files in dir. It
// returns the output of the first test that passes: "" if all fail. What does not
// compile, or was cut off, tests nothing and is an error.
func (m *fault) isSurvivor(ctx context.Context, dir string) (why string, err error) {
	text, err := m.applyTo()
	if err != nil {
		return "", err
	}
	file, err := filepath.Abs(filepath.FromSlash(m.file))
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "changed"+filepath.Ext(m.file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, text, 0o666); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, list, 0o666); err != nil {
		return "", err
	}
	for _, test := range strings.Split(m.test, "|") {
		name, subtest, _ := strings.Cut(test, "/")
		c := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-short", "-failfast", "-count=1", "-run", "^"+name+"$/"+subtest, "./"+m.pkg)
		out, err := c.CombinedOutput()
		var failed *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err == nil:
			return fmt.Sprintf("%s passes\n%s", test, out), nil
		case !errors.As(err, &failed) || !regexp.MustCompile(`(?m)^\s*--- FAIL: `).Match(out):
			return "", fmt.Errorf("%s: %w\n%s", test, err, out)
		}
	}
	return "", nil
}

// written is the part of docs/testing.md.
var written = page.Part{
	Begin: "<!-- faults: go run ./cmd/farfield-lab mutations -page docs/testing.md -->",
	End:   "<!-- faults: end -->",
	Title: "## Seeded faults",
}

// writeTable returns the table of all faults.
func writeTable() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d faults:\n\n| file | fault | caught by |\n|---|---|---|\n", len(faults))
	for _, m := range faults {
		pkg := filepath.Base(m.pkg)
		if strings.HasPrefix(m.pkg, "cmd/") {
			pkg = m.pkg // the base is the name of the module
		}
		tests := strings.Split(m.test, "|")
		for i, name := range tests {
			tests[i] = fmt.Sprintf("`%s.%s`", pkg, name)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.file, m.what, strings.Join(tests, ", "))
	}
	return b.Bytes()
}
