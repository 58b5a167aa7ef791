package mechanism

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// scoresState holds the sums of keys and of queries. Absorbed tokens add only to the
// sums of keys, since they bring no queries. A query of Step counts from the first
// unmasked token on. Queries of Read follow each other as queries of Step do, and leave
// the state unchanged.
type scoresState[T tensor.Float] struct {
	x      *Scores[T]
	shape  attention.Shape
	tokens int64
	// Of each batch row: the keys that exist, and the queries.
	keys, queries []int64
	k, q          [][]float64 // [B·Hkv][D], [B·H][D]
}

// NewState returns an empty state for calls of shape s. The error is nil.
func (x *Scores[T]) NewState(s attention.Shape) (attention.State[T], error) {
	return x.newState(s), nil
}

func (x *Scores[T]) newState(s attention.Shape) *scoresState[T] {
	s = attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}
	st := &scoresState[T]{x: x, shape: s, keys: make([]int64, s.B), queries: make([]int64, s.B), k: make([][]float64, s.B*s.Hkv), q: make([][]float64, s.B*s.H)}
	for _, sums := range [][][]float64{st.k, st.q} {
		for i := range sums {
			sums[i] = make([]float64, s.D)
		}
	}
	return st
}

func (s *scoresState[T]) Absorb(c *attention.Call[T]) error { return attention.CheckedAbsorb(c, s) }

func (s *scoresState[T]) Read(out tensor.Heads[T], c *attention.Call[T]) error {
	return attention.CheckedRead(out, c, s)
}

func (s *scoresState[T]) Step(out tensor.Heads[T], c *attention.Call[T]) error {
	return attention.CheckedStep(out, c, s)
}

func (s *scoresState[T]) StateShape() *attention.Shape { return &s.shape }

func (s *scoresState[T]) Refuse(c *attention.Call[T]) error {
	return headwise.RefuseHeadwise(s.x.Name, c)
}

// Run takes the tokens of c one after another: their keys into the sums, their
// queries to outputs, or both.
func (s *scoresState[T]) Run(out tensor.Heads[T], c *attention.Call[T], queries, keys int) {
	n, absorbs, reads := max(queries, keys), keys > 0, queries > 0
	group := s.shape.H / s.shape.Hkv
	work := 4 * float64(s.shape.B*s.shape.H*n*s.x.Rank*(s.shape.D+s.shape.Dv))
	par.RunEach(s.shape.B*s.shape.Hkv, work, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		b, kh := i/s.shape.Hkv, i%s.shape.Hkv
		var mask []bool
		if absorbs && c.KeyMask != nil {
			mask = c.KeyMask[b*n:][:n]
		}
		var k tensor.Mat[T]
		if absorbs {
			k = headwise.RotateAndMask(ar, c.K.Head(b, kh), mask, c.Rope, 0)
		}
		q, sums := make([]tensor.Mat[T], group), make([][]float64, group)
		for g := range q {
			if !reads {
				break
			}
			head := kh*group + g
			q[g], sums[g] = headwise.RotateAndMask(ar, c.Q.Head(b, head), nil, c.Rope, 0), s.q[b*s.shape.H+head]
			if !absorbs {
				sums[g] = append(arena.Take[float64](ar, s.shape.D)[:0], sums[g]...)
			}
		}
		keys, queries := s.keys[b], s.queries[b]
		for j := range n {
			if absorbs && (mask == nil || mask[j]) {
				addTo(s.k[i], k.Row(j))
				keys++
			}
			if !reads {
				continue
			}
			if keys > 0 {
				queries++
			}
			for g := range q {
				head := kh*group + g
				s.answer(ar, head, out.Head(b, head).Row(j), q[g].Row(j), sums[g], s.k[i], queries, keys)
			}
		}
	})
	if !absorbs {
		return
	}
	for b := range s.keys {
		for j := range n {
			if c.KeyMask == nil || c.KeyMask[b*n+j] {
				s.keys[b]++
			}
			if reads && s.keys[b] > 0 {
				s.queries[b]++
			}
		}
	}
	s.tokens += int64(n)
}

// answer sets out for a query of a head, from the sums of the queries before it,
// which it joins, and of the keys.
func (s *scoresState[T]) answer(ar *arena.Arena, head int, out, q []T, sumQ, sumK []float64, queries, keys int64) {
	if keys == 0 {
		clear(out)
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	x, t := s.x, kernel.Active[T]()
	row, both := arena.Take[T](ar, len(q)), arena.TakeZeros[T](ar, 2*x.Rank)
	project := func(to []T, w tensor.Mat[T]) {
		toLength1(row)
		for c, v := range row {
			t.Axpy(to, v, w.Row(c))
		}
	}
	meanOf(row, q, sumQ, int(queries))
	project(both[:x.Rank], x.ofHead(x.We, x.We.Data, head))
	setMean(row, sumK, int(keys))
	project(both[x.Rank:], x.ofHead(x.Wr, x.Wr.Data, head))
	for c := range out {
		out[c] = t.Dot(both, x.matrix(x.Wc.Data, len(out)).Row(c)) + x.Bias.Data[c]
	}
}

const scoresKind = "means of queries and keys"

func (x *Scores[T]) identity() attention.Identity {
	return attention.Identity{Kind: scoresKind, Name: x.Name, Setting: x.ScoresSpec.Setting}
}

func (x *Scores[T]) parameterSum() (sum snapshot.ParameterSum) {
	for _, p := range x.params.All() {
		sum = snapshot.AddParameters(sum, p.Data)
	}
	return sum
}

// Merge adds the sums of next.
func (s *scoresState[T]) Merge(next attention.State[T]) error {
	n, err := attention.Mergeable(s.x.identity(), &s.shape, next, func(n *scoresState[T]) (attention.Identity, *attention.Shape) { return n.x.identity(), &n.shape })
	if err != nil {
		return err
	}
	for i := range s.k {
		addTo(s.k[i], n.k[i])
	}
	for i := range s.q {
		addTo(s.q[i], n.q[i])
	}
	for b := range s.keys {
		s.keys[b] += n.keys[b]
		s.queries[b] += n.queries[b]
	}
	s.tokens += n.tokens
	return nil
}

func (s *scoresState[T]) Clone() attention.State[T] {
	c := s.x.newState(s.shape)
	c.tokens = s.tokens
	copy(c.keys, s.keys)
	copy(c.queries, s.queries)
	for i := range s.k {
		copy(c.k[i], s.k[i])
	}
	for i := range s.q {
		copy(c.q[i], s.q[i])
	}
	return c
}

func (s *scoresState[T]) Reset() {
	s.tokens = 0
	clear(s.keys)
	clear(s.queries)
	for i := range s.k {
		clear(s.k[i])
	}
	for i := range s.q {
		clear(s.q[i])
	}
}

func (s *scoresState[T]) Tokens() int64 { return s.tokens }

func (s *scoresState[T]) Bytes() int64 {
	return 8 * int64(2*s.shape.B+(s.shape.Hkv+s.shape.H)*s.shape.B*s.shape.D)
}

// AppendBinary appends a snapshot: after the header the numbers of keys and of queries
// of each batch row, then the sums of keys, then the sums of queries.
func (s *scoresState[T]) AppendBinary(b []byte) ([]byte, error) {
	w := attention.NewSnapshot[T](b, s.x.identity(), s.x.parameterSum(), &s.shape, s.tokens, false)
	for i := range s.keys {
		w.Int(s.keys[i])
		w.Int(s.queries[i])
	}
	for i := range s.k {
		snapshot.WriteElements(w, s.k[i])
	}
	for i := range s.q {
		snapshot.WriteElements(w, s.q[i])
	}
	return w.End(), nil
}

// RestoreState returns the state of the snapshot data. It returns an error if data is
// damaged or is a state of another mechanism, setting or parameter.
func (x *Scores[T]) RestoreState(data []byte) (attention.State[T], error) {
	sh, tokens, r, err := attention.ReadSnapshot[T](data, x.identity(), x.parameterSum())
	if err != nil {
		return nil, err
	}
	c := &attention.Call[T]{Causal: true}
	c.Q.H, c.Q.D, c.V.D = sh.H, sh.D, sh.Dv
	if err := x.Check(c); err != nil {
		return nil, err
	}
	if err := r.Need(float64(sh.B) * (16 + 8*float64(sh.D)*float64(sh.Hkv+sh.H))); err != nil {
		return nil, err
	}
	s := x.newState(sh)
	s.tokens = tokens
	for b := range s.keys {
		s.keys[b], s.queries[b] = r.Int(), r.Int()
		if s.keys[b] < 0 || s.keys[b] > tokens || s.queries[b] < 0 || s.queries[b] > tokens {
			r.Fail("row %d has %d keys and %d queries, of %d tokens", b, s.keys[b], s.queries[b], tokens)
		}
	}
	for i := range s.k {
		snapshot.ReadElements(r, s.k[i])
	}
	for i := range s.q {
		snapshot.ReadElements(r, s.q[i])
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return s, nil
}
