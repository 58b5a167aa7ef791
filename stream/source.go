package stream

import (
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"time"
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/tensor"
)

// Shape is the shape of a stream: q [B,H,N,D], k [B,Hkv,M,D] and v [B,Hkv,M,Dv].
type Shape struct {
	B, H, Hkv int
	N, M      int64 // -1: unknown before the end
	D, Dv     int
}

// validate returns an error for an invalid shape.
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
	if n := float64(s.B) * (float64(s.H) + float64(s.Hkv)) * (float64(s.D) + float64(s.Dv)); n*max(float64(s.N), float64(s.M), 1) > math.MaxInt64/16 {
		return fmt.Errorf("shape: %+v is beyond 64 bits", s)
	}
	return nil
}

// countNumbers returns the numbers of a token with the given parts, outputs included.
func (s Shape) countNumbers(want Role) (n float64) {
	width := float64(s.B) * (float64(s.D) + float64(s.Dv))
	if want&Queries != 0 {
		n += float64(s.H) * width
	}
	if want&Keys != 0 {
		n += float64(s.Hkv) * width
	}
	return n
}

// Role selects parts of a token: keys, queries or both.
type Role uint8

const (
	Keys    Role = 1 << iota // keys and values, their mask and decay
	Queries                  // queries
)

// Window holds some tokens in memory.
type Window struct {
	Call attention.Call // call with the tokens read

	role     Role
	count    int
	position int64 // position of the first query or key
	out      tensor.Heads

	q, k, v, g tensor.Heads   // memory for all tokens
	mask       []bool         // memory for all tokens
	records    []tensor.Float // shared memory of q, k and v, if any

	// Input is the checksum of a sequential source from its start to the last token of the
	// window.
	Input uint32
}

// NewWindow returns a window with room for n tokens of shape s. want selects queries, keys or
// both, and decays adds a decay. To fill the window, a source calls SetTokens and overwrites
// the tokens of Call.
func NewWindow(s Shape, n int, want Role, decays bool) *Window {
	w := &Window{role: want}
	if want&Queries != 0 {
		w.q = tensor.NewHeads(s.B, s.H, n, s.D)
	}
	if want&Keys != 0 {
		w.k, w.v = tensor.NewHeads(s.B, s.Hkv, n, s.D), tensor.NewHeads(s.B, s.Hkv, n, s.Dv)
		if decays {
			w.g = tensor.NewHeads(s.B, s.Hkv, n, 1)
		}
	}
	return w
}

// SetTokens sets the call to views of the first n tokens of the window.
func (w *Window) SetTokens(n int) {
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

// memoryBytes returns the memory of w.
func (w *Window) memoryBytes() int64 {
	elements := len(w.records) + len(w.out.Data)
	if w.records == nil {
		elements += len(w.q.Data) + len(w.k.Data) + len(w.v.Data)
	}
	if r := w.Call.Rope; r != nil {
		elements += len(r.Cos) + len(r.Sin)
	}
	elements += len(w.g.Data)
	return int64(elements)*elementSize() + int64(len(w.mask))
}

// Source provides the tokens of a stream. Its methods are called by one goroutine at a time.
type Source interface {
	Shape() Shape
	HasDecay() bool     // whether keys have a decay
	IsSequential() bool // whether tokens come once, in order
	// IsComputed reports whether FillWindow does so much computation that it uses all cores.
	// Windows are then not filled while attention is computed.
	IsComputed() bool
	// Identity returns values that distinguish this input from others. Checkpoints contain
	// them.
	Identity() []comm.Field
	// NewWindow returns a window for n tokens with the parts in want.
	NewWindow(n int, want Role) *Window
	// FillWindow overwrites w, a result of NewWindow, with up to n tokens: queries from query
	// on and keys from key on, counted from 0. It returns the number of tokens, which is less
	// than n only at the end of the input, and an error if the input cannot be read.
	FillWindow(w *Window, query, key int64, n int) (int, error)
}

// inputCheck says whether a source refuses numbers that are not finite.
type inputCheck struct{ allowsNonFinite bool }

func (c *inputCheck) allowNonFinite(allowed bool) { c.allowsNonFinite = allowed }

// Skipper is a sequential Source on which a run can be resumed.
type Skipper interface {
	// Skip reads past the first n tokens. It returns an error if their checksum is not
	// sum.
	Skip(n int64, sum uint32) error
}

var castagnoli = framed.Castagnoli

// elementSize returns the bytes of a number.
func elementSize() int64 {
	var x tensor.Float
	return int64(unsafe.Sizeof(x))
}

// headBytes is the number of leading bytes in the checksum of a file's identity.
const headBytes = 1 << 16

// identifyFile identifies a file by size, modification time and a checksum of its first
// bytes.
func identifyFile(name string, f *os.File) ([]comm.Field, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(headBytes, info.Size()))
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	return []comm.Field{
		{Name: name + ": bytes", Value: fmt.Sprint(info.Size())},
		{Name: name + ": modified", Value: info.ModTime().UTC().Format(time.RFC3339Nano)},
		{Name: name + ": checksum of its head", Value: fmt.Sprintf("%08x", crc32.Checksum(head, castagnoli))},
	}, nil
}

// checkFinite returns an error for the first NaN or infinity of heads whose first token
// is at.
func checkFinite(name string, x tensor.Heads, at int64) error {
	for b := range x.B {
		for h := range x.H {
			m := x.Head(b, h)
			for i := range m.Rows {
				row := m.Row(i)
				var zero tensor.Float
				for _, y := range row {
					zero += y * 0
				}
				if zero == 0 {
					continue
				}
				for c, y := range row {
					if y*0 != 0 {
						return fault.Mark(fault.ErrInput, fmt.Errorf("%s: element [%d,%d,%d,%d] is %v", name, b, h, at+int64(i), c, y))
					}
				}
			}
		}
	}
	return nil
}
