package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/lock"
)

// own makes the folder dir, if it is not there, and this process its owner.
func own(dir string) (*lock.Lock, error) {
	if err := atomicfile.MakeFolder(dir); err != nil {
		return nil, input(err)
	}
	return lock.Folder(dir)
}

// checkOutput reports before the work what would otherwise fail after it: that a
// file of this name cannot be made, or would take the place of one of the inputs.
// An empty path is none.
func checkOutput(path string, inputs ...string) error {
	if path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s: not a folder", dir)
	}
	there, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if there.IsDir() {
		return fmt.Errorf("%s: is a folder", path)
	}
	for _, in := range inputs {
		if info, err := os.Stat(in); err == nil && os.SameFile(there, info) {
			return fmt.Errorf("%s: is what is read, and would be lost", path)
		}
	}
	return nil
}
