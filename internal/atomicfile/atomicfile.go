// Package atomicfile writes files that are either whole or not there: a crash,
// a full disk or an error half way leaves the file of before as it was.
package atomicfile

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/lock"
)

// A temporary file's name is prefix, rand.Text, suffix.
const (
	prefix   = ".farfield-"
	suffix   = ".tmp"
	letters  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
	textSize = 26
)

// Write gives path the bytes that write produces. They go to another name in
// the same folder first, which takes the place of path once they are on the
// disk; if write fails, its error is returned and path keeps what it had. A
// symbolic link stays and the file that it points to is replaced; an existing
// file keeps its permissions. What cannot be replaced, such as a pipe or a
// device, is written directly.
//
// Temporary files of processes that were killed are removed from the folder first. A
// process holds the lock of the temporary file that it writes, and death releases it.
// What the system refuses is a *lock.WriteError.
func Write(path string, write func(io.Writer) error) error {
	named := path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	old, err := os.Stat(path)
	if err == nil && !old.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return lock.WrapWriteError(named, err)
		}
		defer f.Close()
		if err := fillFile(f, named, write, false); err != nil {
			return err
		}
		return lock.WrapWriteError(named, f.Close())
	}
	dir := filepath.Dir(path)
	removeOrphans(dir)
	f, err := createTemp(dir)
	if err != nil {
		return lock.WrapWriteError(named, err)
	}
	// The lock lasts until the file has its name. After the rename there is nothing
	// left to remove.
	defer f.Close()
	defer os.Remove(f.Name())
	if old != nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return lock.WrapWriteError(named, err)
		}
	}
	if err := fillFile(f, named, write, true); err != nil {
		return err
	}
	return lock.WrapWriteError(named, renameSynced(f.Name(), path))
}

// createTemp creates a temporary file in dir and locks it.
func createTemp(dir string) (*os.File, error) {
	for {
		f, err := lock.CreateLocked(filepath.Join(dir, prefix+rand.Text()+suffix))
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// removeOrphans removes the temporary files in dir that have lost their writer. What
// cannot be removed stays, without an error.
func removeOrphans(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if isTemp(name) {
				lock.RemoveOrphan(filepath.Join(dir, name))
			}
		}
		if err != nil {
			return
		}
	}
}

// isTemp reports whether name is a name that createTemp gives.
func isTemp(name string) bool {
	middle, begins := strings.CutPrefix(name, prefix)
	middle, ends := strings.CutSuffix(middle, suffix)
	return begins && ends && len(middle) == textSize && strings.Trim(middle, letters) == ""
}

// Replace gives the file temp, which is whole and on the disk, the name path in the
// same folder. A symbolic link stays and the file that it points to is replaced. What
// the system refuses is a *lock.WriteError.
func Replace(temp, path string) error {
	named := path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return lock.WrapWriteError(named, renameSynced(temp, path))
}

// renameSynced makes temp the file path.
func renameSynced(temp, path string) error {
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	SyncFolder(filepath.Dir(path))
	return nil
}

// fillFile writes f, which path names in errors, through a buffer, and puts it on the disk
// if sync is set.
func fillFile(f *os.File, path string, write func(io.Writer) error, sync bool) error {
	w := bufio.NewWriterSize(namedFile{f, path}, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil || !sync {
		return err
	}
	return lock.WrapWriteError(path, f.Sync())
}

// namedFile is a file whose errors are a *lock.WriteError.
type namedFile struct {
	f    *os.File
	path string
}

func (f namedFile) Write(p []byte) (int, error) {
	n, err := f.f.Write(p)
	return n, lock.WrapWriteError(f.path, err)
}

// MakeFolder makes the folder dir with the folders above it that are missing, and puts
// their names on the disk. A file in the place of a folder is an error; what the system
// refuses is a *lock.WriteError.
func MakeFolder(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s: not a folder", dir)
		}
		return nil
	}
	above := filepath.Dir(dir)
	if above != dir {
		if err := MakeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		if info, other := os.Stat(dir); other == nil && info.IsDir() {
			return nil // another process was faster
		}
		return lock.WrapWriteError(dir, err)
	}
	SyncFolder(above)
	return nil
}

// SyncFolder puts the names in dir on the disk. Some systems cannot sync a folder; its
// files are whole all the same, so there is no error.
func SyncFolder(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	_ = d.Sync()
}
