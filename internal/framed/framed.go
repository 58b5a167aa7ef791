// Package framed frames the binary files of the project: first bytes, a version, the content and a
// checksum, in little-endian order. The content may consist of a few parts, each after its length.
package framed

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"

	"github.com/farfield-ml/farfield/internal/fault"
)

// A Format is the frame of one kind of file:
//
//	magic
//	uint32 version
//	content, or for each part: uint64 length, that many bytes
//	checksum of everything before
type Format struct {
	Name    string // name of the kind, for errors
	Magic   string // the first bytes
	Version uint32
	Sum     Checksum
}

// A Checksum ends a file.
type Checksum struct {
	Size int
	New  func() hash.Hash
}

// The checksums. CRC-32C is for files that are written often, SHA-256 for files that are passed on.
var (
	CRC32C = Checksum{4, func() hash.Hash { return castagnoli{crc32.New(Castagnoli)} }}
	SHA256 = Checksum{sha256.Size, sha256.New}
)

// Castagnoli is the polynomial of CRC-32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// castagnoli is a CRC-32C whose sum is appended in little-endian order.
type castagnoli struct{ hash.Hash32 }

func (c castagnoli) Sum(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, c.Sum32()) }

// Begin appends the magic and the version to b.
func (f *Format) Begin(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(append(b, f.Magic...), f.Version)
}

// End appends the checksum of the file that begins at b[start].
func (f *Format) End(b []byte, start int) []byte {
	sum := f.Sum.New()
	sum.Write(b[start:])
	return sum.Sum(b)
}

// head is the number of bytes before the content.
func (f *Format) head() int { return len(f.Magic) + 4 }

// Content returns the content of the file data, without copying it. It returns an error if the
// magic, the version or the checksum differs.
func (f *Format) Content(data []byte) ([]byte, error) {
	if err := f.checkHead(data, int64(len(data))); err != nil {
		return nil, err
	}
	end := len(data) - f.Sum.Size
	sum := f.Sum.New()
	sum.Write(data[:end])
	if err := f.compare(sum.Sum(nil), data[end:]); err != nil {
		return nil, err
	}
	return data[f.head():end], nil
}

// Verify checks the file in the size bytes of r as Content does, without keeping it. The content is
// size-f.Overhead() bytes long and begins at f.Start().
func (f *Format) Verify(r io.ReaderAt, size int64) error {
	head := make([]byte, min(max(size, 0), int64(f.head())))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), head); err != nil {
		return fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: truncated: %w", f.Name, err))
	}
	if err := f.checkHead(head, size); err != nil {
		return err
	}
	end := size - int64(f.Sum.Size)
	sum := f.Sum.New()
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, end)); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	want := make([]byte, f.Sum.Size)
	if _, err := r.ReadAt(want, end); err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return f.compare(sum.Sum(nil), want)
}

// Start returns the offset of the content in a file.
func (f *Format) Start() int64 { return int64(f.head()) }

// Overhead returns how many bytes of a file are not content.
func (f *Format) Overhead() int64 { return int64(f.head() + f.Sum.Size) }

// checkHead returns an error if head, the beginning of a file of size bytes, has another magic or
// version, or the file is too short for its frame.
func (f *Format) checkHead(head []byte, size int64) error {
	if magic := head[:min(len(head), len(f.Magic))]; len(magic) > 0 && string(magic) != f.Magic[:len(magic)] {
		return fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: begins with %q, not %q", f.Name, magic, f.Magic))
	}
	if size < f.Overhead() || len(head) < f.head() {
		return fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: truncated: %d bytes", f.Name, size))
	}
	if v := binary.LittleEndian.Uint32(head[len(f.Magic):]); v != f.Version {
		return fault.Mark(fault.ErrMismatch, fmt.Errorf("%s: version is %d, this program reads %d", f.Name, v, f.Version))
	}
	return nil
}

// compare returns an error if two checksums differ.
func (f *Format) compare(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	show := func(sum []byte) string {
		if len(sum) == 4 {
			return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum))
		}
		return fmt.Sprintf("%x…", sum[:6])
	}
	return fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: corrupt or truncated: checksum is %s, written as %s", f.Name, show(got), show(want)))
}

// Append appends a file with the given parts to b.
func (f *Format) Append(b []byte, parts ...[]byte) []byte {
	writers, size := make([]PartWriter, len(parts)), 0
	for i, part := range parts {
		writers[i] = Part(part)
		size += len(part)
	}
	b, _ = f.AppendParts(b, size, writers...) // their errors are nil
	return b
}

// PartWriter appends a part to b, and returns an error if it cannot.
type PartWriter func(b []byte) ([]byte, error)

// Part returns the writer of a part that exists in memory.
func Part(part []byte) PartWriter {
	return func(b []byte) ([]byte, error) { return append(b, part...), nil }
}

// AppendParts is Append for parts that are only written now, directly after b. size is their total
// number of bytes, as far as it is known. If a part returns an error, AppendParts returns b
// unchanged and the error.
func (f *Format) AppendParts(b []byte, size int, parts ...PartWriter) (file []byte, err error) {
	start := len(b)
	file = f.Begin(slices.Grow(b, size+8*len(parts)+int(f.Overhead())))
	for _, part := range parts {
		at := len(file)
		file = binary.LittleEndian.AppendUint64(file, 0)
		if file, err = part(file); err != nil {
			return b, err
		}
		binary.LittleEndian.PutUint64(file[at:], uint64(len(file)-at-8))
	}
	return f.End(file, start), nil
}

// WriteParts writes a file with the given parts to w, without copying them.
func (f *Format) WriteParts(w io.Writer, parts ...[]byte) error {
	sum := f.Sum.New()
	both := io.MultiWriter(w, sum)
	b := f.Begin(nil)
	for _, part := range parts {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(part)))
		if _, err := both.Write(b); err != nil {
			return err
		}
		if _, err := both.Write(part); err != nil {
			return err
		}
		b = b[:0]
	}
	if _, err := both.Write(b); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// ReadParts returns the n parts of the file in data, without copying them. It returns an error if
// magic, version, checksum or the number of parts differ.
func (f *Format) ReadParts(data []byte, n int) ([][]byte, error) {
	rest, err := f.Content(data)
	if err != nil {
		return nil, err
	}
	parts := make([][]byte, n)
	for i := range parts {
		if len(rest) < 8 {
			return nil, fmt.Errorf("%s: ends before part %d of %d", f.Name, i+1, n)
		}
		size := binary.LittleEndian.Uint64(rest)
		if rest = rest[8:]; size > uint64(len(rest)) {
			return nil, fmt.Errorf("%s: part %d needs %d bytes, %d are left", f.Name, i+1, size, len(rest))
		}
		parts[i], rest = rest[:size], rest[size:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%s: %d bytes follow its last part", f.Name, len(rest))
	}
	return parts, nil
}

// ReadFirst returns the first part of a file of size bytes in r, and the offset of the rest of the
// content. It verifies the checksum of the whole file without keeping the other parts in memory. It
// returns an error if magic, version or checksum differ, or if the part has more than most bytes.
func (f *Format) ReadFirst(r io.ReaderAt, size, most int64) (part []byte, next int64, err error) {
	if err := f.Verify(r, size); err != nil {
		return nil, 0, err
	}
	var length [8]byte
	at := f.Start() + int64(len(length))
	left := size - int64(f.Sum.Size) - at
	if left < 0 {
		return nil, 0, fmt.Errorf("%s: ends before part 1", f.Name)
	}
	if _, err := r.ReadAt(length[:], f.Start()); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", f.Name, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > uint64(left) {
		return nil, 0, fmt.Errorf("%s: part 1 needs %d bytes, %d are left", f.Name, n, left)
	}
	if n > uint64(most) {
		return nil, 0, fmt.Errorf("%s: part 1 has %d bytes, %d are possible", f.Name, n, most)
	}
	part = make([]byte, n)
	_, err = r.ReadAt(part, at)
	return part, at + int64(n), err
}
