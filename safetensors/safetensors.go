package safetensors

import (
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

// Tensor is an array [Shape...] of float32 in C order: the last index runs fastest. An empty Shape
// is a scalar.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// Header describes a tensor of a file.
type Header struct {
	Name  string
	DType string // type in the file: "F32", "BF16", ...
	Shape []int
	Bytes int64 // of the data
}

// File is an open safetensors file. Its methods but Close may be called concurrently.
type File struct{ of *safetensors.File }

// Open opens a file and reads its header. It returns an error if the file cannot be read, if its
// header is malformed, or if tensors overlap, leave bytes unused, exceed the file or do not match
// their shapes.
func Open(path string) (*File, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// Close closes the file.
func (f *File) Close() error { return f.of.Close() }

// Metadata returns the text entries of the header, or nil if there are none.
func (f *File) Metadata() map[string]string { return f.of.Metadata() }

// Headers returns the descriptions of all tensors in the order of their data, including those of
// types that Read does not read.
func (f *File) Headers() []Header {
	var list []Header
	for _, t := range f.of.Tensors() {
		list = append(list, Header{Name: t.Name, DType: t.DType, Shape: t.Shape, Bytes: t.Bytes})
	}
	return list
}

// Read reads one tensor of type F32, F16, BF16 or F64. F16 and BF16 are widened exactly, F64 is
// rounded. Read returns an error if there is no such tensor, if it has another type, if a finite F64
// exceeds the range of float32, or if the file cannot be read.
func (f *File) Read(name string) (Tensor, error) {
	a, err := f.of.ReadArray(name)
	if err != nil {
		return Tensor{}, err
	}
	data, err := a.Float32()
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	return Tensor{Name: name, Shape: a.Shape, Data: data}, nil
}

// Write replaces the file path by one with the tensors and the metadata, which may be nil. It writes
// a temporary file in the same folder, syncs it and renames it, so path is the old file or the new one
// at any time. The bytes depend neither on the order of tensors nor on the machine.
//
// Write returns an error, and leaves path as it was, if a name appears twice, is "__metadata__" or is
// not UTF-8, if a shape does not have the elements of its data, if the metadata is not UTF-8, or if the
// system refuses.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	list := make([]*array.Array, len(tensors))
	for i, t := range tensors {
		a, err := array.New(t.Name, t.Data, t.Shape...)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		list[i] = a
	}
	return atomicfile.Write(path, func(w io.Writer) error { return safetensors.Write(w, list, metadata) })
}
