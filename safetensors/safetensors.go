package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/farfield-ml/farfield/array"
	"github.com/farfield-ml/farfield/internal/infile"
)

// maxHeader is the bound of the reference implementation, in bytes.
const maxHeader = 100_000_000

// Tensor describes a tensor of a file.
type Tensor struct {
	Name  string
	DType string // as in the file: "F32", "BF16", ...
	Shape []int
	Bytes int64 // of data

	start int64 // from the end of the header
}

// readableTypes are the types that can be read; those that array widens are not
// written.
var readableTypes = map[string]array.DType{
	"F16":  array.F2,
	"BF16": array.BF16,
	"F32":  array.F4,
	"F64":  array.F8,
	"I32":  array.I4,
	"I64":  array.I8,
	"U8":   array.U1,
	"BOOL": array.Bool,
}

// otherSizes has the bytes of an element of the other types whose elements are whole
// bytes.
var otherSizes = map[string]int{
	"I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
	"I16": 2, "U16": 2,
	"U32": 4,
	"U64": 8, "C64": 8,
}

// File is an open safetensors file. It is an array.Source. Calls of Array may
// run at the same time.
type File struct {
	tensors  []Tensor
	index    map[string]int
	metadata map[string]string
	data     *io.SectionReader
	file     io.Closer
}

// Open opens the file of that name and reads its header.
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
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.file = r
	return f, nil
}

// New reads the header of the safetensors file of size bytes in r, which the
// caller closes. Tensors that overlap, leave bytes unused, reach beyond the file
// or have another number of bytes than their shape are errors.
func New(r io.ReaderAt, size int64) (*File, error) {
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

	// Of tensors at one place the empty come first.
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

// checkSize compares the shape with the bytes, for types whose size is known.
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

// Tensors describes the tensors in the order of their data, also those of types
// that cannot be read.
func (f *File) Tensors() []Tensor { return slices.Clone(f.tensors) }

// Names lists the tensors in the order of their data.
func (f *File) Names() []string {
	names := make([]string, len(f.tensors))
	for i, t := range f.tensors {
		names[i] = t.Name
	}
	return names
}

// Metadata returns the text entries of the file, which may be none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// ReadHeader returns type and shape of one tensor. Types are those of Array, F16 and BF16
// as they are in the file.
func (f *File) ReadHeader(name string) (array.DType, []int, error) {
	t, d, err := f.findTensor(name)
	return d, slices.Clone(t.Shape), err
}

// ReadArray reads one tensor and leaves the others where they are. F16 and BF16 are
// widened, exactly, to arrays of float32. Types other than these, F32, F64, I32,
// I64, U8 and BOOL are refused.
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

// OpenStored returns one tensor that stays in the file, to be read in parts. Types are
// those of Array.
func (f *File) OpenStored(name string) (*array.StoredArray, error) {
	t, d, err := f.findTensor(name)
	if err != nil {
		return nil, err
	}
	r, start, _ := f.data.Outer()
	return array.NewStoredArray(name, d, t.Shape, r, start+t.start, t.Bytes)
}

// findTensor returns what the header says of a tensor that can be read.
func (f *File) findTensor(name string) (Tensor, array.DType, error) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, 0, fmt.Errorf("%s: no such tensor in the file", name)
	}
	t := f.tensors[i]
	d, ok := readableTypes[t.DType]
	if !ok {
		return t, 0, fmt.Errorf("%s: dtype is %s; F16, BF16, F32, F64, I32, I64, U8 or BOOL is needed", name, t.DType)
	}
	return t, d, nil
}

// Close closes the file that Open opened.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
