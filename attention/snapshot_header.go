package attention

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// SnapshotHeader is what a snapshot says of its state before the content.
type SnapshotHeader struct {
	Version    int    `json:"version"`
	Kind       string `json:"kind"` // of state
	Mechanism  string `json:"mechanism"`
	Setting    string `json:"setting,omitempty"`
	Element    int    `json:"element_bytes"` // 4 or 8
	B          int    `json:"batch"`
	H          int    `json:"heads"`
	Hkv        int    `json:"kv_heads"`
	D          int    `json:"d"`
	Dv         int    `json:"dv"`
	Chunk      int    `json:"chunk"`
	Tokens     int64  `json:"tokens"` // absorbed
	Bytes      int64  `json:"bytes"`  // of the whole snapshot
	Parameters string `json:"parameters_crc32c"`
}

// headerBytes bounds the bytes of a header: three strings and a few numbers.
const headerBytes = 1 << 16

// ReadSnapshotHeader reads the header of the snapshot that is the size bytes of r, and
// holds all of them against their checksum. It needs no mechanism, and no memory for
// the content.
func ReadSnapshotHeader(r io.ReaderAt, size int64) (h SnapshotHeader, err error) {
	const frame = len(SnapshotMagic) + 4
	head := make([]byte, min(max(size, 0), headerBytes))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), head); err != nil {
		return h, fmt.Errorf("snapshot: truncated: %w", err)
	}
	if err := checkFrame(head); err != nil {
		return h, err
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, size-4)); err != nil {
		return h, fmt.Errorf("snapshot: %w", err)
	}
	var end [4]byte
	if _, err := r.ReadAt(end[:], size-4); err != nil && err != io.EOF {
		return h, fmt.Errorf("snapshot: %w", err)
	}
	if err := checkSum(sum.Sum32(), end[:]); err != nil {
		return h, err
	}
	from := &snapshotReader{b: head[frame:]}
	h.Version, h.Bytes = snapshotVersion, size
	h.Element = int(from.int())
	h.Kind, h.Mechanism, h.Setting = from.string(), from.string(), from.string()
	h.Parameters = fmt.Sprintf("%08x", uint32(from.int()))
	for _, n := range []*int{&h.B, &h.H, &h.Hkv, &h.D, &h.Dv, &h.Chunk} {
		*n = int(from.int())
	}
	from.int() // how sums are carried
	h.Tokens = from.int()
	return h, from.err
}

// checkFrame reports bytes that are not the beginning of a snapshot of this version.
func checkFrame(data []byte) error {
	if len(data) < len(SnapshotMagic)+4+4 {
		return fmt.Errorf("snapshot: truncated: %d bytes", len(data))
	}
	if magic := string(data[:len(SnapshotMagic)]); magic != SnapshotMagic {
		return fmt.Errorf("snapshot: begins with %q, not %q", magic, SnapshotMagic)
	}
	if v := binary.LittleEndian.Uint32(data[len(SnapshotMagic):]); v != snapshotVersion {
		return fmt.Errorf("snapshot: version is %d, this program reads %d", v, snapshotVersion)
	}
	return nil
}

// checkSum reports a checksum that is not the one at the end of a snapshot.
func checkSum(got uint32, end []byte) error {
	if want := binary.LittleEndian.Uint32(end); got != want {
		return fmt.Errorf("snapshot: corrupt or truncated: checksum is %08x, written as %08x", got, want)
	}
	return nil
}
