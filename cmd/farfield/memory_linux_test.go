package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSmallMachine trains a model by one update, judges it and lets it write, on one
// core with no more than 64 MiB resident. It begins itself again, as the most that
// was resident is a process's.
func TestSmallMachine(t *testing.T) {
	const inside = "FARFIELD_SMALL_MACHINE"
	if os.Getenv(inside) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSmallMachine$", "-test.v")
		c.Env = append(os.Environ(), inside+"=1", "GOMAXPROCS=1", "GOMEMLIMIT=40MiB")
		// Where all memory has huge pages, the kernel gives 2 MiB for each first byte.
		if mode, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); bytes.Contains(mode, []byte("[always]")) {
			if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
				t.Skip("huge pages: ", err)
			}
			defer unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0)
		}
		text, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		t.Logf("%s", text)
		return
	}
	dir := t.TempDir()
	data, out := filepath.Join(dir, "text"), filepath.Join(dir, "run")
	line := []byte("What is it that the small machine reads, and writes?\n")
	if err := os.WriteFile(data, bytes.Repeat(line, 1<<20/len(line)), 0o600); err != nil {
		t.Fatal(err)
	}
	works(t, "train", "--threads", "1", "--data", data, "--preset", "small", "--steps", "1", "--sample-tokens", "0", "--out", out)
	works(t, "generate", "--threads", "1", "--model", out, "--prompt", "What", "--tokens", "50")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	var kib int
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(value, &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	if t.Logf("%d KiB", kib); kib == 0 || kib > 64<<10 {
		t.Errorf("%d KiB were resident, at most 64 MiB are wanted", kib)
	}
}
