package attention

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"unsafe"

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
	SnapshotMagic   = "FFST" // how it begins
	snapshotVersion = 2

	cacheKind = "keys and values"
	sumsKind  = "sums"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// kind names the states of the mechanism.
func (e *engine[T]) kind() string {
	if e.spec.pairwise() {
		return cacheKind
	}
	return sumsKind
}

// identity is whose states a snapshot may be.
type identity struct{ kind, name, setting string }

func (e *engine[T]) identity() identity { return identity{e.kind(), e.spec.Name, e.spec.Setting} }

func (e *engine[T]) parameterSum() parameterSum {
	var sum parameterSum
	for _, p := range slices.Concat(e.params.All(), e.Constants().All()) {
		sum = addParameters(sum, p.Data)
	}
	return sum
}

// parameterSum is a checksum of parameters, in float64; 0 where there are none.
type parameterSum int64

// addParameters returns sum with x behind what it is of.
func addParameters[T tensor.Float](sum parameterSum, x []T) parameterSum {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	}
	return parameterSum(crc32.Update(uint32(sum), castagnoli, b))
}

// snapshotWriter appends a snapshot.
type snapshotWriter struct {
	b     []byte
	start int
}

// newSnapshot appends the header of a state of shape s to b.
func newSnapshot[T tensor.Float](b []byte, id identity, sum parameterSum, s *Shape, tokens int64, decay bool) *snapshotWriter {
	w := &snapshotWriter{b, len(b)}
	w.b = append(w.b, SnapshotMagic...)
	w.b = binary.LittleEndian.AppendUint32(w.b, snapshotVersion)
	w.int(elementSize[T]())
	kind := id.kind
	if decay {
		kind += decayKind
	}
	w.string(kind)
	w.string(id.name)
	w.string(id.setting)
	w.int(int64(sum))
	for _, n := range []int{s.B, s.H, s.Hkv, s.D, s.Dv, s.Chunk} {
		w.int(int64(n))
	}
	w.int(int64(s.Carry))
	w.int(tokens)
	return w
}

func elementSize[T tensor.Float]() int64 {
	var z T
	return int64(unsafe.Sizeof(z))
}

func (w *snapshotWriter) int(n int64) {
	w.b = binary.LittleEndian.AppendUint64(w.b, uint64(n))
}

func (w *snapshotWriter) string(s string) {
	w.int(int64(len(s)))
	w.b = append(w.b, s...)
}

func (w *snapshotWriter) flags(x []bool) {
	for _, flag := range x {
		var c byte
		if flag {
			c = 1
		}
		w.b = append(w.b, c)
	}
}

func writeElements[T tensor.Float](w *snapshotWriter, x []T) {
	w.b, _ = binary.Append(w.b, binary.LittleEndian, x) // fails for types of no fixed size alone
}

// end closes the snapshot and returns it.
func (w *snapshotWriter) end() []byte {
	return binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b[w.start:], castagnoli))
}

// snapshotReader reads a snapshot. After an error it gives zeros.
type snapshotReader struct {
	b     []byte // what is left
	err   error  // the first
	decay bool   // the state has met a decay
}

// openSnapshot checks the frame.
func openSnapshot(data []byte) (*snapshotReader, error) {
	if err := checkFrame(data); err != nil {
		return nil, err
	}
	const frame = len(SnapshotMagic) + 4
	body := data[:len(data)-4]
	if err := checkSum(crc32.Checksum(body, castagnoli), data[len(body):]); err != nil {
		return nil, err
	}
	return &snapshotReader{b: body[frame:]}, nil
}

// fail keeps the first error.
func (r *snapshotReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("snapshot: "+format, args...)
	}
}

// need reports a snapshot that cannot hold n more bytes: to be asked before
// memory is taken for them. Sizes are float64 because claims may be of any
// size.
func (r *snapshotReader) need(n float64) error {
	if !(n <= float64(len(r.b))) {
		r.fail("needs %.0f bytes more, has %d", n, len(r.b))
	}
	return r.err
}

// next returns the next n bytes, nil where there are not so many.
func (r *snapshotReader) next(n int64) []byte {
	if n < 0 || n > int64(len(r.b)) {
		r.fail("needs %d bytes more, has %d", n, len(r.b))
	}
	if r.err != nil {
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *snapshotReader) int() int64 {
	if b := r.next(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (r *snapshotReader) string() string { return string(r.next(r.int())) }

func (r *snapshotReader) flags(x []bool) {
	for i, c := range r.next(int64(len(x))) {
		x[i] = c == 1
		if c > 1 {
			r.fail("a flag is %d, not 0 or 1", c)
		}
	}
}

func readElements[T tensor.Float](r *snapshotReader, x []T) {
	if b := r.next(int64(len(x)) * elementSize[T]()); b != nil {
		binary.Decode(b, binary.LittleEndian, x) // likewise
	}
}

// end reports bytes that nothing has read.
func (r *snapshotReader) end() error {
	if len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}

// Bounds of what a snapshot may claim its shape to be.
const (
	maxHeads = 1 << 20 // B·H
	// freeHeads of them may be there without a byte of their own each: what they
	// hold may be nothing, but the state has room for it.
	freeHeads = 1 << 14
	maxWidth  = 1 << 14 // D and Dv
)

// RestoreState reads what State.AppendBinary wrote.
func (e *engine[T]) RestoreState(data []byte) (State[T], error) {
	if err := e.refuseFuture("snapshot"); err != nil {
		return nil, err
	}
	s, tokens, r, err := readSnapshot[T](data, e.identity(), e.parameterSum())
	if err != nil {
		return nil, err
	}
	if err := e.checkHeads(s.H, s.Hkv, s.D); err != nil {
		return nil, err
	}
	var st State[T]
	if e.spec.pairwise() {
		st, err = restoreCache(e, s, tokens, r)
	} else {
		st, err = restoreSums(e, s, tokens, r)
	}
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// readSnapshot reads the header of a snapshot, which is one of id with parameters of that sum. What the kind
// of state keeps is left in r.
func readSnapshot[T tensor.Float](data []byte, id identity, sum parameterSum) (s Shape, tokens int64, r *snapshotReader, err error) {
	if r, err = openSnapshot(data); err != nil {
		return s, 0, nil, err
	}
	if got, want := r.int(), elementSize[T](); got != want {
		r.fail("elements have %d bytes, this mechanism computes with %d", got, want)
	}
	for _, x := range []struct{ field, want string }{
		{"kind of state", id.kind}, {"mechanism", id.name}, {"setting", id.setting},
	} {
		got := r.string()
		if kind, decay := strings.CutSuffix(got, decayKind); decay && kind == id.kind {
			got, r.decay = kind, true
		}
		if got != x.want {
			r.fail("%s is %q, needs %q", x.field, got, x.want)
		}
	}
	if got, want := r.int(), int64(sum); got != want {
		r.fail("checksum of the parameters is %08x, needs %08x", got, want)
	}
	for _, x := range []struct {
		field  string
		n      *int
		lo, hi int64
	}{
		{"B", &s.B, 1, maxHeads}, {"H", &s.H, 1, maxHeads}, {"Hkv", &s.Hkv, 1, maxHeads},
		{"D", &s.D, 1, maxWidth}, {"Dv", &s.Dv, 1, maxWidth}, {"chunk", &s.Chunk, 0, math.MaxInt32},
	} {
		n := r.int()
		if n < x.lo || n > x.hi {
			r.fail("%s is %d, not between %d and %d", x.field, n, x.lo, x.hi)
		}
		*x.n = int(n)
	}
	carry := r.int()
	if s.Carry = Carry(carry); carry != int64(Rounded) && carry != int64(Compensated) {
		r.fail("carry is %d, not %d or %d", carry, Rounded, Compensated)
	}
	if tokens = r.int(); tokens < 0 {
		r.fail("tokens: %d is negative", tokens)
	}
	if r.err == nil && (tensor.Size(s.B, s.H) > maxHeads || s.H%s.Hkv != 0) {
		r.fail("B=%d H=%d Hkv=%d is not possible", s.B, s.H, s.Hkv)
	}
	if n := s.B * s.H; r.err == nil && n > freeHeads+len(data) {
		r.fail("B=%d H=%d: %d bytes are too few for so many heads", s.B, s.H, len(data))
	}
	return s, tokens, r, r.err
}
