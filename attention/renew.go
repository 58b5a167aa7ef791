package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// A state of degree 1 whose chunks have one token has nothing but its moments
// between tokens, and these are few. So a token's query is answered and its key
// taken in while they are read once (kernel.Table.Renew), with the bits of a chunk
// that is opened, read and closed.

// renews reports that states of shape s go that way, where their chunks have one
// token.
func (e *engine[T]) renews(s *Shape) bool {
	spec := &e.spec
	return !spec.pairwise() && spec.degree() == 1 && !spec.OutputNorm && spec.Forget == nil &&
		s.H == s.Hkv && s.Carry == Rounded && spec.features(spec.width(s.D)) <= featureBlock
}

// renewer is what the tokens of a state share.
type renewer[T tensor.Float] struct {
	t      *kernel.Table[T]
	u      *unit[T] // of any head
	count  int      // features
	lead   int      // of them before those of a row itself, 0 or 1: the constant
	ld     int      // stride of the moments' rows
	c0, c1 T
	weight []T // [F] of the features; nil: they are a row's components

	a, q, x []T // [F] a query's weighted features, and a query and a key, without the constant and with it
	y, o    []T // [ld] a value, where it is no whole number of vectors, and numerators
}

// renewer returns what heads like that of u need, in memory of ar.
func (u *unit[T]) renewer(ar *arena.Arena, m *monomials[T]) renewer[T] {
	r := renewer[T]{t: u.t, u: u, count: m.count, lead: m.count - u.da, ld: kernel.Pad(u.dv), c0: T(u.spec.Coef[0]), c1: T(u.spec.Coef[1])}
	r.y, r.o = arena.Zeros[T](ar, r.ld), arena.Take[T](ar, r.ld)
	if r.lead == 0 && allOnes(m.weight) {
		return r
	}
	r.weight = m.weight
	r.a, r.q, r.x = arena.Take[T](ar, m.count), arena.Take[T](ar, m.count), arena.Take[T](ar, m.count)
	if r.lead > 0 {
		r.a[0], r.q[0], r.x[0] = m.weight[0], 0, 1
	}
	return r
}

func allOnes[T tensor.Float](x []T) bool {
	for _, y := range x {
		if y != 1 {
			return false
		}
	}
	return true
}

// token sets out [Dv] to the output of a prepared query [da] that comes with a
// prepared key and its value, and puts these into moments.
func (r *renewer[T]) token(out, query, key, value, s, z []T) {
	a, q, x := query, query, key
	if r.weight != nil {
		a, q, x = r.a, r.q, r.x
		r.t.Mul(a[r.lead:], r.weight[r.lead:], query)
		copy(q[r.lead:], query)
		copy(x[r.lead:], key)
	}
	if len(value) < r.ld {
		copy(r.y, value)
		value = r.y
	}
	den := r.t.Renew(r.o, a[:r.count], q, x, value, s, r.ld, z, r.c0, r.c1)
	r.t.Scale(out, r.u.over(r.u.spec.total(den, T(r.u.spec.Eps))), r.o)
}

// renews reports that the tokens of the unit from now on go that way: s has
// moments and nothing else, and every token its query and a key.
func (s *stream[T]) renews() bool {
	u := s.u
	return s.c == 1 && s.n == 0 && s.past.some && s.past.low == nil && s.ages == nil && !s.flat && u.mask == nil && len(u.q) == 1 && u.n == u.m &&
		u.spec.degree() == 1 && !u.spec.OutputNorm && s.m.count <= featureBlock
}

// renew takes in and answers the unit's tokens from j on.
func (s *stream[T]) renew(j int) {
	u := s.u
	keys, queries := u.keySide(), u.querySide(0)
	mark := u.ar.Mark()
	r := u.renewer(u.ar, s.m)
	k, q := u.take(stretch*u.da), u.take(stretch*u.da)
	for ; j < u.m; j += stretch {
		n := min(stretch, u.m-j)
		u.prepareRows(k, u.da, &keys, j, j+n)
		u.prepareRows(q, u.da, &queries, j, j+n)
		for i := range n {
			r.token(u.o[0].Row(j+i), q[i*u.da:][:u.da], k[i*u.da:][:u.da], u.v.Row(j+i), s.past.s, s.past.z)
		}
	}
	u.ar.Reset(mark)
}

// even reports that the heads have moments alone, so that a token of all of them
// needs to look at none. What is known of them is forgotten by all that changes
// them in another way.
func (s *sums[T]) even() bool {
	if s.known {
		return true
	}
	if s.shape.Chunk != 1 || !s.e.renews(&s.shape) {
		return false
	}
	for _, h := range s.heads {
		if !h.past.some || h.n != 0 || h.ages != nil {
			return false
		}
	}
	s.known = len(s.heads) > 0
	return s.known
}

// renewHeads is renew for a token of heads lo ≤ i < hi, all of which have moments
// alone.
func (s *sums[T]) renewHeads(lo, hi int, out tensor.Heads[T], c *Call[T], rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	u := s.heads[0].u
	r := u.renewer(ar, s.heads[0].m)
	v, ld := &c.V, r.count*r.ld
	for i := lo; i < hi; i++ {
		b, h := i/s.shape.H, i%s.shape.H
		sums := s.moments.at(i, ld+r.count)
		r.token(out.Data[b*out.SB+h*out.SH:][:out.D], rows.query(i)[:u.da], rows.key(i)[:u.da], v.Data[b*v.SB+h*v.SH:][:v.D], sums[:ld], sums[ld:])
	}
}
