package attention

import (
	"fmt"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// sums is the state of a kernel polynomial: for each key head the moments of
// the closed chunks, and the keys and values of the open one. Chunks end at
// multiples of their size from the first token on, however tokens arrive, so
// neither the moments nor the outputs depend on the pieces.
type sums[T tensor.Float] struct {
	e      *engine[T]
	shape  Shape
	tokens int64
	heads  []*stream[T] // [B·Hkv]
}

func newSums[T tensor.Float](e *engine[T], s Shape) *sums[T] {
	st := &sums[T]{e: e, shape: s, heads: make([]*stream[T], s.B*s.Hkv)}
	t, width, group := kernel.Active[T](), e.spec.width(s.D), s.H/s.Hkv
	m := newMonomials(t, &e.spec, width)
	for i := range st.heads {
		u := &unit[T]{
			t: t, spec: &e.spec,
			q: make([]tensor.Mat[T], group), o: make([]tensor.Mat[T], group),
			den: make([][]T, group), scale: make([]T, group),
			d: s.D, dv: s.Dv, da: width,
		}
		st.heads[i] = newStream(u, m.share(), e.chunk(s.D, s.Chunk), func(n int) []T { return make([]T, n) })
	}
	return st
}

func (s *sums[T]) Absorb(c *Call[T]) error {
	if err := s.checkKeys(c); err != nil {
		return err
	}
	s.run(tensor.Heads[T]{}, c, 0, c.K.N)
	s.tokens += int64(c.K.N)
	return nil
}

func (s *sums[T]) Read(out tensor.Heads[T], c *Call[T]) error {
	if err := s.checkQueries(&out, c); err != nil {
		return err
	}
	s.run(out, c, c.Q.N, 0)
	return nil
}

func (s *sums[T]) Step(out tensor.Heads[T], c *Call[T]) error {
	if err := s.checkKeys(c); err != nil {
		return err
	}
	if err := s.checkQueries(&out, c); err != nil {
		return err
	}
	if c.Q.N != c.K.N {
		return fmt.Errorf("k: M is %d, a step of q has %d", c.K.N, c.Q.N)
	}
	s.run(out, c, c.Q.N, c.K.N)
	s.tokens += int64(c.K.N)
	return nil
}

// checkKeys reports keys and values that the state cannot take in.
func (s *sums[T]) checkKeys(c *Call[T]) error {
	if err := s.checkCall(c, c.K.N); err != nil {
		return err
	}
	if err := c.checkKeys(); err != nil {
		return err
	}
	switch k, sh := &c.K, &s.shape; {
	case k.B != sh.B:
		return fmt.Errorf("k: B is %d, the state has %d", k.B, sh.B)
	case k.H != sh.Hkv:
		return fmt.Errorf("k: has %d heads, the state has %d", k.H, sh.Hkv)
	case k.D != sh.D:
		return fmt.Errorf("k: D is %d, the state has %d", k.D, sh.D)
	case c.V.D != sh.Dv:
		return fmt.Errorf("v: Dv is %d, the state has %d", c.V.D, sh.Dv)
	}
	return nil
}

// checkQueries reports queries that the state cannot answer.
func (s *sums[T]) checkQueries(out *tensor.Heads[T], c *Call[T]) error {
	if err := s.checkCall(c, c.Q.N); err != nil {
		return err
	}
	q, sh := &c.Q, &s.shape
	if err := q.Check("q"); err != nil {
		return err
	}
	switch {
	case q.B != sh.B:
		return fmt.Errorf("q: B is %d, the state has %d", q.B, sh.B)
	case q.H != sh.H:
		return fmt.Errorf("q: has %d heads, the state has %d", q.H, sh.H)
	case q.D != sh.D:
		return fmt.Errorf("q: D is %d, the state has %d", q.D, sh.D)
	}
	return sameShape("o", out, q.B, q.H, q.N, sh.Dv)
}

// checkCall reports what a state does not know, and rotations that do not
// reach over n tokens.
func (s *sums[T]) checkCall(c *Call[T], n int) error {
	switch r := c.Rope; {
	case c.KeyLens != nil:
		return fmt.Errorf("key_lengths: not defined for a state; use keymask")
	case c.AttnKeep != nil:
		return fmt.Errorf("attn_keep: not defined for a state")
	case c.CuQ != nil:
		return fmt.Errorf("cu_q: not defined for a state")
	case c.CuK != nil:
		return fmt.Errorf("cu_k: not defined for a state")
	case r != nil && r.Half != s.shape.D/2:
		return fmt.Errorf("rope: rotates %d pairs of channels, D is %d", r.Half, s.shape.D)
	case r != nil && r.Rows() < n:
		return fmt.Errorf("rope: has %d rows, the call has %d tokens", r.Rows(), n)
	}
	return nil
}

// run takes in m keys and answers n queries in every head.
func (s *sums[T]) run(out tensor.Heads[T], c *Call[T], n, m int) {
	sh := &s.shape
	_, work := s.e.count(n, m, sh.D, sh.Dv, true, s.e.chunk(sh.D, sh.Chunk))
	work *= float64(sh.B * sh.H)
	if work < par.MinWork {
		// Without a function value, so that a token allocates nothing.
		for i := range s.heads {
			s.head(i, out, c, n, m)
		}
		return
	}
	par.Do(len(s.heads), work, func(i int) { s.head(i, out, c, n, m) })
}

// head is run for key head i.
func (s *sums[T]) head(i int, out tensor.Heads[T], c *Call[T], n, m int) {
	ar := arena.Acquire()
	defer ar.Release()
	st := s.heads[i]
	u := st.u
	b, kh := i/s.shape.Hkv, i%s.shape.Hkv
	u.ar, u.n, u.m, u.rope = ar, n, m, c.Rope
	if m > 0 {
		u.k, u.v, u.mask = c.K.At(b, kh), c.V.At(b, kh), nil
		if c.KeyMask != nil {
			u.mask = c.KeyMask[b*m:][:m]
		}
	}
	if n > 0 {
		for g := range u.q {
			h := kh*len(u.q) + g
			u.q[g], u.o[g] = c.Q.At(b, h), out.At(b, h)
			u.den[g] = arena.Take[T](ar, n)
			u.scale[g] = s.e.spec.scale(u.d, h)
		}
	}
	st.run()
}

// run takes in the unit's keys, each before the query of its place, where there
// are both.
func (s *stream[T]) run() {
	u := s.u
	for j := 0; j < u.m; {
		j1, diag := min(j+s.c-s.n, u.m), s.n
		s.take(j, j1)
		if u.n > 0 {
			s.read(j, j1, diag)
		}
		if s.n == s.c {
			s.close()
		}
		j = j1
	}
	if u.m == 0 {
		for i := 0; i < u.n; i += s.c {
			s.read(i, min(i+s.c, u.n), s.n)
		}
	}
}

func (s *sums[T]) Clone() State[T] {
	c := newSums(s.e, s.shape)
	c.tokens = s.tokens
	for i, from := range s.heads {
		to := c.heads[i]
		copy(to.past.s, from.past.s)
		copy(to.past.z, from.past.z)
		copy(to.x, from.x)
		copy(to.v, from.v)
		copy(to.exist, from.exist)
		to.past.some, to.n, to.holes, to.first = from.past.some, from.n, from.holes, from.first
	}
	return c
}

func (s *sums[T]) Reset() {
	s.tokens = 0
	for _, st := range s.heads {
		st.past.some = false
		st.first = unseen
		st.drop()
	}
}

func (s *sums[T]) Tokens() int64 { return s.tokens }

func (s *sums[T]) Bytes() int64 {
	var elements, flags int
	for i, st := range s.heads {
		if i == 0 {
			elements = len(st.m.weight) // all heads share them
		}
		elements += len(st.past.s) + len(st.past.z) + len(st.x) + len(st.v)
		flags += len(st.exist)
	}
	var z T
	return int64(elements)*int64(unsafe.Sizeof(z)) + int64(flags)
}
