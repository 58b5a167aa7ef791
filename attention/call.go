package attention

import (
	"errors"
	"fmt"

	"github.com/farfield-ml/farfield/tensor"
)

// Shape returns the call's shape.
func (c *Call[T]) Shape() Shape {
	return Shape{B: c.Q.B, H: c.Q.H, Hkv: c.K.H, N: c.Q.N, M: c.K.N, D: c.Q.D, Dv: c.V.D,
		Causal: c.Causal, Form: c.Form, Chunk: c.Chunk}
}

// LongestKeys returns the number of keys that count of the sequence that has most.
func (c *Call[T]) LongestKeys() int {
	var room [8]sequence
	most := 0
	for _, s := range c.appendSequences(room[:0]) {
		most = max(most, s.m)
	}
	return most
}

var (
	errNoCall  = errors.New("call: it is nil")
	errNoGrads = errors.New("grads: they are nil")
)

// check reports the first thing in c that does not fit, naming the field and
// both values.
func (c *Call[T]) check() error {
	if err := c.checkKeys(); err != nil {
		return err
	}
	q, k := &c.Q, &c.K
	if err := q.Check("q"); err != nil {
		return err
	}
	switch {
	case c.decays() && !c.Causal:
		return fmt.Errorf("log_g: decay needs a causal call, whose queries have a place among the keys")
	case q.B != k.B:
		return fmt.Errorf("k: B is %d, q has %d", k.B, q.B)
	case q.D != k.D:
		return fmt.Errorf("k: D is %d, q has %d", k.D, q.D)
	case k.H == 0 && q.H != 0, k.H != 0 && q.H%k.H != 0:
		return fmt.Errorf("k: %d heads do not divide the %d heads of q", k.H, q.H)
	case c.AttnKeep != nil && len(c.AttnKeep) != tensor.Size(q.N, k.N):
		return fmt.Errorf("attn_keep: has %d elements, N·M is %d·%d", len(c.AttnKeep), q.N, k.N)
	case c.AttnKeep != nil && c.CuQ != nil:
		return fmt.Errorf("attn_keep: not defined with packed sequences (cu_q)")
	case (c.CuQ == nil) != (c.CuK == nil):
		return fmt.Errorf("cu_q and cu_k: one is given without the other")
	}
	if c.CuQ != nil {
		if len(c.CuQ) != len(c.CuK) {
			return fmt.Errorf("cu_k: has %d offsets, cu_q has %d", len(c.CuK), len(c.CuQ))
		}
		if err := checkOffsets("cu_q", c.CuQ, q.B, q.N); err != nil {
			return err
		}
		if err := checkOffsets("cu_k", c.CuK, k.B, k.N); err != nil {
			return err
		}
	}
	if err := c.Drop.check(c.Shape()); err != nil {
		return err
	}
	if c.Rope != nil {
		var room [8]sequence
		for _, s := range c.appendSequences(room[:0]) {
			off := 0
			if c.Causal {
				off = s.off
			}
			if off < 0 {
				return fmt.Errorf("rope: a sequence of %d queries has only %d keys", s.n, s.n+off)
			}
			if need := max(s.n+off, s.m); c.Rope.Rows() < need {
				return fmt.Errorf("rope: has %d rows, a sequence has %d positions", c.Rope.Rows(), need)
			}
		}
	}
	return nil
}

// checkKeys is check for what concerns keys and values alone.
func (c *Call[T]) checkKeys() error {
	if c == nil {
		return errNoCall
	}
	k, v := &c.K, &c.V
	if err := k.Check("k"); err != nil {
		return err
	}
	if err := v.Check("v"); err != nil {
		return err
	}
	switch {
	case k.D == 0:
		return fmt.Errorf("k: D is 0, needs 1 or more")
	case v.D == 0:
		return fmt.Errorf("v: Dv is 0, needs 1 or more")
	case k.B != v.B:
		return fmt.Errorf("v: B is %d, k has %d", v.B, k.B)
	case k.H != v.H:
		return fmt.Errorf("v: %d heads, k has %d", v.H, k.H)
	case k.N != v.N:
		return fmt.Errorf("v: M is %d, k has %d", v.N, k.N)
	case c.KeyLens != nil && len(c.KeyLens) != k.B:
		return fmt.Errorf("key_lengths: has %d elements, B is %d", len(c.KeyLens), k.B)
	case c.KeyLens != nil && c.CuQ != nil:
		return fmt.Errorf("key_lengths: not defined with packed sequences (cu_q)")
	case c.KeyMask != nil && len(c.KeyMask) != tensor.Size(k.B, k.N):
		return fmt.Errorf("keymask: has %d elements, B·M is %d·%d", len(c.KeyMask), k.B, k.N)
	case c.Chunk < 0:
		return fmt.Errorf("chunk: %d is negative", c.Chunk)
	}
	for b, n := range c.KeyLens {
		if n < 0 || n > int64(k.N) {
			return fmt.Errorf("key_lengths: row %d is %d, M is %d", b, n, k.N)
		}
	}
	if err := c.Rope.check(k.D); err != nil {
		return err
	}
	return c.checkDecay()
}

func checkOffsets(name string, cu []int64, b, n int) error {
	if b != 1 {
		return fmt.Errorf("%s: packed sequences need B = 1, B is %d", name, b)
	}
	if len(cu) == 0 || cu[0] != 0 {
		return fmt.Errorf("%s: offsets do not start with 0", name)
	}
	for s := 1; s < len(cu); s++ {
		if cu[s] < cu[s-1] {
			return fmt.Errorf("%s: offset %d is %d, after %d", name, s, cu[s], cu[s-1])
		}
	}
	if last := cu[len(cu)-1]; last != int64(n) {
		return fmt.Errorf("%s: the last offset is %d, there are %d tokens", name, last, n)
	}
	return nil
}

// checkOut reports an output whose shape is not [B,H,N,Dv].
func (c *Call[T]) checkOut(name string, o *tensor.Heads[T]) error {
	return sameShape(name, o, c.Q.B, c.Q.H, c.Q.N, c.V.D)
}

// checkShapes reports gradients, among them the given dout, whose shapes are not
// those of what they are gradients of.
func (g *Grads[T]) checkShapes(dout *tensor.Heads[T], c *Call[T]) error {
	if g == nil {
		return errNoGrads
	}
	if err := c.checkOut("do", dout); err != nil {
		return err
	}
	for _, x := range []struct {
		name  string
		d, of *tensor.Heads[T]
	}{{"dq", &g.DQ, &c.Q}, {"dk", &g.DK, &c.K}, {"dv", &g.DV, &c.V}} {
		if err := sameShape(x.name, x.d, x.of.B, x.of.H, x.of.N, x.of.D); err != nil {
			return err
		}
	}
	return nil
}

func sameShape[T tensor.Float](name string, x *tensor.Heads[T], b, h, n, d int) error {
	if err := x.Check(name); err != nil {
		return err
	}
	if x.B != b || x.H != h || x.N != n || x.D != d {
		return fmt.Errorf("%s: shape is [%d,%d,%d,%d], needs [%d,%d,%d,%d]", name, x.B, x.H, x.N, x.D, b, h, n, d)
	}
	return nil
}

// sequence is one independent stretch of tokens: a batch row, or a packed
// segment of it.
type sequence struct {
	index int // among the call's sequences
	b     int // batch row
	q0, n int // queries
	keys  int // keys it holds
	k0, m int // keys that count: those within the row's key length
	off   int // query i sees keys j ≤ i + off, where causal
	form  Form
	work  float64 // arithmetic of all heads

	before int64        // keys of the state before it, 0 if none of them exists
	stats  []statistics // of the queries of every head, then of the keys; nil: none
}

func (c *Call[T]) sequences() []sequence { return c.appendSequences(nil) }

func (c *Call[T]) appendSequences(list []sequence) []sequence {
	add := func(b, q0, n, k0, keys, m int) {
		list = append(list, sequence{index: len(list), b: b, q0: q0, n: n, keys: keys, k0: k0, m: m, off: keys - n})
	}
	if c.CuQ != nil {
		for s := range len(c.CuQ) - 1 {
			q0, q1, k0, k1 := int(c.CuQ[s]), int(c.CuQ[s+1]), int(c.CuK[s]), int(c.CuK[s+1])
			add(0, q0, q1-q0, k0, k1-k0, k1-k0)
		}
		return list
	}
	for b := range c.Q.B {
		m := c.K.N
		if c.KeyLens != nil {
			m = int(c.KeyLens[b])
		}
		add(b, 0, c.Q.N, 0, c.K.N, m)
	}
	return list
}

// maskOf returns which keys of s exist; nil: all.
func (c *Call[T]) maskOf(s *sequence) []bool {
	if c.KeyMask == nil {
		return nil
	}
	return c.KeyMask[s.b*c.K.N+s.k0:][:s.m]
}
