package headwise

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// PastQueryReader is a causal Function whose outputs depend on earlier queries. Its states keep
// these queries and pass them in Head.PastQueries.
type PastQueryReader interface{ NeedsPastQueries() }

// keyState is the state of a causal Function without a state of its own: all keys, rotated,
// and all values.
type keyState[T tensor.Float] struct {
	w      *driver[T]
	shape  attention.Shape
	tokens int
	exist  [][]bool // [B][tokens] unmasked tokens
	k, v   [][]T    // [B·Hkv][tokens, D] and [tokens, Dv]; zeros where a token does not exist
	q      [][]T    // [B·H][tokens, D] of a PastQueryReader, rotated; nil for others
}

func newKeyState[T tensor.Float](w *driver[T], s attention.Shape) *keyState[T] {
	s = attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}
	n := s.B * s.Hkv
	st := &keyState[T]{w: w, shape: s, exist: make([][]bool, s.B), k: make([][]T, n), v: make([][]T, n)}
	if _, is := w.Function.(PastQueryReader); is {
		st.q = make([][]T, s.B*s.H)
	}
	return st
}

func (s *keyState[T]) Absorb(c *attention.Call[T]) error { return attention.CheckedAbsorb(c, s) }

func (s *keyState[T]) Read(out tensor.Heads[T], c *attention.Call[T]) error {
	return attention.CheckedRead(out, c, s)
}

func (s *keyState[T]) Step(out tensor.Heads[T], c *attention.Call[T]) error {
	return attention.CheckedStep(out, c, s)
}

func (s *keyState[T]) StateShape() *attention.Shape { return &s.shape }

func (s *keyState[T]) Refuse(c *attention.Call[T]) error { return s.w.refuseCall(c) }

func (s *keyState[T]) Run(out tensor.Heads[T], c *attention.Call[T], n, m int) {
	past := s.tokens
	if m == 0 {
		s.setOutputs(out, c, func(int) int { return past })
		return
	}
	s.appendTokens(c, n > 0)
	if n > 0 {
		s.setOutputs(out, c, func(i int) int { return past + i + 1 })
	}
}

// appendTokens appends keys and values, and queries if asked is set.
func (s *keyState[T]) appendTokens(c *attention.Call[T], asked bool) {
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
		k := RotateAndMask(ar, c.K.At(b, kh), mask, c.Rope, 0)
		v := RotateAndMask(ar, c.V.At(b, kh), mask, nil, 0)
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
		q := RotateAndMask(ar, c.Q.At(i/s.shape.H, i%s.shape.H), nil, c.Rope, 0)
		s.q[i] = append(s.q[i], q.Data[:m*s.shape.D]...)
		ar.Reset(mark)
	}
	s.tokens += m
}

// setOutputs sets out for the queries of c. Query i sees the first seen(i) keys.
func (s *keyState[T]) setOutputs(out tensor.Heads[T], c *attention.Call[T], seen func(i int) int) {
	one := s.shape
	one.N, one.M, one.Causal = 1, s.tokens, true
	units := s.shape.B * s.shape.H
	work := float64(units*c.Q.N) * s.w.Cost(one).FLOPs
	par.RunEach(units, work, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		b, head := i/s.shape.H, i%s.shape.H
		kv := b*s.shape.Hkv + head/(s.shape.H/s.shape.Hkv)
		h := s.w.takeHead()
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
				Q: RotateAndMask(ar, c.Q.At(b, head).Slice(n, n+1), nil, c.Rope, n),
				K: tensor.Mat[T]{Data: s.k[kv], Rows: m, Cols: s.shape.D, Stride: s.shape.D},
				V: tensor.Mat[T]{Data: s.v[kv], Rows: m, Cols: s.shape.Dv, Stride: s.shape.Dv},

				Causal: true, Offset: m - 1, Shift: m - 1, Head: head, Scratch: ar, Table: kernel.Active[T](),
			}
			if slices.Contains(exist, false) {
				h.Mask = exist
			}
			if s.q != nil {
				h.PastQueries = tensor.Mat[T]{Data: s.q[i], Rows: m - 1, Cols: s.shape.D, Stride: s.shape.D}
			}
			h.Out = scratch.ForOutput(ar, row)
			s.w.Function.Forward(h)
			scratch.CopyMat(row, h.Out)
			ar.Reset(mark)
		}
	})
}

// Merge appends the keys and values of next to s. The bits are the same as for one
// stream.
func (s *keyState[T]) Merge(next attention.State[T]) error {
	n, err := attention.Mergeable(s.w.identity(), &s.shape, next, func(n *keyState[T]) (attention.Identity, *attention.Shape) { return n.w.identity(), &n.shape })
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

func (s *keyState[T]) Clone() attention.State[T] {
	c := newKeyState(s.w, s.shape)
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

func (s *keyState[T]) Reset() {
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

func (s *keyState[T]) Tokens() int64 { return int64(s.tokens) }

func (s *keyState[T]) Bytes() int64 {
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
func (s *keyState[T]) AppendBinary(b []byte) ([]byte, error) {
	w := attention.NewSnapshot[T](b, s.w.identity(), s.w.parameterSum(), &s.shape, int64(s.tokens), false)
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

func restoreKeyState[T tensor.Float](w *driver[T], data []byte) (attention.State[T], error) {
	sh, tokens, r, err := attention.ReadSnapshot[T](data, w.identity(), w.parameterSum())
	if err != nil {
		return nil, err
	}
	if err := w.checkShape(&sh); err != nil {
		return nil, err
	}
	one := float64(tokens) * float64(sh.D+sh.Dv) * float64(scratch.ElementSize[T]())
	asked := 0.0
	if _, is := w.Function.(PastQueryReader); is {
		asked = float64(sh.H) * float64(tokens) * float64(sh.D) * float64(scratch.ElementSize[T]())
	}
	if err := r.Need(float64(sh.B) * (float64(tokens) + float64(sh.Hkv)*one + asked)); err != nil {
		return nil, err
	}
	s := newKeyState(w, sh)
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

// cacheKind is the kind of state in snapshots, as for the cache of other mechanisms.
const cacheKind = "keys and values"

// identity returns the identity of the mechanism's states.
func (w *driver[T]) identity() attention.Identity {
	return attention.Identity{Kind: cacheKind, Name: w.name(), Setting: w.Setting()}
}

func (w *driver[T]) parameterSum() (sum snapshot.ParameterSum) {
	for _, x := range slices.Concat(w.Params().All(), w.Constants().All()) {
		sum = snapshot.AddParameters(sum, x.Data)
	}
	return sum
}
