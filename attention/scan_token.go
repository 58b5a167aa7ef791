package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// stepToken takes in the key of one token, if the task has one, and then answers its
// queries, if it has any; rows of q lie ldq apart.
func (s *chunkScan[T]) stepToken(key, q []T, ldq int) {
	u := s.u
	if u.m > 0 {
		for c, y := range key[:u.da] {
			s.x[(c+1)*s.ld+s.n] = y
		}
		s.absorbValues(0, 1)
		s.decay().age(0, 1)
		s.appendToken(u.hasKey(0))
	}
	for g := 0; g < len(u.q) && u.n > 0; g += kernel.Lanes {
		s.answerToken(g, min(kernel.Lanes, len(u.q)-g), q[g*ldq:], ldq)
	}
	if s.n == s.c {
		s.closeChunk()
	}
}

// answerToken sets the output of the token for n ≤ kernel.Lanes heads from g on. The heads
// share one read of the state.
func (s *chunkScan[T]) answerToken(g, n int, q []T, ldq int) {
	u := s.u
	mark := u.ar.Mark()
	defer u.ar.Reset(mark)
	ld := s.moments.Stride
	o, den := arena.TakeZeros[T](u.ar, n*ld), arena.TakeZeros[T](u.ar, n)
	if s.ages != nil {
		s.readMomentsFew(q, ldq, n, o, den)
		s.decay().fadeRows(o, den, n, s.n-1)
	}
	if s.n > 0 {
		b := block[T]{a: q, lda: ldq, bt: s.x[s.ld:], panel: s.c, ldb: s.ld, nq: n, nk: s.n, diag: s.n, ages: s.ages, rowPlace: s.n}
		if s.hasMasked {
			b.mask = s.valid[:s.n]
		}
		u.direct().polyBlock(&b, s.v, s.ldv, o, ld, den)
	}
	if s.ages == nil {
		s.readMomentsFew(q, ldq, n, o, den)
	}
	for r := range n {
		if s.first == unseen {
			u.linear().clearUnseen(g+r, 0, 1)
			continue
		}
		den[r] = u.spec.denominator(den[r], s.decay().eps(s.n-1))
		u.den[g+r][0] = den[r]
		over := u.invertDen(den[r])
		if u.spec.OutputNorm {
			over *= u.outputFactor(s.countClosedKeys() + float64(s.countOpenKeys(s.n)))
		}
		u.t.Scale(u.o[g+r].Row(0), over, o[r*ld:])
	}
}

// readMomentsFew adds what the moments hold for n ≤ kernel.Lanes queries, the rows of
// q.
func (s *chunkScan[T]) readMomentsFew(q []T, ldq, n int, o, den []T) {
	if s.moments.NonEmpty {
		s.moments.ReadFewTokens(s.u.ar, s.m, q, ldq, n, o, den)
	}
}

// newDegree1Step returns what the heads of a step share, for chunks of c tokens, in the
// task's scratch memory.
func (u *headTask[T]) newDegree1Step(c int) degree1Step[T] {
	f := degree1Step[T]{t: u.t, u: u, sum: arena.Take[T](u.ar, 1), coef: u.direct().coefficients()}
	f.weight, f.first = u.walker.Weights, u.walker.First
	f.x, f.phi = arena.Take[T](u.ar, u.da+1), arena.Take[T](u.ar, len(f.weight))
	f.w, f.o = arena.Take[T](u.ar, kernel.Pad(c)), arena.Take[T](u.ar, kernel.Pad(u.dv))
	return f
}

// absorbToken puts a prepared key [da] and its value [Dv] into the open chunk.
func (s *chunkScan[T]) absorbToken(key, value []T, exists bool) {
	column := s.x[s.ld+s.n:]
	for c, y := range key[:s.u.da] {
		column[c*s.ld] = y
	}
	row := s.v[s.n*s.moments.Stride:][:s.moments.Stride]
	k := 0
	if exists {
		k = copy(row, value)
	}
	clear(row[k:])
	s.appendToken(exists)
}

// answerDegree1 sets out [Dv] to the output of a prepared query [da].
func (s *chunkScan[T]) answerDegree1(f *degree1Step[T], q, out []T) {
	if s.first == unseen {
		clear(out)
		return
	}
	t, o, ld := f.t, f.o, s.moments.Stride
	clear(o)
	var den T
	if n := s.n; n > 0 {
		w := f.w[:n]
		t.Block(1, kernel.Pad(n), len(q), q, len(q), 1, s.x[s.ld:], s.ld, f.w, len(f.w), false)
		f.sum[0] = 0
		t.PolyRows(w, w, len(f.w), n, f.coef, f.sum)
		if den = f.sum[0]; s.hasMasked {
			for j, exists := range s.valid[:n] {
				if !exists {
					w[j] = 0
				}
			}
			den = t.Sum(w)
		}
		t.Mix(o, w, n, s.v, ld, nil, 0)
	}
	if s.moments.NonEmpty {
		f.x[0] = 1
		copy(f.x[1:], q)
		t.Mul(f.phi, f.weight, f.x[f.first:])
		den = t.Mix(o, f.phi, features.BlockSize, s.moments.S, ld, s.moments.Z, den)
	}
	over := f.u.invertDen(f.u.spec.denominator(den, T(f.u.spec.Eps)))
	t.Scale(out, over, o)
}

// degree1Step is what the heads of a step of degree 1 share.
type degree1Step[T tensor.Float] struct {
	t      *kernel.Table[T]
	u      *headTask[T] // of any head
	coef   []T          // of the kernel polynomial
	weight []T          // [F] of the features
	first  int          // 1 where there is no constant feature, else 0

	x   []T // [da+1] a query behind a 1
	phi []T // [F] its weighted features
	w   []T // [kernel.Pad(chunk)] its weights of the open chunk's keys
	sum []T // [1] their sum
	o   []T // [kernel.Pad(Dv)] its numerators
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
