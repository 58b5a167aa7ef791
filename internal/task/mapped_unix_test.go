//go:build unix

package task

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A pipe is read once, and may take all of the memory.
func TestPipeIsInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	pretendMemory(t, 500)
	for size, want := range map[int]string{400: "", 800: "needs 501 bytes"} {
		done := make(chan error)
		go func() {
			done <- os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600)
		}()
		c, err := ReadCorpus(path, false, false)
		if failed := <-done; failed != nil {
			t.Log(failed) // the reader has stopped
		}
		if want == "" && (err != nil || len(c.Text) != size) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
