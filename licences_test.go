//go:build docs

package farfield_test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A release has the licences of the modules that it links, and of its font.
func TestReleaseHasLicences(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("releases are made on Linux, with bash")
	}
	out, err := exec.Command(bash, filepath.Join(".ci", "licences")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.500s", err, out)
	}
	for _, want := range []string{"== go1.", "== gonum.org/v1/plot ", "SIL OPEN FONT LICENSE"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing", want)
		}
	}
}
