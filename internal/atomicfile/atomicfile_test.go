package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// holds checks the content of path and that its folder has n entries.
func holds(t *testing.T, path, want string, n int) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%d bytes %.20q, want %d bytes %.20q", len(got), got, len(want), want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != n {
		t.Errorf("folder has %d entries, want %d: %v", len(entries), n, entries)
	}
}

func TestWriteCreatesAndReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	long := strings.Repeat("attention ", 20011)
	for _, s := range []string{"first", long, "", "last"} {
		if err := Write(path, put(s)); err != nil {
			t.Fatal(err)
		}
		holds(t, path, s, 1)
	}
}

func TestFailureKeepsOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := Write(path, put("old")); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no more numbers")
	err := Write(path, func(w io.Writer) error {
		// More than the buffer, so that bytes do reach the temporary file.
		if err := put(strings.Repeat("x", 1<<17))(w); err != nil {
			t.Fatal(err)
		}
		return failure
	})
	if err != failure {
		t.Errorf("error is %v, want %v", err, failure)
	}
	holds(t, path, "old", 1)
}

func TestPanicKeepsOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := Write(path, put("old")); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = Write(path, func(io.Writer) error { panic("half way") })
	}()
	holds(t, path, "old", 1)
}

func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "a"), func(io.Writer) error { return io.ErrShortWrite }); err != io.ErrShortWrite {
		t.Errorf("error is %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestPermissionsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, put("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o640 {
		t.Errorf("mode is %v, want 0640", info.Mode().Perm())
	}
}

func TestSymbolicLinkStays(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "step-7"), filepath.Join(dir, "latest")
	if err := os.WriteFile(file, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("step-7", link); err != nil {
		t.Skip(err)
	}
	if err := Write(link, put("new")); err != nil {
		t.Fatal(err)
	}
	holds(t, file, "new", 2)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
}

func TestDeviceIsNotReplaced(t *testing.T) {
	if _, err := os.Stat(os.DevNull); err != nil {
		t.Skip(err)
	}
	if err := Write(os.DevNull, put("lost")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("device became %v, %v", info, err)
	}
}

func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "weights")} {
		called := false
		err := Write(path, func(io.Writer) error { called = true; return nil })
		if err == nil || called {
			t.Errorf("Write(%q): error %v, called %v", path, err, called)
		}
	}
}
