// Package lock gives a path one owner at a time, among all processes and within this one. When a
// process dies, the system releases its locks.
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

	"github.com/farfield-ml/farfield/internal/fault"
)

// FolderLockName is the name of a folder's lock file.
const FolderLockName = ".farfield.lock"

// pollInterval is the time between two attempts of WaitFolder.
const pollInterval = 50 * time.Millisecond

// HeldError is returned if another owner holds a lock.
type HeldError struct {
	Path string // folder or file that the lock protects
	PID  int    // process of the owner; 0: unknown
}

// Error returns a message with the path and the owner.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%q is in use by another process", e.Path)
	}
	if e.PID == os.Getpid() {
		return fmt.Sprintf("%q is in use by this process (%d)", e.Path, e.PID)
	}
	return fmt.Sprintf("%q is in use by process %d", e.Path, e.PID)
}

// Is reports whether target is fault.ErrInUse.
func (e *HeldError) Is(target error) bool { return target == fault.ErrInUse }

// WriteError is returned if the system does not let this process write a file or folder.
type WriteError struct {
	Path string
	Err  error
}

// Error returns a message with the path and the system's error.
func (e *WriteError) Error() string { return fmt.Sprintf("%s: cannot be written: %v", e.Path, e.Err) }

// Unwrap returns the system's error.
func (e *WriteError) Unwrap() error { return e.Err }

// WrapWriteError returns the error of a failed write as a *WriteError of path. It returns nil for
// nil, and leaves a *WriteError in err unchanged.
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

// Lock is a held lock.
type Lock struct {
	f *os.File // nil: the system or the file system has no locks
}

// LockFolder locks an existing folder without waiting. It returns a *HeldError if the folder has an
// owner, or a *WriteError if the system refuses.
func LockFolder(dir string) (*Lock, error) {
	return acquireLock(filepath.Join(dir, FolderLockName), dir)
}

// Suffix is appended to the name of a file to give the name of its lock file.
const Suffix = ".lock"

// LockFile locks path without waiting, by a lock file named path with Suffix. path need not exist,
// but its folder must. LockFile returns an error where LockFolder does.
func LockFile(path string) (*Lock, error) {
	return acquireLock(path+Suffix, path)
}

// Hold locks the open file f until it is closed, under whatever name it was opened. It returns a
// *HeldError if f has an owner, or an error of the system. If the system or the file system has no
// locks, it returns nil.
func Hold(f *os.File) error {
	ok, err := tryLock(f)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err == nil && !ok:
		return &HeldError{Path: f.Name()}
	}
	return WrapWriteError(f.Name(), err)
}

// WaitFolder locks an existing folder, and waits for its owner if it has one. It calls waiting,
// unless nil, once before it begins to wait. It returns the cause of ctx if ctx ends first, and an
// error if the system refuses.
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

// Release releases the lock and removes its file. A second call does nothing.
func (l *Lock) Release() {
	if l == nil || l.f == nil {
		return
	}
	releaseFile(l.f)
	l.f = nil
}

// acquireLock locks the file name to protect path. Release removes the file, so a lock is valid only
// while name still is the locked file.
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
		// The PID only serves error messages, so ignore errors such as a full disk.
		if f.Truncate(0) == nil {
			_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		return &Lock{f: f}, nil
	}
}

// CreateLocked creates the new file name and locks it until it is closed, so that RemoveOrphan does
// not remove it. The open file can be renamed. CreateLocked returns fs.ErrExist if the file exists,
// or if RemoveOrphan removed it just then; another name then succeeds. It returns other errors of
// the system.
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

// RemoveOrphan removes the file name unless any process holds its lock. It reports whether it removed
// the file.
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

// readOwner returns the PID in the lock file, or 0 if there is none.
func readOwner(name string) int {
	f, err := openOrphan(name) // which creates no file
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
