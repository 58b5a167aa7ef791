package attention

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
	h.read(from)
	return h, from.Err
}

// read sets h to the header at the beginning of r, and returns how sums are carried.
func (h *SnapshotHeader) read(r *snapshot.Reader) Carry {
	h.Element = int(r.Int())
	h.Kind, h.Mechanism, h.Setting = r.String(), r.String(), r.String()
	h.Parameters = fmt.Sprintf("%08x", uint32(r.Int()))
	for _, n := range []*int{&h.B, &h.H, &h.Hkv, &h.D, &h.Dv, &h.Chunk} {
		*n = int(r.Int())
	}
	carry := Carry(r.Int())
	h.Tokens = r.Int()
	return carry
}

// CheckSnapshotShape returns an error if the snapshot data, which RestoreState has read, is of a
// state with another batch, other heads, other widths or another carry than s. RestoreState
// accepts every shape; a layer has one.
func CheckSnapshotShape(data []byte, s *Shape) error {
	r, err := snapshot.Open(data)
	if err != nil {
		return err
	}
	var h SnapshotHeader
	carry := h.read(r)
	for _, x := range []struct {
		field     string
		got, want int
	}{
		{"B", h.B, s.B}, {"H", h.H, s.H}, {"Hkv", h.Hkv, s.Hkv}, {"D", h.D, s.D}, {"Dv", h.Dv, s.Dv}, {"carry", int(carry), int(s.Carry)},
	} {
		if x.got != x.want {
			r.Fail("%s is %d, needs %d", x.field, x.got, x.want)
		}
	}
	return r.Err
}
