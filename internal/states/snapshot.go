// Package states has the code that states of all mechanisms share. A state lists its arrays once
// (Visited), and is copied, measured, saved and restored by a Pass over them.
package states

import (
	"fmt"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// A snapshot is a state as bytes, all numbers little-endian:
//
//	"FFST"                              magic
//	uint32                              version
//	int64                               bytes of an element: 4 or 8
//	int64 and bytes, three times        kind of state, with decay or without,
//	                                    mechanism, its setting
//	int64                               CRC-32C of the mechanism's parameters
//	int64 six times                     B, H, Hkv, D, Dv, tokens of a chunk
//	int64                               how sums are carried: a Carry
//	int64                               tokens absorbed
//	…                                   what the kind of state keeps
//	uint32                              CRC-32C of everything before
const (
	CacheKind = "keys and values"
	SumsKind  = "sums"
)

// Identity identifies the kind of state, and the mechanism and setting that it belongs to.
type Identity struct{ Kind, Name, Setting string }

// NewSnapshot appends the header of a snapshot to b and returns a writer for the rest. The
// state has shape s, and id and sum identify the mechanism and its parameters. The writer's End
// returns an error if ReadSnapshot would refuse so many heads in so few bytes.
func NewSnapshot(b []byte, id Identity, sum snapshot.ParameterSum, s *attention.Shape, tokens int64, decay bool) *snapshot.Writer {
	w := snapshot.NewWriter(b)
	heads := *s
	w.Check = func(bytes int) error { return checkHeads(&heads, bytes) }
	w.Int(scratch.ElementSize[tensor.Float]())
	kind := id.Kind
	if decay {
		kind += DecayKind
	}
	w.String(kind)
	w.String(id.Name)
	w.String(id.Setting)
	w.Int(int64(sum))
	for _, n := range []int{s.B, s.H, s.Hkv, s.D, s.Dv, s.Chunk} {
		w.Int(int64(n))
	}
	w.Int(int64(s.Carry))
	w.Int(tokens)
	return w
}

// Bounds of the shape and the tokens in a snapshot.
const (
	// freeHeads of a state's heads may be there without a byte of their own each: what they
	// hold may be nothing, but the state has room for it.
	freeHeads = 1 << 14
	maxTokens = 1 << 53 // absorbed: later tokens and merged states do not overflow an int64
)

// checkHeads returns an error if a snapshot of n bytes is too short for the heads of s.
func checkHeads(s *attention.Shape, n int) error {
	if s.B*s.H > freeHeads+n {
		return fmt.Errorf("snapshot: B=%d H=%d: %d bytes have at most %d heads", s.B, s.H, n, freeHeads+n)
	}
	return nil
}

// ReadSnapshot reads the header of a snapshot of a state with identity id, of a mechanism whose
// parameters have the checksum sum. r is left at the content that follows. It returns an error
// if data is damaged, or has another mechanism, setting, parameters or element type.
func ReadSnapshot(data []byte, id Identity, sum snapshot.ParameterSum) (s attention.Shape, tokens int64, r *snapshot.Reader, err error) {
	if r, err = snapshot.Open(data); err != nil {
		return s, 0, nil, err
	}
	if got, want := r.Int(), scratch.ElementSize[tensor.Float](); got != want {
		r.Differ("elements have %d bytes, this mechanism computes with %d", got, want)
	}
	for _, x := range []struct{ field, want string }{
		{"kind of state", id.Kind}, {"mechanism", id.Name}, {"setting", id.Setting},
	} {
		got := r.String()
		if kind, decay := strings.CutSuffix(got, DecayKind); decay && kind == id.Kind {
			got, r.Decay = kind, true
		}
		if got != x.want {
			r.Differ("%s is %q, needs %q", x.field, got, x.want)
		}
	}
	if got, want := r.Int(), int64(sum); got != want {
		r.Differ("checksum of the parameters is %08x, needs %08x", got, want)
	}
	for _, x := range []struct {
		field  string
		n      *int
		lo, hi int64
	}{
		{"B", &s.B, 0, attention.MaxHeads}, {"H", &s.H, 1, attention.MaxHeads}, {"Hkv", &s.Hkv, 1, attention.MaxHeads},
		{"D", &s.D, 1, attention.MaxRow}, {"Dv", &s.Dv, 1, attention.MaxRow}, {"chunk", &s.Chunk, 0, math.MaxInt32},
	} {
		n := r.Int()
		if n < x.lo || n > x.hi {
			r.Fail("%s is %d, not between %d and %d", x.field, n, x.lo, x.hi)
		}
		*x.n = int(n)
	}
	carry := r.Int()
	if s.Carry = attention.Carry(carry); carry != int64(attention.Rounded) && carry != int64(attention.Compensated) {
		r.Fail("carry is %d, not %d or %d", carry, attention.Rounded, attention.Compensated)
	}
	if tokens = r.Int(); tokens < 0 || tokens > maxTokens {
		r.Fail("tokens: %d is not between 0 and %d", tokens, int64(maxTokens))
	}
	if r.Err == nil && (tensor.Size(s.B, s.H) > attention.MaxHeads || s.H%s.Hkv != 0) {
		r.Fail("B=%d H=%d Hkv=%d is not possible", s.B, s.H, s.Hkv)
	}
	if r.Err == nil {
		r.Err = fault.Mark(fault.ErrDamaged, checkHeads(&s, len(data)))
	}
	return s, tokens, r, r.Err
}
