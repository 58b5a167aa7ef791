package array

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// Folder is a folder of .npy files, each an array of that name. It is a Source.
type Folder struct {
	path  string
	names []string
	files []*os.File
}

// OpenFolder lists the arrays of a folder. Files are opened on request. It returns an error if the
// folder cannot be read.
func OpenFolder(path string) (*Folder, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	f := &Folder{path: path}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".npy"); ok && !e.IsDir() {
			f.names = append(f.names, name)
		}
	}
	slices.Sort(f.names) // without the suffix: a.npy comes after a-b.npy
	return f, nil
}

// Names lists the arrays, sorted by name.
func (f *Folder) Names() []string { return slices.Clone(f.names) }

// openFile opens the file of one array. It returns an error if the folder has no such array.
func (f *Folder) openFile(name string) (*os.File, error) {
	if _, has := slices.BinarySearch(f.names, name); !has {
		return nil, fmt.Errorf("%s: no such array in the folder", name)
	}
	return infile.Open(filepath.Join(f.path, name+".npy"))
}

// ReadHeader returns type and shape of one array without reading its data. It returns an error if
// the array does not exist or its header is malformed.
func (f *Folder) ReadHeader(name string) (t DType, shape []int, err error) {
	file, err := f.openFile(name)
	if err != nil {
		return t, nil, err
	}
	defer file.Close()
	if t, shape, _, err = readNPYHeader(file); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return t, shape, err
}

// ReadArray reads one array. It returns an error if the array does not exist or is malformed.
func (f *Folder) ReadArray(name string) (*Array, error) {
	file, err := f.openFile(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	a, err := ReadNPY(file)
	if err == nil {
		err = checkEnd(file, a.Shape)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a.Name = name
	return a, nil
}

// OpenStored returns one array that stays in its file, which is open until Close. It returns an
// error if the array does not exist or is malformed.
func (f *Folder) OpenStored(name string) (*StoredArray, error) {
	file, err := f.openFile(name)
	if err != nil {
		return nil, err
	}
	f.files = append(f.files, file)
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return OpenStoredNPY(name, file, info.Size())
}

// Close closes the files that OpenStored opened. It returns the first error.
func (f *Folder) Close() error {
	var first error
	for _, file := range f.files {
		if err := file.Close(); err != nil && first == nil {
			first = err
		}
	}
	f.files = nil
	return first
}
