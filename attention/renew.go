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
	return !spec.pairwise() && spec.firstDegree() && spec.Forget == nil &&
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

// token sets o [ld] to the numerators of a prepared query [da] that comes with a
// prepared key and its value, returns their denominator, and puts the two into moments.
func (r *renewer[T]) token(o, query, key, value, s, z []T) (den T) {
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
	return r.t.Renew(o, a[:r.count], q, x, value, s, r.ld, z, r.c0, r.c1)
}

// over is what numerators are multiplied with.
func (r *renewer[T]) over(den T) T { return r.u.over(r.u.spec.total(den, T(r.u.spec.Eps))) }

// renews reports that the tokens of the unit from now on go that way: s has
// moments and nothing else, and every token its query and a key.
func (s *stream[T]) renews() bool {
	u := s.u
	return s.c == 1 && s.n == 0 && s.past.some && s.past.low == nil && s.ages == nil && !s.flat && u.mask == nil && len(u.q) == 1 && u.n == u.m &&
		u.spec.firstDegree() && s.m.count <= featureBlock
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
			den := r.token(r.o, q[i*u.da:][:u.da], k[i*u.da:][:u.da], u.v.Row(j+i), s.past.s, s.past.z)
			r.t.Scale(u.o[0].Row(j+i), r.over(den), r.o)
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
	if !s.byHead {
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

// renewHeads is renew for a token of heads lo ≤ i < hi, counted head by head, all of
// which have moments alone.
func (s *sums[T]) renewHeads(lo, hi int, out tensor.Heads[T], c *Call[T], rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	u, n := s.heads[0].u, s.shape.B
	r := u.renewer(ar, s.heads[0].m)
	size := r.count * r.ld
	o, ldo := arena.Take[T](ar, n*r.ld), r.ld
	factors := arena.Take[T](ar, n)
	for ; lo < hi; lo = (lo/n + 1) * n {
		b0, h := lo%n, lo/n
		b1 := min(n, b0+hi-lo)
		to, v := out.Data[h*out.SH:], c.V.Data[h*c.V.SH:]
		if out.D == r.ld {
			o, ldo = to, out.SB
		}
		for b := b0; b < b1; b++ {
			i := h*n + b
			sums := s.moments.at(i, size+r.count)
			den := r.token(o[b*ldo:][:r.ld], rows.query(i)[:u.da], rows.key(i)[:u.da], v[b*c.V.SB:][:c.V.D], sums[:size], sums[size:])
			factors[b] = r.over(den)
		}
		r.t.ScaleRows(to[b0*out.SB:], out.SB, o[b0*ldo:], ldo, out.D, factors[b0:b1])
	}
}
