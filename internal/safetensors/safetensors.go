package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
)

// maxHeader bounds the bytes of the header, as in the reference implementation.
const maxHeader = 100_000_000

// Tensor describes a tensor of a file.
type Tensor struct {
	Name  string
	DType string // name in the file: "F32", "BF16", ...
	Shape []int
	Bytes int64 // size of the data in bytes

	start int64 // offset of the data after the header
}

// readableTypes maps names to readable types. F16 and BF16 are widened. F16 is not written.
var readableTypes = map[string]array.DType{
	"F16":  array.F2,
	"BF16": array.BF16,
	"F32":  array.F4,
	"F64":  array.F8,
	"I32":  array.I4,
	"I64":  array.I8,
	"I8":   array.I1,
	"U8":   array.U1,
	"BOOL": array.Bool,
}

// otherSizes has the element sizes of unreadable types with whole bytes.
var otherSizes = map[string]int{
	"F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
	"I16": 2, "U16": 2,
	"U32": 4,
	"U64": 8, "C64": 8,
}

// File is an open safetensors file. It is an array.Source. ReadArray may be called concurrently.
type File struct {
	tensors  []Tensor
	index    map[string]int
	metadata map[string]string
	data     *io.SectionReader
	file     io.Closer
	memory   *infile.Mapped // memory map of the file; nil: it is not mapped
}

// Open opens a file and reads its header. It returns an error if the file cannot be read, or where
// New does.
func Open(path string) (*File, error) {
	r, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := r.Stat()
	if err != nil {
		r.Close()
		return nil, err
	}
	f, err := New(r, info.Size())
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("%s: %w", path, fault.Mark(fault.ErrDamaged, err))
	}
	f.file, f.memory = r, infile.Map(r, info.Size())
	return f, nil
}

// New reads the header of a safetensors file of size bytes from r, which the caller closes. It
// returns an error if the header is malformed, or if tensors overlap, leave bytes unused, exceed
// the file or do not match their shapes.
func New(r io.ReaderAt, size int64) (*File, error) {
	f, err := readFile(r, size)
	return f, infile.ShortenError(err)
}

// readFile is New with errors of any length.
func readFile(r io.ReaderAt, size int64) (*File, error) {
	header, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	f := &File{index: make(map[string]int)}
	if f.tensors, f.metadata, err = parseHeader(header); err != nil {
		return nil, err
	}
	start := int64(8 + len(header))
	f.data = io.NewSectionReader(r, start, size-start)

	// At equal offsets empty tensors come first.
	slices.SortFunc(f.tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Name, b.Name))
	})
	var end int64
	for i, t := range f.tensors {
		if t.start != end {
			return nil, fmt.Errorf("%s: data begins at %d, the tensor before ends at %d", t.Name, t.start, end)
		}
		end += t.Bytes
		if end > f.data.Size() {
			return nil, fmt.Errorf("%s: data ends at %d, the file at %d", t.Name, end, f.data.Size())
		}
		if err := t.checkSize(); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		f.index[t.Name] = i
	}
	if end != f.data.Size() {
		return nil, fmt.Errorf("tensors end at %d, the file at %d", end, f.data.Size())
	}
	return f, nil
}

// checkSize returns an error if the shape does not match the bytes, for types of known size.
func (t Tensor) checkSize() error {
	size := otherSizes[t.DType]
	if d, ok := readableTypes[t.DType]; ok {
		size = d.Size()
	}
	n, err := array.CountElements(t.Shape)
	if err != nil {
		return err
	}
	if size > 0 && int64(n)*int64(size) != t.Bytes {
		return fmt.Errorf("shape %v of %s has %d bytes, the data %d", t.Shape, t.DType, n*size, t.Bytes)
	}
	return nil
}

// Tensors returns the descriptions of all tensors in the order of their data, including those of
// types that ReadArray does not read.
func (f *File) Tensors() []Tensor { return slices.Clone(f.tensors) }

// Names returns the names of the tensors in the order of their data.
func (f *File) Names() []string {
	names := make([]string, len(f.tensors))
	for i, t := range f.tensors {
		names[i] = t.Name
	}
	return names
}

// Metadata returns the text entries of the header, or nil if there are none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// ReadHeader returns the type of one tensor, which may be F16 or BF16, and its shape. It returns an
// error if there is no such tensor or its type is not supported.
func (f *File) ReadHeader(name string) (array.DType, []int, error) {
	t, d, err := f.findTensor(name)
	return d, slices.Clone(t.Shape), err
}

// ReadArray reads one tensor. It widens F16 and BF16 exactly to float32. It returns an error if
// there is no such tensor, or if its type is not F16, BF16, F32, F64, I8, I32, I64, U8 or BOOL.
func (f *File) ReadArray(name string) (*array.Array, error) {
	t, d, err := f.findTensor(name)
	if err != nil {
		return nil, err
	}
	a, err := array.Decode(io.NewSectionReader(f.data, t.start, t.Bytes), d, t.Shape)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a.Name = name
	return a, nil
}

// OpenStored returns one tensor without reading it. Its parts can be read until Close. OpenStored
// returns an error if there is no such tensor or its type is not supported.
func (f *File) OpenStored(name string) (*array.StoredArray, error) {
	t, d, err := f.findTensor(name)
	if err != nil {
		return nil, err
	}
	r, start, _ := f.data.Outer()
	a, err := array.NewStoredArray(name, d, t.Shape, r, start+t.start, t.Bytes)
	if err == nil {
		a.SetMapped(f.memory)
	}
	return a, err
}

// findTensor returns the description and type of a readable tensor.
func (f *File) findTensor(name string) (Tensor, array.DType, error) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, 0, fmt.Errorf("%s: no such tensor in the file", name)
	}
	t := f.tensors[i]
	d, ok := readableTypes[t.DType]
	if !ok {
		return t, 0, fmt.Errorf("%s: dtype is %s; F16, BF16, F32, F64, I8, I32, I64, U8 or BOOL is needed", name, t.DType)
	}
	return t, d, nil
}

// Close closes the file that Open opened, and returns the error of closing it.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	var err error
	if f.memory != nil {
		err = f.memory.Close()
		f.memory = nil
	}
	return errors.Join(err, f.file.Close())
}
