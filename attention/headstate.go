package attention

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// Remembering is a causal Headwise whose outputs depend on the queries of tokens
// before, too. Its states keep these and give them in Head.Past; a token that was
// absorbed came without a query.
type Remembering interface{ RemembersQueries() }

// headState is the state of a causal headwise mechanism that has none of its
// own: all keys, rotated, and all values. A query meets them alone, from the
// place of its own key.
type headState[T tensor.Float] struct {
	w      *headwise[T]
	shape  Shape
	tokens int
	exist  [][]bool // [B][tokens]
	k, v   [][]T    // [B·Hkv][tokens, D] and [tokens, Dv]; zeros where a token does not exist
	q      [][]T    // [B·H][tokens, D] of what remembers them, rotated; nil: it does not
}

func newHeadState[T tensor.Float](w *headwise[T], s Shape) *headState[T] {
	s = Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}
	n := s.B * s.Hkv
	st := &headState[T]{w: w, shape: s, exist: make([][]bool, s.B), k: make([][]T, n), v: make([][]T, n)}
	if _, is := w.Headwise.(Remembering); is {
		st.q = make([][]T, s.B*s.H)
	}
	return st
}

func (s *headState[T]) Absorb(c *Call[T]) error { return CheckedAbsorb(c, s) }

func (s *headState[T]) Read(out tensor.Heads[T], c *Call[T]) error { return CheckedRead(out, c, s) }

func (s *headState[T]) Step(out tensor.Heads[T], c *Call[T]) error { return CheckedStep(out, c, s) }

func (s *headState[T]) StateShape() *Shape { return &s.shape }

func (s *headState[T]) Refuse(c *Call[T]) error { return s.w.refuse(c) }

func (s *headState[T]) Run(out tensor.Heads[T], c *Call[T], n, m int) {
	past := s.tokens
	if m == 0 {
		s.answer(out, c, func(int) int { return past })
		return
	}
	s.absorb(c, n > 0)
	if n > 0 {
		s.answer(out, c, func(i int) int { return past + i + 1 })
	}
}

// absorb takes in keys and values, and with asked queries, too.
func (s *headState[T]) absorb(c *Call[T], asked bool) {
	ar := arena.Acquire()
	defer ar.Release()
	m := c.K.N
	for b := range s.exist {
		for j := range m {
			s.exist[b] = append(s.exist[b], c.KeyMask == nil || c.KeyMask[b*m+j])
		}
	}
	for i := range s.k {
		mark := ar.Mark()
		b, kh := i/s.shape.Hkv, i%s.shape.Hkv
		mask := s.exist[b][s.tokens:]
		k := turned(ar, c.K.At(b, kh), mask, c.Rope, 0)
		v := turned(ar, c.V.At(b, kh), mask, nil, 0)
		s.k[i] = append(s.k[i], k.Data[:m*s.shape.D]...)
		s.v[i] = append(s.v[i], v.Data[:m*s.shape.Dv]...)
		ar.Reset(mark)
	}
	for i := range s.q {
		if !asked {
			s.q[i] = append(s.q[i], make([]T, m*s.shape.D)...)
			continue
		}
		mark := ar.Mark()
		q := turned(ar, c.Q.At(i/s.shape.H, i%s.shape.H), nil, c.Rope, 0)
		s.q[i] = append(s.q[i], q.Data[:m*s.shape.D]...)
		ar.Reset(mark)
	}
	s.tokens += m
}

// answer sets out for the queries of c, of which number i sees the first seen(i)
// keys.
func (s *headState[T]) answer(out tensor.Heads[T], c *Call[T], seen func(i int) int) {
	one := s.shape
	one.N, one.M, one.Causal = 1, s.tokens, true
	units := s.shape.B * s.shape.H
	work := float64(units*c.Q.N) * s.w.Cost(one).FLOPs
	par.RunEach(units, work, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		b, head := i/s.shape.H, i%s.shape.H
		kv := b*s.shape.Hkv + head/(s.shape.H/s.shape.Hkv)
		h := s.w.head()
		defer s.w.putHead(h)
		for n := range c.Q.N {
			mark := ar.Mark()
			row, m := out.At(b, head).Slice(n, n+1), seen(n)
			exist := s.exist[b][:m]
			if !slices.Contains(exist, true) {
				clear(row.Row(0))
				continue
			}
			*h = Head[T]{
				Q: turned(ar, c.Q.At(b, head).Slice(n, n+1), nil, c.Rope, n),
				K: tensor.Mat[T]{Data: s.k[kv], Rows: m, Cols: s.shape.D, Stride: s.shape.D},
				V: tensor.Mat[T]{Data: s.v[kv], Rows: m, Cols: s.shape.Dv, Stride: s.shape.Dv},

				Causal: true, Off: m - 1, Head: head, Scratch: ar, Table: kernel.Active[T](),
			}
			if slices.Contains(exist, false) {
				h.Mask = exist
			}
			if s.q != nil {
				h.Past = tensor.Mat[T]{Data: s.q[i], Rows: m - 1, Cols: s.shape.D, Stride: s.shape.D}
			}
			h.Out = scratch.ForOutput(ar, row)
			s.w.Headwise.Forward(h)
			scratch.CopyMat(row, h.Out)
			ar.Reset(mark)
		}
	})
}

// Merge puts the keys and values of next behind those of s, with the bits of one
// stream.
func (s *headState[T]) Merge(next State[T]) error {
	n, err := Mergeable(s.w.identity(), &s.shape, next, func(n *headState[T]) (Identity, *Shape) { return n.w.identity(), &n.shape })
	if err != nil {
		return err
	}
	for b := range s.exist {
		s.exist[b] = append(s.exist[b], n.exist[b]...)
	}
	for i := range s.k {
		s.k[i], s.v[i] = append(s.k[i], n.k[i]...), append(s.v[i], n.v[i]...)
	}
	for i := range s.q {
		s.q[i] = append(s.q[i], n.q[i]...)
	}
	s.tokens += n.tokens
	return nil
}

func (s *headState[T]) Clone() State[T] {
	c := newHeadState(s.w, s.shape)
	c.tokens = s.tokens
	for b := range s.exist {
		c.exist[b] = slices.Clone(s.exist[b])
	}
	for i := range s.k {
		c.k[i], c.v[i] = slices.Clone(s.k[i]), slices.Clone(s.v[i])
	}
	for i := range s.q {
		c.q[i] = slices.Clone(s.q[i])
	}
	return c
}

func (s *headState[T]) Reset() {
	s.tokens = 0
	for b := range s.exist {
		s.exist[b] = s.exist[b][:0]
	}
	for i := range s.k {
		s.k[i], s.v[i] = s.k[i][:0], s.v[i][:0]
	}
	for i := range s.q {
		s.q[i] = s.q[i][:0]
	}
}

func (s *headState[T]) Tokens() int64 { return int64(s.tokens) }

func (s *headState[T]) Bytes() int64 {
	var elements, flags int
	for b := range s.exist {
		flags += cap(s.exist[b])
	}
	for i := range s.k {
		elements += cap(s.k[i]) + cap(s.v[i])
	}
	for i := range s.q {
		elements += cap(s.q[i])
	}
	return int64(elements)*scratch.ElementSize[T]() + int64(flags)
}

// AppendBinary appends a snapshot: after the header the flags of each batch row,
// then the keys and the values of each key head, then the queries that are kept.
func (s *headState[T]) AppendBinary(b []byte) ([]byte, error) {
	w := NewSnapshot[T](b, s.w.identity(), s.w.parameterSum(), &s.shape, int64(s.tokens), false)
	for _, exist := range s.exist {
		w.Flags(exist)
	}
	for i := range s.k {
		snapshot.WriteElements(w, s.k[i])
		snapshot.WriteElements(w, s.v[i])
	}
	for i := range s.q {
		snapshot.WriteElements(w, s.q[i])
	}
	return w.End(), nil
}

func restoreHeadState[T tensor.Float](w *headwise[T], data []byte) (State[T], error) {
	sh, tokens, r, err := ReadSnapshot[T](data, w.identity(), w.parameterSum())
	if err != nil {
		return nil, err
	}
	if err := w.checkShape(&sh); err != nil {
		return nil, err
	}
	one := float64(tokens) * float64(sh.D+sh.Dv) * float64(scratch.ElementSize[T]())
	asked := 0.0
	if _, is := w.Headwise.(Remembering); is {
		asked = float64(sh.H) * float64(tokens) * float64(sh.D) * float64(scratch.ElementSize[T]())
	}
	if err := r.Need(float64(sh.B) * (float64(tokens) + float64(sh.Hkv)*one + asked)); err != nil {
		return nil, err
	}
	s := newHeadState(w, sh)
	s.tokens = int(tokens)
	for b := range s.exist {
		s.exist[b] = make([]bool, tokens)
		r.Flags(s.exist[b])
	}
	for i := range s.k {
		s.k[i], s.v[i] = make([]T, s.tokens*sh.D), make([]T, s.tokens*sh.Dv)
		snapshot.ReadElements(r, s.k[i])
		snapshot.ReadElements(r, s.v[i])
	}
	for i := range s.q {
		s.q[i] = make([]T, s.tokens*sh.D)
		snapshot.ReadElements(r, s.q[i])
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return s, nil
}

// identity is that of the mechanism's states.
func (w *headwise[T]) identity() Identity { return Identity{cacheKind, w.name(), w.Setting()} }

func (w *headwise[T]) parameterSum() (sum snapshot.ParameterSum) {
	for _, x := range slices.Concat(w.Params().All(), w.Constants().All()) {
		sum = snapshot.AddParameters(sum, x.Data)
	}
	return sum
}
