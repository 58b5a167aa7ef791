// Package atomicfile writes files that are either whole or not there: a crash,
// a full disk or an error half way leaves the file of before as it was.
package atomicfile

import (
	"bufio"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
)

// Write gives path the bytes that write produces. They go to another name in
// the same folder first, which takes the place of path once they are on the
// disk; if write fails, its error is returned and path keeps what it had. A
// symbolic link stays and the file that it points to is replaced; an existing
// file keeps its permissions. What cannot be replaced, such as a pipe or a
// device, is written directly.
func Write(path string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	old, err := os.Stat(path)
	if err == nil && !old.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return fill(f, write, false)
	}
	dir := filepath.Dir(path)
	temp := filepath.Join(dir, ".farfield-"+rand.Text()+".tmp")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	// After the rename there is nothing left to remove.
	defer os.Remove(temp)
	if old != nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			f.Close()
			return err
		}
	}
	if err := fill(f, write, true); err != nil {
		return err
	}
	return rename(temp, path)
}

// Replace gives the file temp, which is whole and on the disk, the name path in the
// same folder. A symbolic link stays and the file that it points to is replaced.
func Replace(temp, path string) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return rename(temp, path)
}

// rename makes temp the file path.
func rename(temp, path string) error {
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	syncDir(filepath.Dir(path))
	return nil
}

// fill writes f through a buffer and closes it, on the disk if sync is set.
func fill(f *os.File, write func(io.Writer) error, sync bool) error {
	// For a write that panics; a second Close does nothing.
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return f.Close()
}

// syncDir makes a rename in dir last. Some systems cannot sync a folder; the
// file is whole all the same, so errors are of no interest.
func syncDir(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	_ = d.Sync()
}
