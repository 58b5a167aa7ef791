package states

import (
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/snapshot"
)

// Header describes the state in a snapshot.
type Header struct {
	Version    int    `json:"version"`
	Kind       string `json:"kind"` // kind of the state
	Mechanism  string `json:"mechanism"`
	Setting    string `json:"setting,omitempty"`
	Element    int    `json:"element_bytes"` // 4 or 8
	B          int    `json:"batch"`
	H          int    `json:"heads"`
	Hkv        int    `json:"kv_heads"`
	D          int    `json:"d"`
	Dv         int    `json:"dv"`
	Chunk      int    `json:"chunk"`
	Tokens     int64  `json:"tokens"` // tokens absorbed
	Bytes      int64  `json:"bytes"`  // of the whole snapshot
	Parameters string `json:"parameters_crc32c"`
}

// headerBytes bounds the bytes of a header: three strings and a few numbers.
const headerBytes = 1 << 16

// ReadHeader reads the header of the snapshot in the first size bytes of r, and
// verifies the checksum of the whole. It needs neither the mechanism nor memory for the
// content. It returns an error if the snapshot is damaged or has another version.
func ReadHeader(r io.ReaderAt, size int64) (h Header, err error) {
	from, err := snapshot.OpenHeader(r, size, headerBytes)
	if err != nil {
		return h, err
	}
	h.Version, h.Bytes = snapshot.Version, size
	h.read(from)
	return h, from.Err
}

// read sets h to the header at the beginning of r, and returns how sums are carried.
func (h *Header) read(r *snapshot.Reader) attention.Carry {
	h.Element = int(r.Int())
	h.Kind, h.Mechanism, h.Setting = r.String(), r.String(), r.String()
	h.Parameters = fmt.Sprintf("%08x", uint32(r.Int()))
	for _, n := range []*int{&h.B, &h.H, &h.Hkv, &h.D, &h.Dv, &h.Chunk} {
		*n = int(r.Int())
	}
	carry := attention.Carry(r.Int())
	h.Tokens = r.Int()
	return carry
}

// DecayKind is the suffix of Header.Kind for a state that has absorbed a decay.
const DecayKind = " with decay"

// CheckHeader returns an error if a layer cannot continue from the snapshot data.
// RestoreState accepts states of any shape, chunk and carry, with or without decay; a layer
// accepts only its own. empty is a snapshot of the layer's state for no sequences: data must
// agree with it in everything except the number of tokens, and must have batch sequences. If
// data has absorbed tokens, it must have absorbed a decay if hasDecay is set, and none
// otherwise.
func CheckHeader(data, empty []byte, batch int, hasDecay bool) error {
	r, err := snapshot.Open(data)
	if err != nil {
		return err
	}
	e, err := snapshot.Open(empty)
	if err != nil {
		return err
	}
	var got, want Header
	carry, wantedCarry := got.read(r), want.read(e)
	want.B = batch
	if hasDecay && got.Tokens > 0 && batch > 0 {
		want.Kind += DecayKind
	}
	for _, x := range []struct {
		field     string
		got, want any
	}{
		{"bytes of an element", got.Element, want.Element}, {"kind of state", got.Kind, want.Kind},
		{"mechanism", got.Mechanism, want.Mechanism}, {"setting", got.Setting, want.Setting},
		{"checksum of the parameters", got.Parameters, want.Parameters},
		{"B", got.B, want.B}, {"H", got.H, want.H}, {"Hkv", got.Hkv, want.Hkv}, {"D", got.D, want.D}, {"Dv", got.Dv, want.Dv},
		{"chunk", got.Chunk, want.Chunk}, {"carry", int(carry), int(wantedCarry)},
	} {
		if x.got != x.want {
			r.Differ("%s is %.200s, needs %.200s", x.field, fmt.Sprint(x.got), fmt.Sprint(x.want))
		}
	}
	return r.Err
}
