package contract

import (
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/snapshot"
)

// SnapshotHeader describes the state in a snapshot.
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

// ReadSnapshotHeader reads the header of the snapshot in the size bytes of r, and
// verifies the checksum of all bytes. It needs no mechanism, and no memory for the
// content. It returns an error if the snapshot is damaged or of another version.
func ReadSnapshotHeader(r io.ReaderAt, size int64) (h SnapshotHeader, err error) {
	from, err := snapshot.OpenHeader(r, size, headerBytes)
	if err != nil {
		return h, err
	}
	h.Version, h.Bytes = snapshot.Version, size
	h.Element = int(from.Int())
	h.Kind, h.Mechanism, h.Setting = from.String(), from.String(), from.String()
	h.Parameters = fmt.Sprintf("%08x", uint32(from.Int()))
	for _, n := range []*int{&h.B, &h.H, &h.Hkv, &h.D, &h.Dv, &h.Chunk} {
		*n = int(from.Int())
	}
	from.Int() // how sums are carried
	h.Tokens = from.Int()
	return h, from.Err
}
