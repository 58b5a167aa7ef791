// Package framed is the container format of files with a few parts:
//
//	magic
//	uint32 version
//	for each part: uint64 length, that many bytes
//	[32]byte SHA-256 of everything before
//
// in little-endian order.
package framed

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/farfield-ml/farfield/internal/fault"
)

// Append appends a file of parts to b and returns the result.
func Append(b []byte, magic string, version uint32, parts ...[]byte) []byte {
	writers, size := make([]PartWriter, len(parts)), 0
	for i, part := range parts {
		writers[i] = Part(part)
		size += len(part)
	}
	b, _ = AppendParts(b, magic, version, size, writers...) // their errors are nil
	return b
}

// PartWriter appends a part to b. It returns an error if there is no such part.
type PartWriter func(b []byte) ([]byte, error)

// Part returns the writer of a part that is in memory.
func Part(part []byte) PartWriter {
	return func(b []byte) ([]byte, error) { return append(b, part...), nil }
}

// AppendParts is Append for parts that are written where they stay. size is their number of
// bytes, as far as it is known. AppendParts returns the error of a part, and then b alone.
func AppendParts(b []byte, magic string, version uint32, size int, parts ...PartWriter) (file []byte, err error) {
	start := len(b)
	file = slices.Grow(b, size+len(magic)+4+8*len(parts)+sha256.Size)
	file = append(file, magic...)
	file = binary.LittleEndian.AppendUint32(file, version)
	for _, part := range parts {
		at := len(file)
		file = binary.LittleEndian.AppendUint64(file, 0)
		if file, err = part(file); err != nil {
			return b, err
		}
		binary.LittleEndian.PutUint64(file[at:], uint64(len(file)-at-8))
	}
	sum := sha256.Sum256(file[start:])
	return append(file, sum[:]...), nil
}

// ReadParts returns the n parts of the file in data; they alias data. It returns an error if magic,
// version, checksum or the number of parts differ.
func ReadParts(data []byte, magic string, version uint32, n int) ([][]byte, error) {
	if err := checkHeader(data, int64(len(data)), magic, version); err != nil {
		return nil, err
	}
	rest := data[len(magic):]
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil, fault.Mark(fault.ErrDamaged, fmt.Errorf("damaged: its SHA-256 is %.6x…, it says %.6x…", sum, data[end:]))
	}
	rest = rest[4 : len(rest)-sha256.Size]
	parts := make([][]byte, n)
	for i := range parts {
		if len(rest) < 8 {
			return nil, fmt.Errorf("ends before part %d of %d", i+1, n)
		}
		size := binary.LittleEndian.Uint64(rest)
		if rest = rest[8:]; size > uint64(len(rest)) {
			return nil, fmt.Errorf("part %d has %d bytes, %d are left", i+1, size, len(rest))
		}
		parts[i], rest = rest[:size], rest[size:]
	}
	if len(rest) > 0 {
		return nil, errors.New("does not end with its last part")
	}
	return parts, nil
}

// ReadFirst returns the first part of a file of size bytes in r. It verifies the checksum of the
// whole file without keeping the other parts in memory. It returns an error if magic, version or
// checksum differ or the part has more than most bytes.
func ReadFirst(r io.ReaderAt, size int64, magic string, version uint32, most int64) ([]byte, error) {
	head := make([]byte, len(magic)+4+8)
	if n, err := r.ReadAt(head, 0); n < len(head) && err != io.EOF {
		return nil, err
	}
	if err := checkHeader(head, size-8, magic, version); err != nil {
		return nil, err
	}
	end := size - sha256.Size
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, end)); err != nil {
		return nil, err
	}
	var want [sha256.Size]byte
	if _, err := r.ReadAt(want[:], end); err != nil && err != io.EOF {
		return nil, err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, want[:]) {
		return nil, fault.Mark(fault.ErrDamaged, fmt.Errorf("damaged: its SHA-256 is %.6x…, it says %.6x…", got, want))
	}
	n := binary.LittleEndian.Uint64(head[len(magic)+4:])
	if left := uint64(end) - uint64(len(head)); n > left {
		return nil, fmt.Errorf("part 1 has %d bytes, %d are left", n, left)
	}
	if n > uint64(most) {
		return nil, fmt.Errorf("part 1 has %d bytes, %d are possible", n, most)
	}
	part := make([]byte, n)
	_, err := r.ReadAt(part, int64(len(head)))
	return part, err
}

// checkHeader returns an error if head, the beginning of a file of size bytes, has another magic or
// version, or the file is too short for its checksum.
func checkHeader(head []byte, size int64, magic string, version uint32) error {
	rest, ok := bytes.CutPrefix(head, []byte(magic))
	if !ok || len(rest) < 4 || size < int64(len(magic)+4+sha256.Size) {
		return fmt.Errorf("is not a file that begins with %q", magic)
	}
	if v := binary.LittleEndian.Uint32(rest); v != version {
		return fmt.Errorf("version is %d, this program reads %d", v, version)
	}
	return nil
}
