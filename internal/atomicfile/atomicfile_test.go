package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/suite"
)

// TestMain runs the test binary as a writer that waits to be killed, if asked.
func TestMain(m *testing.M) {
	if path := os.Getenv("FARFIELD_TEST_WRITE"); path != "" {
		for i := 0; ; i++ {
			if err := Write(path, slowly(i)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// slowly writes 64 lines i with pauses, so that the file is incomplete most of the time.
func slowly(i int) func(io.Writer) error {
	return func(w io.Writer) error {
		line := strings.Repeat(string(rune('a'+i%26)), 4095) + "\n"
		for range 64 {
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
			time.Sleep(50 * time.Microsecond)
		}
		return nil
	}
}

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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "a"), func(io.Writer) error { return io.ErrShortWrite }); err != io.ErrShortWrite {
		t.Errorf("error is %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestPermissionsAreKept(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

func TestLinkToAbsentFileStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "run", "ckpt"), 0o777); err != nil {
		t.Fatal(err)
	}
	// The link named as "loop" has no end.
	for link, target := range map[string]string{"folder": "run/ckpt", "first": "folder/../second", "run/second": "../step-7", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
	}
	first, file := filepath.Join(dir, "first"), filepath.Join(dir, "step-7")
	if err := Write(first, put("new")); err != nil {
		t.Fatal(err)
	}
	holds(t, file, "new", 5)
	if err := os.Rename(file, file+".part"); err != nil {
		t.Fatal(err)
	}
	if err := Replace(file+".part", first); err != nil {
		t.Fatal(err)
	}
	holds(t, file, "new", 5)
	for _, path := range []string{filepath.Join(dir, "loop"), filepath.Join(dir, "none"), "none"} {
		if got := FollowLinks(path); got != path {
			t.Errorf("%s leads to %s", path, got)
		}
	}
}

func TestDeviceIsNotReplaced(t *testing.T) {
	t.Parallel()
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

func TestUnwritableFolderIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "weights")} {
		called := false
		err := Write(path, func(io.Writer) error { called = true; return nil })
		if err == nil || called {
			t.Errorf("Write(%q): error %v, called %v", path, err, called)
		}
	}
}

func TestReplaceKeepsSymbolicLinks(t *testing.T) {
	t.Parallel()
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
	// Without a replacement the file keeps its contents.
	if err := Replace(temp, file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v, want %v", err, os.ErrNotExist)
	}
	holds(t, file, "new", 2)
}

// Content that fits the buffer fails at the flush, longer content before.
func TestFullDevice(t *testing.T) {
	t.Parallel()
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

// The content is synced before the rename, and the folder after it. A failing sync of the
// content is an error and keeps the old file.
func TestWriteSyncs(t *testing.T) {
	defer func() { syncFile = (*os.File).Sync }()
	dir := t.TempDir()
	path := filepath.Join(dir, "weights")
	if err := Write(path, put("old")); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the disk is gone")
	for _, failure := range []error{cause, nil} {
		var synced []string // the content of path at each sync, and what is synced
		syncFile = func(f *os.File) error {
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			now, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			what := "folder"
			if !info.IsDir() {
				what = fmt.Sprint(info.Size(), " bytes")
			}
			synced = append(synced, string(now)+": "+what)
			return failure
		}
		err, want := Write(path, put("new")), []string{"old: 3 bytes"}
		if failure == nil {
			want = append(want, "new: folder")
		}
		var refused *lock.WriteError
		if !errors.Is(err, failure) || err != nil && !errors.As(err, &refused) || !slices.Equal(synced, want) {
			t.Errorf("syncs are %q, want %q; error is %v, want %v", synced, want, err, failure)
		}
		if failure != nil {
			holds(t, path, "old", 1)
		}
	}
	// A device is not synced.
	syncFile = func(*os.File) error { return cause }
	if err := Write(os.DevNull, put("lost")); err != nil {
		t.Error(err)
	}
}

// startWriter starts a process that writes path repeatedly.
func startWriter(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "FARFIELD_TEST_WRITE="+path)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// temps returns the temporary files in dir.
func temps(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if IsTemp(e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list
}

func TestKilledWritersLeaveOneFileAtMost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "data")
	left, kills := 0, 12
	if suite.IsLong() {
		kills = 200
	}
	for range kills {
		c := startWriter(t, path)
		time.Sleep(5*time.Millisecond + rand.N(25*time.Millisecond))
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		n := len(temps(t, dir))
		if n > 1 {
			t.Fatalf("%d temporary files after a kill", n)
		}
		left += n
		if text, err := os.ReadFile(path); err == nil && (len(text) != 64<<12 || strings.Trim(string(text), string(text[0])+"\n") != "") {
			t.Fatalf("%d bytes, not of one write", len(text))
		}
	}
	if err := Write(path, put("last")); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "last", 1)
	t.Logf("%d kills left %d temporary files, of which none stays", kills, left)
}

func TestWritersLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "js" {
		t.Skip("no processes")
	}
	dir := t.TempDir()
	var live [3]*exec.Cmd
	for i := range live {
		live[i] = startWriter(t, filepath.Join(dir, fmt.Sprint(i)))
		defer live[i].Process.Kill()
	}
	foreign := filepath.Join(dir, prefix+"notes"+suffix)
	if err := os.WriteFile(foreign, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if err := Write(filepath.Join(dir, "here"), put(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	// A nested write sweeps the folder in which this process is writing.
	err := Write(filepath.Join(dir, "outer"), func(w io.Writer) error {
		if err := Write(filepath.Join(dir, "inner"), put("inner")); err != nil {
			return err
		}
		return put("outer")(w)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range live {
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// A writer whose file is taken away ends by itself, with status 1.
		if err := c.Wait(); c.ProcessState.ExitCode() == 1 {
			t.Errorf("a writer: %v", err)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file with a name of another kind: %v", err)
	}
}

func TestRefusalNamesTheFile(t *testing.T) {
	t.Parallel()
	const dir = "/sys" // whose folders take no files, also of root
	if runtime.GOOS != "linux" {
		t.Skip("needs a folder that nothing can be written into")
	}
	for _, err := range []error{Write(dir+"/x", put("x")), MakeFolder(dir + "/x/y")} {
		var refused *lock.WriteError
		if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), dir+"/x: cannot be written: ") {
			t.Errorf("error is %v", err)
		}
	}
}

func TestMakeFolderMakesMissingParents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 {
		if err := MakeFolder(filepath.Join(dir, "a", "b", "c")); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := MakeFolder(file); err == nil || err.Error() != file+": not a folder" {
		t.Errorf("error is %v", err)
	}
}

func TestRenameWaitsForHeldFiles(t *testing.T) {
	t.Parallel()
	held, other := errors.New("held"), errors.New("other")
	isHeld := func(err error) bool { return err == held }
	for _, c := range []struct {
		errs []error
		want error
	}{{[]error{held, held, nil}, nil}, {[]error{held, other}, other}} {
		calls := 0
		err := repeatHeld(time.Hour, isHeld, func() error { calls++; return c.errs[calls-1] })
		if err != c.want || calls != len(c.errs) {
			t.Errorf("%v after %d calls, want %v after %d", err, calls, c.want, len(c.errs))
		}
	}
	if err := repeatHeld(20*time.Millisecond, isHeld, func() error { return held }); err != held {
		t.Errorf("%v after the limit", err)
	}
}
