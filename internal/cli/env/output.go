package env

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/lock"
)

// OwnFile opens an output file and locks it for this process. The file may exist. It returns an
// error if path is also an input, or is no regular file, or if it is locked or cannot be opened.
func OwnFile(path string, inputs ...string) (*os.File, *lock.Lock, error) {
	if err := CheckOutput(path, inputs...); err != nil {
		return nil, nil, InputErrorf("--out: %w", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, InputErrorf("--out: %s is no regular file", path)
	}
	l, err := lock.LockFile(path)
	if err != nil {
		return nil, nil, InputErrorf("--out: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		l.Release()
		return nil, nil, InputErrorf("--out: %w", err)
	}
	if err := lock.Hold(f); err != nil { // a link to the file has another lock file
		f.Close()
		l.Release()
		return nil, nil, InputErrorf("--out: %w", err)
	}
	return f, l, nil
}

// OwnFolder creates the folder dir if it does not exist, and locks it for this process.
// It returns an error if the folder cannot be created or is locked.
func OwnFolder(dir string) (*lock.Lock, error) {
	if err := atomicfile.MakeFolder(dir); err != nil {
		return nil, MarkInput(err)
	}
	return lock.LockFolder(dir)
}

// CheckOutput returns an error if the file path cannot be created or is one of the inputs, so that
// this is known before any work. The input - is standard input. An empty path means no file. The
// path - is refused, since output to standard output needs no check.
func CheckOutput(path string, inputs ...string) error {
	switch path {
	case "":
		return nil
	case "-":
		return errors.New("-: this goes to a file, not to standard output; ./- is a file of that name")
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s: not a folder", dir)
	}
	there, err := os.Stat(path)
	if err != nil {
		for _, in := range inputs { // may be awaited
			if isSameName(path, in) {
				return fmt.Errorf("%s: is what is read, and would be lost", path)
			}
		}
		return nil
	}
	if there.IsDir() {
		return fmt.Errorf("%s: is a folder", path)
	}
	for _, in := range inputs {
		info, err := os.Stat(in)
		if in == "-" {
			info, err = os.Stdin.Stat()
		}
		if err == nil && os.SameFile(there, info) && (in != "-" || info.Mode().IsRegular()) {
			return fmt.Errorf("%s: is what is read, and would be lost", path)
		}
	}
	return nil
}

// isSameName reports whether two paths have the same name in the same folder. There may be no file of
// it.
func isSameName(a, b string) bool {
	if b == "" || b == "-" || filepath.Base(a) != filepath.Base(b) {
		return false
	}
	x, err1 := os.Stat(filepath.Dir(a))
	y, err2 := os.Stat(filepath.Dir(b))
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// ListFiles returns the files below dir whose names keep accepts. It ignores folders that cannot be
// read.
func ListFiles(dir string, keep func(name string) bool) (list []string) {
	_ = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && keep(d.Name()) {
			list = append(list, filepath.Join(dir, path))
		}
		return nil // the verb says what it cannot read
	})
	return list
}
