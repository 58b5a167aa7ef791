package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Go's assembler lacks most of NEON, so the generator encodes words. LLVM's assembler encodes the
// instructions in the comments to the same words.
func TestWords(t *testing.T) {
	assembler, err := exec.LookPath("llvm-mc")
	if err != nil {
		t.Skip("llvm-mc is not installed")
	}
	paths, err := filepath.Glob("*_neon_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`WORD \$0x(..)(..)(..)(..) // (.*)`)
	words := map[string]string{} // by instruction
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			word := "0x" + m[4] + ",0x" + m[3] + ",0x" + m[2] + ",0x" + m[1]
			if other, ok := words[m[5]]; ok && other != word {
				t.Errorf("%s is %s and %s", m[5], word, other)
			}
			words[m[5]] = word
		}
	}
	if len(words) < 100 {
		t.Fatalf("%d instructions in %q", len(words), paths)
	}
	var list []string
	for text := range words {
		list = append(list, text)
	}
	c := exec.Command(assembler, "-arch=aarch64", "-mattr=+neon", "-show-encoding")
	c.Stdin = strings.NewReader(strings.Join(list, "\n"))
	text, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	encodings := regexp.MustCompile(`encoding: \[(.*)\]`).FindAllStringSubmatch(string(text), -1)
	if len(encodings) != len(list) {
		t.Fatalf("%d encodings of %d instructions", len(encodings), len(list))
	}
	for i, m := range encodings {
		if words[list[i]] != m[1] {
			t.Errorf("%s is %s, not %s", list[i], m[1], words[list[i]])
		}
	}
}
