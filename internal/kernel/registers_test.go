package kernel

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Machines with AVX2 only cannot run instructions with registers beyond the sixteenth, or masks. AVX-512
// machines run them unnoticed, so the test reads the assembly text.
func TestAVX2Registers(t *testing.T) {
	paths, err := filepath.Glob("*_avx2_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("no assembly for AVX2")
	}
	beyond := regexp.MustCompile(`(?m)^.*\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b.*$`)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if line := beyond.Find(text); line != nil {
			t.Errorf("%s: %s is not AVX2", path, line)
		}
	}
}
