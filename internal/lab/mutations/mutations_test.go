package mutations

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultsAreThere holds the list to the code: what a fault replaces stands in its
// file once, and the tests that should catch it are in their package.
func TestFaultsAreThere(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", ".."))
	const least = 20
	if len(faults) < least {
		t.Errorf("%d faults, needs %d", len(faults), least)
	}
	for _, m := range faults {
		if m.text == m.new || m.what == "" {
			t.Errorf("%s: %q is no fault", m.file, m.text)
		}
		if _, err := m.applyTo(); err != nil {
			t.Error(err)
		}
		var tests []byte
		files, _ := filepath.Glob(filepath.Join(filepath.FromSlash(m.pkg), "*_test.go"))
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tests = append(tests, text...)
		}
		for _, name := range strings.Split(m.test, "|") {
			name, _, _ = strings.Cut(name, "/")
			if !regexp.MustCompile(`(?m)^func ` + name + `\(`).Match(tests) {
				t.Errorf("%s: no test of %s is %s", m.what, m.pkg, name)
			}
		}
	}
}

func TestPageHasTheFaults(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, append([]byte(written.Begin+"\n"), append(writeTable(), written.End...)...)) {
		t.Error("docs/testing.md has another list of faults: go run ./cmd/farfield-lab mutations -page docs/testing.md writes it")
	}
}

// TestAFaultNeedsATest: what no test looks at survives, what does not compile is an
// error.
func TestAFaultNeedsATest(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command")
	}
	t.Chdir(filepath.Join("..", "..", ".."))
	m := fault{"internal/framed/framed.go", "is not a file that begins with", "begins otherwise than with", "an error has other words", "internal/framed", "TestPartsAreWhatWasAppended"}
	if why, err := m.isSurvivor(t.Context(), t.TempDir()); why == "" || err != nil {
		t.Errorf("%q, %v", why, err)
	}
	m.text, m.new = "package framed", "package"
	if _, err := m.isSurvivor(t.Context(), t.TempDir()); err == nil {
		t.Error("a file that does not compile is no error")
	}
	m = fault{"internal/framed/framed.go", "len(rest) > 0", "len(rest) > 100", "the end is not looked at", "internal/framed", "TestDamageIsRefused"}
	if why, err := m.isSurvivor(t.Context(), t.TempDir()); why != "" || err != nil {
		t.Errorf("%q, %v", why, err)
	}
	m.test += "|TestPartsAreWhatWasAppended"
	if why, err := m.isSurvivor(t.Context(), t.TempDir()); why == "" || err != nil {
		t.Errorf("%q, %v beside a test that passes", why, err)
	}
}
