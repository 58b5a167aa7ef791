package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// A state of degree 1 whose chunks have one token has nothing but its moments
// between tokens, and these are few. So a token's query is answered and its key
// taken in while they are read once (kernel.Table.Renew), with the bits of a chunk
// that is opened, read and closed.

// canFuseSteps reports that states of shape s go that way, where their chunks have one
// token.
func (e *engine[T]) canFuseSteps(s *Shape) bool {
	spec := &e.spec
	return !spec.isPairwise() && spec.isDegree1() && spec.BuiltinDecay == nil &&
		s.H == s.Hkv && s.Carry == Rounded && spec.features(spec.width(s.D)) <= features.BlockSize
}

// fusedStepper is what the tokens of a state share.
type fusedStepper[T tensor.Float] struct {
	t      *kernel.Table[T]
	u      *headTask[T] // of any head
	count  int          // features
	lead   int          // features before the components of a row, 0 or 1: the constant
	ld     int          // stride of the moments' rows
	c0, c1 T
	weight []T // [F] of the features; nil: they are a row's components

	a, q, x []T // [F] a query's weighted features, and a query and a key, without the constant and with it
	y       []T // [ld] a value, where it is no whole number of vectors
	w       []T // weights that are not read
}

// newFusedStepper returns the buffers for n tokens of heads like the head of u, in memory of
// ar.
func (u *headTask[T]) newFusedStepper(ar *arena.Arena, m *features.Monomials[T], n int) fusedStepper[T] {
	r := fusedStepper[T]{t: u.t, u: u, count: m.Count, lead: m.Count - u.da, ld: kernel.Pad(u.dv), c0: T(u.spec.Coef[0]), c1: T(u.spec.Coef[1])}
	r.y, r.w = arena.TakeZeros[T](ar, r.ld), arena.Take[T](ar, n)
	if r.lead == 0 && allOnes(m.Weights) {
		return r
	}
	r.weight = m.Weights
	r.a, r.q, r.x = arena.Take[T](ar, m.Count), arena.Take[T](ar, m.Count), arena.Take[T](ar, m.Count)
	if r.lead > 0 {
		r.a[0], r.q[0], r.x[0] = m.Weights[0], 0, 1
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

// tokens sets rows o [n,ld], ldo apart, to numerators and dens [n] to denominators.
// queries [n] are prepared and ld apart. It then adds the prepared keys [n], ld apart,
// and values [n], ldv apart, to the moments s and z. The moments of the next token lie
// next elements on: 0 for tokens of one head.
func (r *fusedStepper[T]) tokens(n int, o []T, ldo int, queries, keys []T, ld int, values []T, ldv int, s, z []T, next int, dens []T) {
	if r.weight == nil && r.u.dv == r.ld {
		r.t.Renew(n, r.ld, r.count, o, ldo, queries, queries, keys, ld, values, ldv, s, r.ld, z, next, r.c0, r.c1, dens, r.w)
		return
	}
	for i := range n {
		query, key, value := queries[i*ld:][:r.u.da], keys[i*ld:][:r.u.da], values[i*ldv:][:r.u.dv]
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
		r.t.Renew(1, r.ld, r.count, o[i*ldo:], 0, a, q, x, 0, value, 0, s[i*next:], r.ld, z[i*next:], 0, r.c0, r.c1, dens[i:], r.w)
	}
}

// invertDen returns the factor of numerators for the denominator den.
func (r *fusedStepper[T]) invertDen(den T) T {
	return r.u.invertDen(r.u.spec.denominator(den, T(r.u.spec.Eps)))
}

// canFuseSteps reports that the tokens of the task from now on go that way: s has
// moments and nothing else, and every token its query and a key.
func (s *chunkScan[T]) canFuseSteps() bool {
	u := s.u
	return s.c == 1 && s.n == 0 && s.moments.NonEmpty && s.moments.Residual == nil && s.ages == nil && !s.dropsAxis && u.mask == nil && len(u.q) == 1 && u.n == u.m &&
		u.spec.isDegree1() && s.m.Count <= features.BlockSize
}

// fuseSteps takes in and answers the task's tokens from j on.
func (s *chunkScan[T]) fuseSteps(j int) {
	u := s.u
	keys, queries := u.rows().keySide(), u.rows().querySide(0)
	mark := u.ar.Mark()
	r := u.newFusedStepper(u.ar, s.m, stretch)
	k, q := u.linear().takeScratch(stretch*u.da), u.linear().takeScratch(stretch*u.da)
	o, dens := u.linear().takeScratch(stretch*r.ld), u.linear().takeScratch(stretch)
	for ; j < u.m; j += stretch {
		n := min(stretch, u.m-j)
		u.rows().prepareRows(k, u.da, &keys, j, j+n)
		u.rows().prepareRows(q, u.da, &queries, j, j+n)
		r.tokens(n, o, r.ld, q, k, u.da, u.v.Data[j*u.v.Stride:], u.v.Stride, s.moments.S, s.moments.Z, 0, dens)
		for i, den := range dens[:n] {
			u.den[0][j+i] = u.spec.denominator(den, T(u.spec.Eps))
			r.t.Scale(u.o[0].Row(j+i), r.invertDen(den), o[i*r.ld:][:r.ld])
		}
		u.noteNonFinite(0, j, j+n)
	}
	u.ar.Reset(mark)
}

// allHeadsClosed reports that all heads hold only moments, so that a token need not check each
// head. Every other change of the heads resets this knowledge.
func (s *recurrentState[T]) allHeadsClosed() bool {
	if s.hasClosedCount {
		return true
	}
	if !s.byHead {
		return false
	}
	for _, h := range s.heads {
		if !h.moments.NonEmpty || h.n != 0 || h.ages != nil {
			return false
		}
	}
	s.hasClosedCount = len(s.heads) > 0
	return s.hasClosedCount
}

// fuseStepHeads is renew for one token of heads lo ≤ i < hi, counted head by head. All of
// these heads hold only moments.
func (s *recurrentState[T]) fuseStepHeads(lo, hi int, out tensor.Heads[T], c *Call[T], rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	u, n := s.heads[0].u, s.shape.B
	r := u.newFusedStepper(ar, s.heads[0].m, n)
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
		i, next := h*n+b0, s.moments.size
		moments := s.moments.data[i*next:]
		r.tokens(b1-b0, o[b0*ldo:], ldo, rows.query(i), rows.key(i), rows.ld, v[b0*c.V.SB:], c.V.SB, moments, moments[size:], next, factors[b0:])
		for b := b0; b < b1; b++ {
			factors[b] = r.invertDen(factors[b])
		}
		r.t.ScaleRows(to[b0*out.SB:], out.SB, o[b0*ldo:], ldo, out.D, factors[b0:b1])
	}
}
