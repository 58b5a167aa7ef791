// Package atomicfile writes files atomically: after a crash, a full disk or an error the old file
// is unchanged.
package atomicfile

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/lock"
)

// The name of a temporary file is prefix, rand.Text, suffix.
const (
	prefix   = ".farfield-"
	suffix   = ".tmp"
	letters  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // of rand.Text
	textSize = 26
)

// maxLinks is the number of symbolic links that FollowLinks follows.
const maxLinks = 255

// syncFile syncs a file or a folder. Tests replace it.
var syncFile = (*os.File).Sync

// Write replaces the content of path by the bytes that write produces. It writes a temporary file
// in the same folder, syncs it and renames it to path. If path is a symbolic link, the link stays
// and its target is replaced. An existing file keeps its permissions. Pipes and devices are written
// directly. First, Write removes temporary files that killed processes have left, which it
// recognises because a writer holds a lock on its file until it ends. Write returns the error of
// write, or a *lock.WriteError if the system refuses.
func Write(path string, write func(io.Writer) error) error {
	named := path
	path = FollowLinks(path)
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
	RemoveOrphans(dir)
	f, err := createTemp(dir)
	if err != nil {
		return lock.WrapWriteError(named, err)
	}
	// Hold the lock until the rename. After it the Remove finds no file.
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

// WriteBytes replaces the content of path by data, as Write does. It returns an error where Write
// does.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// MarshalJSON is json.Marshal, but does not escape <, > and &: a token <unk> stays readable.
func MarshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// WriteJSON replaces the content of path by v as indented JSON, without escapes of <, > and &. It
// returns an error where Write does, and if v cannot be encoded as JSON.
func WriteJSON(path string, v any) error {
	return Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(v)
	})
}

// FollowLinks returns the file to which path leads through symbolic links. The file need not exist.
// If path is no link, or its links form a circle, FollowLinks returns path.
func FollowLinks(path string) string {
	at := path
	for range maxLinks {
		if target, err := filepath.EvalSymlinks(at); err == nil {
			return target
		}
		folder, name := filepath.Split(at)
		target, err := os.Readlink(at)
		if err != nil {
			if at == path {
				return path
			}
			if folder, err := filepath.EvalSymlinks(folder); err == nil {
				return filepath.Join(folder, name)
			}
			return at
		}
		if at = target; !filepath.IsAbs(target) {
			at = folder + target // Join would remove .. after a link
		}
	}
	return path
}

// createTemp creates and locks a temporary file in dir.
func createTemp(dir string) (*os.File, error) {
	for {
		f, err := lock.CreateLocked(filepath.Join(dir, prefix+rand.Text()+suffix))
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// RemoveOrphans removes temporary files in dir whose writer has died. It ignores errors.
func RemoveOrphans(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if IsTemp(name) {
				lock.RemoveOrphan(filepath.Join(dir, name))
			}
		}
		if err != nil {
			return
		}
	}
}

// IsTemp reports whether name has the form of the temporary files of this package.
func IsTemp(name string) bool {
	middle, begins := strings.CutPrefix(name, prefix)
	middle, ends := strings.CutSuffix(middle, suffix)
	return begins && ends && len(middle) == textSize && strings.Trim(middle, letters) == ""
}

// Replace renames the complete and synced file temp to path in the same folder. If path is a
// symbolic link, the link stays and its target is replaced. Replace returns a *lock.WriteError if
// the system refuses.
func Replace(temp, path string) error {
	named := path
	path = FollowLinks(path)
	return lock.WrapWriteError(named, renameSynced(temp, path))
}

// renameSynced renames temp to path and syncs the folder.
func renameSynced(temp, path string) error {
	if err := Rename(temp, path); err != nil {
		return err
	}
	SyncFolder(filepath.Dir(path))
	return nil
}

// renameTime bounds the time for which Rename and RemoveAll wait for other processes.
const renameTime = 2 * time.Second

// Rename is os.Rename. On Windows it waits while another process has one of the files open, as
// readers and virus scanners do for a moment. It returns the error of os.Rename if it still fails
// after renameTime.
func Rename(from, to string) error {
	return repeatHeld(renameTime, isHeld, func() error { return os.Rename(from, to) })
}

// RemoveAll is os.RemoveAll. On Windows it waits for other processes as Rename does, and leaves the files that they
// still have open, without an error.
func RemoveAll(path string) error {
	err := repeatHeld(renameTime, isHeld, func() error { return os.RemoveAll(path) })
	if isHeld(err) {
		return nil
	}
	return err
}

// repeatHeld calls f for at most limit while isHeld holds for its error. It returns the last error of f.
func repeatHeld(limit time.Duration, isHeld func(error) bool, f func() error) error {
	for begin, wait := time.Now(), time.Millisecond; ; wait = min(2*wait, limit/10) {
		err := f()
		if err == nil || !isHeld(err) || time.Since(begin) >= limit {
			return err
		}
		time.Sleep(wait)
	}
}

// fillFile writes f through a buffer, and syncs it if sync is set. Errors name path.
func fillFile(f *os.File, path string, write func(io.Writer) error, sync bool) error {
	w := bufio.NewWriterSize(namedFile{f, path}, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil || !sync {
		return err
	}
	return lock.WrapWriteError(path, syncFile(f))
}

// namedFile is a writer to f whose errors are *lock.WriteErrors for path.
type namedFile struct {
	f    *os.File
	path string
}

func (f namedFile) Write(p []byte) (int, error) {
	n, err := f.f.Write(p)
	return n, lock.WrapWriteError(f.path, err)
}

// MakeFolder creates the folder dir and its missing parents, and syncs their names. It returns an
// error if a file is in the way, or a *lock.WriteError if the system refuses.
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

// SyncFolder syncs the names in dir to disk. It ignores errors, since some systems cannot sync a
// folder and the files are complete without it.
func SyncFolder(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	_ = syncFile(d)
}
