package stream

import (
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"time"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// Shape is the shape of a stream: q [B,H,N,D], k [B,Hkv,M,D] and v [B,Hkv,M,Dv].
type Shape struct {
	B, H, Hkv int
	N, M      int64 // -1 where nobody knows before the end
	D, Dv     int
}

// validate reports a shape that there cannot be.
func (s Shape) validate() error {
	for _, x := range []struct {
		name string
		n    int
	}{{"B", s.B}, {"H", s.H}, {"Hkv", s.Hkv}, {"D", s.D}, {"Dv", s.Dv}} {
		if x.n < 1 {
			return fmt.Errorf("shape: %s is %d, needs 1 or more", x.name, x.n)
		}
	}
	if s.H%s.Hkv != 0 {
		return fmt.Errorf("k: %d heads do not divide the %d heads of q", s.Hkv, s.H)
	}
	if n := float64(s.B) * (float64(s.H)*float64(s.D+s.Dv) + float64(s.Hkv)*float64(s.D+s.Dv)); n*max(float64(s.N), float64(s.M), 1) > math.MaxInt64/16 {
		return fmt.Errorf("shape: %+v is beyond 64 bits", s)
	}
	return nil
}

// Role says what of a token is wanted.
type Role uint8

const (
	Keys    Role = 1 << iota // keys and values, their mask and decay
	Queries                  // queries
)

// Window is some tokens in memory.
type Window[T tensor.Float] struct {
	Call attention.Call[T] // of the tokens that were read: as many as there are

	role     Role
	count    int
	position int64 // of the first query or key
	out      tensor.Heads[T]

	q, k, v, g tensor.Heads[T] // room for all tokens
	mask       []bool          // likewise
	records    []T             // what they are views of, if they share it

	// Input is a checksum of what was read of a sequential source, up to the last of
	// the tokens.
	Input uint32
}

// NewWindow returns a window with room for n tokens of what is wanted of a shape. A
// source sets the tokens in its Call, behind Take.
func NewWindow[T tensor.Float](s Shape, n int, want Role, decays bool) *Window[T] {
	w := &Window[T]{role: want}
	if want&Queries != 0 {
		w.q = tensor.NewHeads[T](s.B, s.H, n, s.D)
	}
	if want&Keys != 0 {
		w.k, w.v = tensor.NewHeads[T](s.B, s.Hkv, n, s.D), tensor.NewHeads[T](s.B, s.Hkv, n, s.Dv)
		if decays {
			w.g = tensor.NewHeads[T](s.B, s.Hkv, n, 1)
		}
	}
	return w
}

// Role is what of its tokens a window is for.
func (w *Window[T]) Role() Role { return w.role }

// SetTokens points the call at the first n tokens of the room, where they are to be.
func (w *Window[T]) SetTokens(n int) {
	if w.role&Queries != 0 {
		w.Call.Q = w.q.Tokens(0, n)
	}
	if w.role&Keys != 0 {
		w.Call.K, w.Call.V = w.k.Tokens(0, n), w.v.Tokens(0, n)
		if w.g.D > 0 {
			w.Call.LogG = w.g.Tokens(0, n)
		}
	}
	if w.mask != nil {
		w.Call.KeyMask = w.mask[:w.k.B*n]
	}
}

// memoryBytes counts the memory of w.
func (w *Window[T]) memoryBytes() int64 {
	elements := len(w.records) + len(w.out.Data)
	if w.records == nil {
		elements += len(w.q.Data) + len(w.k.Data) + len(w.v.Data)
	}
	if r := w.Call.Rope; r != nil {
		elements += len(r.Cos) + len(r.Sin)
	}
	elements += len(w.g.Data)
	return int64(elements)*elementSize[T]() + int64(len(w.mask))
}

// Source gives the tokens of a stream. Its methods are called by one goroutine at a
// time.
type Source[T tensor.Float] interface {
	Shape() Shape
	HasDecay() bool     // keys have a decay
	IsSequential() bool // tokens come once, in order
	// IsComputed says that Fill takes the cores: windows are filled between
	// computations then, not beside them.
	IsComputed() bool
	// Identity tells apart inputs, for checkpoints.
	Identity() []Field
	// NewWindow returns a window for n tokens of what is wanted.
	NewWindow(n int, want Role) *Window[T]
	// FillWindow sets w, which Room has made, to n tokens: queries from query on and keys
	// from key on, 0 being the first. It returns fewer where the input ends.
	FillWindow(w *Window[T], query, key int64, n int) (int, error)
}

// Skipper is a sequential source that a run which was cut off can go on with.
type Skipper interface {
	// Skip passes over the first n tokens, whose checksum is sum.
	Skip(n int64, sum uint32) error
}

// Field is something that a checkpoint is bound to.
type Field struct{ Name, Value string }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func elementSize[T tensor.Float]() int64 {
	var x T
	return int64(unsafe.Sizeof(x))
}

// headBytes is what the identity of a file looks at of its content.
const headBytes = 1 << 16

// identifyFile tells files apart by size, time of modification and a checksum of their
// beginning.
func identifyFile(name string, f *os.File) ([]Field, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(headBytes, info.Size()))
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	return []Field{
		{name + ": bytes", fmt.Sprint(info.Size())},
		{name + ": modified", info.ModTime().UTC().Format(time.RFC3339Nano)},
		{name + ": checksum of its head", fmt.Sprintf("%08x", crc32.Checksum(head, castagnoli))},
	}, nil
}

// checkFinite reports the first NaN or infinity of heads whose first token is at.
func checkFinite[T tensor.Float](name string, x tensor.Heads[T], at int64) error {
	for b := range x.B {
		for h := range x.H {
			m := x.At(b, h)
			for i := range m.Rows {
				row := m.Row(i)
				var zero T
				for _, y := range row {
					zero += y * 0
				}
				if zero == 0 {
					continue
				}
				for c, y := range row {
					if y*0 != 0 {
						return &BadInput{fmt.Errorf("%s: element [%d,%d,%d,%d] is %v", name, b, h, at+int64(i), c, y)}
					}
				}
			}
		}
	}
	return nil
}
