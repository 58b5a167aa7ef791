package kernel

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A machine with AVX2 alone stops at an instruction that names a register
// beyond the sixteenth, or a mask. A machine that has AVX-512 runs it and
// notices nothing, so the text of the assembly is what is tested.
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
