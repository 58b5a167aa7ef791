// Package lock gives a path one owner at a time, across processes and within one. The
// system releases the lock of a process that dies.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// FolderLockName is the lock file of a folder.
const FolderLockName = ".farfield.lock"

// pollInterval is the time between two attempts of Wait.
const pollInterval = 50 * time.Millisecond

// A HeldError reports that another owner holds a lock.
type HeldError struct {
	Path string // the folder or file that the lock protects
	PID  int    // the owner's process; 0 where it is unknown
}

// Error names the path and the owner.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%q is in use by another process", e.Path)
	}
	if e.PID == os.Getpid() {
		return fmt.Sprintf("%q is in use by this process (%d)", e.Path, e.PID)
	}
	return fmt.Sprintf("%q is in use by process %d", e.Path, e.PID)
}

// A WriteError reports a file or folder that the system does not let this process
// write.
type WriteError struct {
	Path string
	Err  error
}

// Error names the path and the system's reason.
func (e *WriteError) Error() string { return fmt.Sprintf("%s: cannot be written: %v", e.Path, e.Err) }

// Unwrap returns the system's error.
func (e *WriteError) Unwrap() error { return e.Err }

// WrapWriteError returns the error of a system call that writes path as a *WriteError; nil
// for nil.
func WrapWriteError(path string, err error) error {
	var known *WriteError
	if err == nil || errors.As(err, &known) {
		return err
	}
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	var both *os.LinkError
	if errors.As(err, &both) {
		err = both.Err
	}
	return &WriteError{path, err}
}

// A Lock is a held lock.
type Lock struct {
	f *os.File // nil where the system or the file system has no locks
}

// LockFolder locks an existing folder without waiting. Its error is a *HeldError when the
// folder has an owner, and otherwise a *WriteError.
func LockFolder(dir string) (*Lock, error) {
	return acquireLock(filepath.Join(dir, FolderLockName), dir)
}

// LockFile locks path without waiting; path need not exist, its folder must. The lock file
// is path with the suffix ".lock". Its errors are those of Folder.
func LockFile(path string) (*Lock, error) {
	return acquireLock(path+".lock", path)
}

// WaitFolder locks an existing folder once its owner has released it. waiting, unless
// nil, is called once before the first wait with the owner. It returns the cause of ctx
// when ctx ends first, and otherwise the system's error.
func WaitFolder(ctx context.Context, dir string, waiting func(*HeldError)) (*Lock, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		l, err := LockFolder(dir)
		var held *HeldError
		if !errors.As(err, &held) {
			return l, err
		}
		if waiting != nil {
			waiting(held)
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Release gives the lock back and removes its file. A second call does nothing.
func (l *Lock) Release() {
	if l == nil || l.f == nil {
		return
	}
	releaseFile(l.f)
	l.f = nil
}

// acquireLock locks the file name on behalf of path. An owner removes its file when it
// releases the lock, so a lock counts only while name still leads to the locked file.
func acquireLock(name, path string) (*Lock, error) {
	for {
		f, err := openLockFile(name)
		if errors.Is(err, errors.ErrUnsupported) {
			return &Lock{}, nil
		}
		if err != nil {
			return nil, WrapWriteError(path, err)
		}
		ok, err := tryLock(f)
		if errors.Is(err, errors.ErrUnsupported) {
			releaseFile(f)
			return &Lock{}, nil
		}
		if err != nil {
			f.Close()
			return nil, WrapWriteError(path, err)
		}
		if !ok {
			pid := readOwner(name)
			f.Close()
			return nil, &HeldError{Path: path, PID: pid}
		}
		if !leadsTo(name, f) {
			f.Close()
			continue
		}
		// The owner's number is a service to the reader of an error: a full disk is no
		// reason to refuse the lock.
		if f.Truncate(0) == nil {
			_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		return &Lock{f: f}, nil
	}
}

// CreateLocked creates the file name, which must not exist, and locks it until it is closed:
// RemoveOrphan leaves it alone while this process lives. The file can be renamed while
// it is open. The error is fs.ErrExist also when RemoveOrphan came between creation and
// lock; another name succeeds.
func CreateLocked(name string) (*os.File, error) {
	f, err := createFile(name)
	if err != nil {
		return nil, err
	}
	ok, err := tryLock(f)
	if err == nil && ok && leadsTo(name, f) || errors.Is(err, errors.ErrUnsupported) {
		return f, nil
	}
	f.Close()
	if err != nil {
		os.Remove(name)
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	return nil, &os.PathError{Op: "lock", Path: name, Err: fs.ErrExist}
}

// RemoveOrphan removes the file name unless another process, or this one, holds its
// lock. It reports whether the file is gone.
func RemoveOrphan(name string) bool {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := openOrphan(name)
	if err != nil {
		return false
	}
	defer f.Close()
	ok, err := tryLock(f)
	return err == nil && ok && leadsTo(name, f) && os.Remove(name) == nil
}

// leadsTo reports whether name is the open file f.
func leadsTo(name string, f *os.File) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(locked, named)
}

// readOwner returns the process that the lock file names; 0 where it names none.
func readOwner(name string) int {
	f, err := openLockFile(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
