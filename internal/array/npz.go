package array

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/infile"
)

// DefaultLimit is the default of File.Limit. Deflate allows a thousand times the bytes of the file.
const DefaultLimit = 8 << 30

// File is an open .npz, a zip archive of stored or deflated .npy members. It is a Source. ReadArray
// is safe for concurrent use.
type File struct {
	// Limit bounds the bytes of data that ReadArray reads.
	Limit int64

	names   []string
	members map[string]*zip.File
	file    io.Closer
}

// OpenNPZ opens an .npz file. ReadArray reads its arrays. It returns an error if the file is no zip
// archive or two arrays have one name.
func OpenNPZ(path string) (*File, error) {
	r, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := r.Stat()
	if err != nil {
		r.Close()
		return nil, err
	}
	f, err := NewNPZ(r, info.Size())
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.file = r
	return f, nil
}

// NewNPZ returns the .npz of size bytes in r, which the caller closes. It returns an error if r is
// no zip archive or two arrays have one name.
func NewNPZ(r io.ReaderAt, size int64) (*File, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("not a readable .npz: %w", err)
	}
	f := &File{Limit: DefaultLimit, members: make(map[string]*zip.File)}
	for _, m := range z.File {
		if strings.HasSuffix(m.Name, "/") {
			continue
		}
		name := strings.TrimSuffix(m.Name, ".npy")
		if f.members[name] != nil {
			return nil, fmt.Errorf("%s: two arrays have this name", infile.Shorten(name))
		}
		f.members[name] = m
		f.names = append(f.names, name)
	}
	return f, nil
}

// Names lists the arrays in the order of the archive.
func (f *File) Names() []string { return append([]string{}, f.names...) }

// ReadArray reads one array and verifies its checksum. It returns an error if the array does not
// exist, is malformed, exceeds Limit or has another length than its shape.
func (f *File) ReadArray(name string) (*Array, error) {
	m := f.members[name]
	if m == nil {
		return nil, fmt.Errorf("%s: no such array in the file", name)
	}
	a, err := f.readMember(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a.Name = name
	return a, nil
}

// ReadHeader returns type and shape of one array without reading its data. It returns an error if
// the array does not exist or its header is malformed.
func (f *File) ReadHeader(name string) (t DType, shape []int, err error) {
	m := f.members[name]
	if m == nil {
		return t, nil, fmt.Errorf("%s: no such array in the file", name)
	}
	r, err := m.Open()
	if err != nil {
		return t, nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	if t, shape, _, err = readNPYHeader(r); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return t, shape, err
}

// checkEnd returns an error if r has bytes behind the data of a shape.
func checkEnd(r io.Reader, shape []int) error {
	switch k, err := io.ReadFull(r, make([]byte, 1)); {
	case k > 0:
		return fmt.Errorf("bytes follow the data of shape %s", formatShape(shape))
	case err != io.EOF:
		return err
	}
	return nil
}

// readMember reads the array of a member and verifies its checksum.
func (f *File) readMember(m *zip.File) (*Array, error) {
	r, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t, shape, order, err := readNPYHeader(r)
	if err != nil {
		return nil, err
	}
	n, err := CountElements(shape)
	if err != nil {
		return nil, err
	}
	if size := int64(n) * int64(t.Size()); size > f.Limit {
		return nil, fmt.Errorf("shape %s has %d bytes of data, the limit is %d", formatShape(shape), size, f.Limit)
	}
	data, err := order.rewrite(r, t, shape)
	if err != nil {
		return nil, err
	}
	a, err := Decode(data, t, shape)
	if err != nil {
		return nil, err
	}
	// Reading the end makes zip compare the checksum.
	if err := checkEnd(r, shape); err != nil {
		return nil, err
	}
	return a, nil
}

// Close closes the file that OpenNPZ opened. It returns the error of closing.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// WriteNPZ writes the arrays in order as an uncompressed .npz. The bytes depend on the arrays alone.
// It returns an error if an array has no name, two have one name, or w fails.
func WriteNPZ(w io.Writer, arrays []*Array) error {
	z := zip.NewWriter(w)
	written := make(map[string]bool)
	for _, a := range arrays {
		if a.Name == "" {
			return errors.New("an array has no name")
		}
		if written[a.Name] {
			return a.errorf("two arrays have this name")
		}
		written[a.Name] = true
		m, err := z.CreateHeader(&zip.FileHeader{
			Name:   a.Name + ".npy",
			Method: zip.Store,
			// The first date of zip, which numpy writes, too.
			Modified: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC),
		})
		if err != nil {
			return a.errorf("%w", err)
		}
		if err := WriteNPY(m, a); err != nil {
			return err
		}
	}
	return z.Close()
}
