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

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	file, link, temp := filepath.Join(dir, "step-7"), filepath.Join(dir, "latest"), filepath.Join(dir, "part")
	for path, s := range map[string]string{file: "old", temp: "new"} {
		if err := os.WriteFile(path, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("step-7", link); err != nil {
		t.Skip(err)
	}
	if err := Replace(temp, link); err != nil {
		t.Fatal(err)
	}
	holds(t, file, "new", 2)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	// There is nothing to take its place: it keeps what it has.
	if err := Replace(temp, file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want %v", err, os.ErrNotExist)
	}
	holds(t, file, "new", 2)
}

// What fits the buffer fails when the buffer is emptied, the rest before.
func TestFullDevice(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	for _, n := range []int{1, 1 << 17} {
		if err := Write(full, put(strings.Repeat("x", n))); err == nil || !strings.Contains(err.Error(), full) {
			t.Errorf("%d bytes: error is %v, want one that names %s", n, err, full)
		}
	}
}

// What cannot be put on the disk is an error where it has to be there.
func TestSyncFails(t *testing.T) {
	for _, sync := range []bool{false, true} {
		f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		cause := f.Sync()
		if cause == nil {
			f.Close()
			t.Skip("this system syncs a device")
		}
		if err := fill(f, put("lost"), sync); sync && (err == nil || err.Error() != cause.Error()) || !sync && err != nil {
			t.Errorf("sync %v: error is %v, syncing alone gives %v", sync, err, cause)
		}
	}
}
