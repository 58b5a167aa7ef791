package lock

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// TestMain runs the test binary as an owner that waits to be killed, if asked.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FARFIELD_TEST_LOCK"); dir != "" {
		if _, err := LockFolder(dir); err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSecondOwnerIsRefused(t *testing.T) {
	dir := t.TempDir()
	first, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockFolder(dir)
	var held *HeldError
	if !errors.As(err, &held) || held.Path != dir || held.PID != os.Getpid() {
		t.Fatalf("second owner: %v", err)
	}
	first.Release()
	first.Release()
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("a released lock leaves %v", list)
	}
	again, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
}

func TestDeathReleases(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "FARFIELD_TEST_LOCK="+dir)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the child says %q", line)
	}
	_, err = LockFolder(dir)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != child.Process.Pid {
		t.Errorf("while process %d owns the folder: %v", child.Process.Pid, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	l, err := LockFolder(dir)
	if err != nil {
		t.Fatalf("after the owner's death: %v", err)
	}
	l.Release()
}

func TestOneOwnerAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var owners, entries atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				l, err := LockFile(path)
				if err != nil {
					var held *HeldError
					if !errors.As(err, &held) {
						t.Error(err)
					}
					continue
				}
				if owners.Add(1) != 1 {
					t.Error("two owners")
				}
				entries.Add(1)
				owners.Add(-1)
				l.Release()
			}
		})
	}
	all.Wait()
	if entries.Load() == 0 {
		t.Error("no owner")
	}
}

func TestWaitEndsWithContextOrRelease(t *testing.T) {
	dir := t.TempDir()
	first, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = WaitFolder(ctx, dir, func(*HeldError) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that is cancelled: %v", err)
	}
	l, err := WaitFolder(t.Context(), dir, func(*HeldError) { first.Release() })
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}

func TestOwnerOfAReleasedLockIsUnknown(t *testing.T) {
	name := filepath.Join(t.TempDir(), FolderLockName)
	if pid := readOwner(name); pid != 0 {
		t.Errorf("process %d", pid)
	}
	if _, err := os.Lstat(name); err == nil {
		t.Error("reading the owner creates the file of the lock")
	}
}
