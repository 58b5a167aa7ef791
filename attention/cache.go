package attention

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// cache is the state of softmax: all keys, prepared, and all values. Queries
// meet them through the direct form, in the blocks that a single call has.
type cache[T tensor.Float] struct {
	e      *engine[T]
	shape  Shape
	tokens int
	exist  [][]bool       // [B][tokens]
	holes  bool           // some do not
	heads  []cacheHead[T] // [B·Hkv]

	noticed notices
}

// cacheHead is one key head, and the unit that works on it.
type cacheHead[T tensor.Float] struct {
	unit *unit[T]
	rows keyRows[T]
	ages *ages // nil: no decay
}

// cachePanel is the number of keys of a panel of the cache. A token reads the
// panels, and then the values, from end to end.
const cachePanel = 64

func newCache[T tensor.Float](e *engine[T], s Shape) *cache[T] {
	s.Chunk, s.Carry = 0, Rounded // there are no sums
	c := &cache[T]{e: e, shape: s, exist: make([][]bool, s.B), heads: make([]cacheHead[T], s.B*s.Hkv)}
	for i := range c.heads {
		h := &c.heads[i]
		h.unit = e.stateUnit(&s)
		h.unit.noticed = &c.noticed
		h.rows.panel, h.rows.ldb, h.rows.ldv = cachePanel, cachePanel, kernel.Pad(s.Dv)
	}
	return c
}

func (s *cache[T]) Absorb(c *Call[T]) error { return CheckedAbsorb(c, s) }

func (s *cache[T]) Read(out tensor.Heads[T], c *Call[T]) error { return CheckedRead(out, c, s) }

func (s *cache[T]) Step(out tensor.Heads[T], c *Call[T]) error { return CheckedStep(out, c, s) }

func (s *cache[T]) StateShape() *Shape { return &s.shape }

func (s *cache[T]) watch() *notices { return &s.noticed }

func (s *cache[T]) Refuse(c *Call[T]) error { return s.e.refuseFading(c) }

// Run takes in m tokens and answers n queries, in every head. With both, query
// i does not see the tokens after its own.
func (s *cache[T]) Run(out tensor.Heads[T], c *Call[T], n, m int) {
	for b := range s.exist {
		s.exist[b] = scratch.Grow(s.exist[b], m)
		for j := range m {
			exists := c.KeyMask == nil || c.KeyMask[b*m+j]
			s.exist[b][s.tokens+j] = exists
			s.holes = s.holes || !exists
		}
	}
	if c.HasDecay() {
		s.startAges()
	}
	ar := arena.Acquire()
	defer ar.Release()
	var rows tokenRows[T]
	if max(n, m) == 1 {
		rows = s.e.tokenRows(ar, &s.shape, c, n, m)
	}
	work, _ := s.e.count(n, s.tokens+m, s.shape.D, s.shape.Dv, false, 1)
	work *= float64(s.shape.B * s.shape.H)
	for i := 0; i < len(s.heads) && rows.x == nil; i++ {
		s.heads[i].unit.workers = workers(len(s.heads), work, work)
	}
	runHeads(len(s.heads), work, stateHeads[T]{s, out, c, n, m, rows})
	s.tokens += m
}

// startAges has the state count ages from now on.
func (s *cache[T]) startAges() {
	for i := range s.heads {
		if h := &s.heads[i]; h.ages == nil {
			h.ages = lateAges(s.tokens, s.exist[i/s.shape.Hkv][:s.tokens])
		}
	}
}

// decays reports that the state has met a decay.
func (s *cache[T]) decays() bool { return len(s.heads) > 0 && s.heads[0].ages != nil }

// do is run for key heads lo ≤ i < hi; a single token has its prepared rows in
// rows.
func (s *cache[T]) do(lo, hi int, out tensor.Heads[T], c *Call[T], n, m int, rows tokenRows[T]) {
	for i := lo; i < hi; i++ {
		s.head(i, out, c, n, m, rows)
	}
}

// head is do for key head i.
func (s *cache[T]) head(i int, out tensor.Heads[T], c *Call[T], n, m int, rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	h := &s.heads[i]
	u := h.unit
	u.bind(ar, &s.shape, i, out, c, n, m)
	if m > 0 {
		h.rows.grow(u.da, s.tokens, s.tokens+m)
		u.copyV(h.rows.v[s.tokens*h.rows.ldv:], h.rows.ldv, 0, m)
		if rows.x == nil {
			h.rows.put(u, s.tokens, 0, m)
		} else {
			h.rows.putToken(u.da, s.tokens, rows.key(i))
		}
	}
	for j := 0; j < m && h.ages != nil; j++ {
		h.ages.add(u.rate(j), u.exists(j))
	}
	if n == 0 {
		return
	}
	// Queries are prepared by their place in the call, and see all keys so far.
	all := *u
	all.m, all.mask, all.ages = s.tokens+m, nil, h.ages
	if s.holes {
		all.mask = s.exist[i/s.shape.Hkv]
	}
	all.causal, all.off = m > 0, s.tokens
	if rows.x != nil {
		// Rows of one token are columns that lie one apart.
		all.attend(&h.rows, rows.query(i*len(u.q)), 1, 0, 1)
		return
	}
	long := all // a copy that may leave this goroutine, where a token's stays
	u.attendAs(&long, &h.rows)
}

// grow makes room for keys tokens ≤ j < end.
func (x *keyRows[T]) grow(da, tokens, end int) {
	panels := func(n int) int { return (n + x.panel - 1) / x.panel }
	x.bt = scratch.Grow(x.bt, (panels(end)-panels(tokens))*da*x.ldb)
	x.v = scratch.Grow(x.v, (end-tokens)*x.ldv)
}

// putToken is put for a single token whose key is prepared.
func (x *keyRows[T]) putToken(da, at int, key []T) {
	to := x.panelOf(at, da)[at%x.panel:]
	for c, y := range key[:da] {
		to[c*x.ldb] = y
	}
}

// each calls f with the prepared keys of the first tokens in the order that
// snapshots have: blocks of keyBlock keys, in these channel by channel.
func (x *keyRows[T]) each(tokens, da int, f func(x []T)) {
	for j0 := 0; j0 < tokens; j0 += keyBlock {
		j1 := min(j0+keyBlock, tokens)
		for c := range da {
			for j := j0; j < j1; j += x.panel {
				f(x.panelOf(j, da)[c*x.ldb:][:min(x.panel, j1-j)])
			}
		}
	}
}

func (s *cache[T]) Clone() State[T] {
	c := newCache(s.e, s.shape)
	c.tokens, c.holes = s.tokens, s.holes
	for b := range s.exist {
		c.exist[b] = slices.Clone(s.exist[b])
	}
	for i := range s.heads {
		c.heads[i].rows.bt = slices.Clone(s.heads[i].rows.bt)
		c.heads[i].rows.v = slices.Clone(s.heads[i].rows.v)
		c.heads[i].ages = s.heads[i].ages.clone(0)
	}
	return c
}

func (s *cache[T]) Reset() {
	s.tokens, s.holes = 0, false
	for b := range s.exist {
		s.exist[b] = s.exist[b][:0]
	}
	for i := range s.heads {
		rows := &s.heads[i].rows
		rows.bt, rows.v = rows.bt[:0], rows.v[:0]
		s.heads[i].ages = nil
	}
}

func (s *cache[T]) Tokens() int64 { return int64(s.tokens) }

func (s *cache[T]) Bytes() int64 {
	var elements, flags int
	var ages int64
	for b := range s.exist {
		flags += cap(s.exist[b])
	}
	for i := range s.heads {
		elements += cap(s.heads[i].rows.bt) + cap(s.heads[i].rows.v)
		ages += s.heads[i].ages.bytes()
	}
	return int64(elements)*scratch.ElementSize[T]() + int64(flags) + ages
}

// AppendBinary appends a snapshot: after the header the flags of each batch
// row, then each head's number of keys, its prepared keys [da, tokens] block by
// block, its values [tokens, Dv] and with decay their ages.
func (s *cache[T]) AppendBinary(b []byte) ([]byte, error) {
	w := NewSnapshot[T](b, s.e.identity(), s.e.parameterSum(), &s.shape, int64(s.tokens), s.decays())
	for _, exist := range s.exist {
		w.Flags(exist)
	}
	da := s.e.spec.width(s.shape.D)
	for i := range s.heads {
		w.Int(int64(s.tokens))
		rows := &s.heads[i].rows
		rows.each(s.tokens, da, func(x []T) { snapshot.WriteElements(w, x) })
		for j := range s.tokens {
			snapshot.WriteElements(w, rows.v[j*rows.ldv:][:s.shape.Dv])
		}
		if ages := s.heads[i].ages; ages != nil {
			ages.write(w, s.tokens)
		}
	}
	return w.End(), nil
}

// restoreCache reads what AppendBinary wrote after the header.
func restoreCache[T tensor.Float](e *engine[T], s Shape, tokens int64, r *snapshot.Reader) (*cache[T], error) {
	da := e.spec.width(s.D)
	head := 8 + float64(tokens)*float64(da+s.Dv)*float64(scratch.ElementSize[T]())
	if r.Decay {
		head += agesBytes(float64(tokens))
	}
	if err := r.Need(float64(s.B) * (float64(tokens) + float64(s.Hkv)*head)); err != nil {
		return nil, err
	}
	c := newCache(e, s)
	c.tokens = int(tokens)
	for b := range c.exist {
		c.exist[b] = make([]bool, tokens)
		r.Flags(c.exist[b])
		c.holes = c.holes || slices.Contains(c.exist[b], false)
	}
	for i := range c.heads {
		if n := r.Int(); n != tokens {
			r.Fail("head %d has %d keys, the state has %d tokens", i, n, tokens)
		}
		rows := &c.heads[i].rows
		rows.grow(da, 0, c.tokens)
		rows.each(c.tokens, da, func(x []T) { snapshot.ReadElements(r, x) })
		clear(rows.v)
		for j := range c.tokens {
			snapshot.ReadElements(r, rows.v[j*rows.ldv:][:s.Dv])
		}
		if r.Decay {
			c.heads[i].ages = readAges(r, c.tokens, c.tokens)
		}
	}
	return c, r.Err
}
