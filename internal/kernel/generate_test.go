package kernel

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var regenerate = flag.Bool("regenerate", false, "run the generator and compare its assembly with the committed files")

// The generator is a separate module. Its first run needs the network.
func TestGenerated(t *testing.T) {
	if !*regenerate {
		t.Skip("without -regenerate")
	}
	command := func(args ...string) ([]byte, error) {
		c := exec.Command("go", args...)
		c.Dir = "_asm"
		c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
		return c.CombinedOutput()
	}
	if text, err := command("mod", "download"); err != nil {
		t.Fatalf("the generator's modules are not to be had: %v\n%s", err, text)
	}
	dir := t.TempDir()
	if text, err := command("run", ".", "-dir", dir); err != nil {
		t.Fatalf("the generator fails: %v\n%s", err, text)
	}
	list := func(dir string) map[string]bool {
		names := map[string]bool{}
		for _, pattern := range []string{"*_avx*_amd64.*", "*_neon_arm64.*"} {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				names[filepath.Base(path)] = true
			}
		}
		return names
	}
	fresh, kept := list(dir), list(".")
	if len(fresh) == 0 {
		t.Fatal("the generator wrote nothing")
	}
	for name := range kept {
		if !fresh[name] {
			t.Errorf("%s does not come from the generator", name)
		}
	}
	for name := range fresh {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go generate ./internal/kernel", name)
		}
	}
}
