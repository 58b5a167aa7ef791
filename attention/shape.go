package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Shape is the shape of a call or a state. States ignore N and M.
type Shape struct {
	B, H, Hkv, N, M, D, Dv int // as in Call; Hkv must be set, H if key heads are not shared
	Causal                 bool
	Form                   Form
	Chunk                  int
	Carry                  Carry // how a state adds up its sums
}

// Shape returns the call's shape.
func (c *Call) Shape() Shape {
	return Shape{B: c.Q.B, H: c.Q.H, Hkv: c.K.H, N: c.Q.N, M: c.K.N, D: c.Q.D, Dv: c.V.D,
		Causal: c.Causal, Form: c.Form, Chunk: c.Chunk}
}

// CheckState returns an error if no state can have shape s.
func (s *Shape) CheckState() error {
	if s.H > 0 && s.Hkv == 0 {
		return fmt.Errorf("state: Hkv is 0, needs a divisor of H = %d", s.H)
	}
	if s.B < 0 || s.H <= 0 || s.Hkv <= 0 || s.H%s.Hkv != 0 || s.D <= 0 || s.Dv <= 0 {
		return fmt.Errorf("state: shape B=%d H=%d Hkv=%d D=%d Dv=%d is not possible", s.B, s.H, s.Hkv, s.D, s.Dv)
	}
	switch {
	case tensor.Size(s.B, s.H) > MaxHeads:
		return fmt.Errorf("state: B·H is %d·%d, at most %d heads are kept", s.B, s.H, MaxHeads)
	case s.D > MaxRow || s.Dv > MaxRow:
		return fmt.Errorf("state: rows of D = %d and Dv = %d, at most %d are kept", s.D, s.Dv, MaxRow)
	case s.Chunk < 0:
		return fmt.Errorf("chunk: %d is negative", s.Chunk)
	case s.Chunk > maxChunk:
		return fmt.Errorf("chunk: %d tokens, a state has at most %d", s.Chunk, maxChunk)
	}
	return nil
}

// CheckStateSize returns an error if bytes, the size of a state of shape s, is above the limit.
func (s *Shape) CheckStateSize(bytes float64) error {
	if !(bytes <= maxState) {
		return fmt.Errorf("state: shape B=%d H=%d Hkv=%d D=%d Dv=%d in chunks of %d takes %.0f bytes, at most %.0f",
			s.B, s.H, s.Hkv, s.D, s.Dv, s.Chunk, bytes, maxState)
	}
	return nil
}

// MaxHeads is the largest number of heads, B·H, of a state.
const MaxHeads = 1 << 20

// MaxRow is the largest D and the largest Dv of a state.
const MaxRow = 1 << 28

const (
	// maxChunk bounds the tokens of a state's chunk. All their pairs are computed.
	maxChunk = 1 << 24
	// maxState is the most bytes of a state: more than any memory has.
	maxState = float64(min(1<<44, math.MaxInt))
)
