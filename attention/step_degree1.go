package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// At degree 1 the features of a token are its prepared row, after a 1 if the kernel has
// a constant. A head's step is less work than setting up its task. Its bits equal the
// bits of longer pieces.

// isDegree1 reports that single tokens take stepDegree1.
func (s *recurrentState[T]) isDegree1() bool {
	return s.e.spec.isDegree1() && !s.decays()
}

// isDegree1 reports that features are the prepared row, and outputs what it meets.
func (s *Spec[T]) isDegree1() bool { return s.degree() == 1 && !s.OutputNorm }

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

// stepDegree1 takes in one key of each of heads lo ≤ i < hi, if c has any, and
// then answers their queries, if it has any.
func (s *recurrentState[T]) stepDegree1(lo, hi int, out tensor.Heads[T], c *Call[T], n, m int, rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	u := s.heads[lo].u
	f := degree1Step[T]{t: u.t, u: u, sum: arena.Take[T](ar, 1)}
	u.ar = ar
	f.coef = u.direct().coefficients()
	f.weight, f.first = u.walker.Weights, u.walker.First
	f.x, f.phi = arena.Take[T](ar, u.da+1), arena.Take[T](ar, len(f.weight))
	f.w, f.o = arena.Take[T](ar, kernel.Pad(s.shape.Chunk)), arena.Take[T](ar, kernel.Pad(u.dv))
	group := s.shape.H / s.shape.Hkv
	for i := lo; i < hi; i++ {
		st, b, kh := s.heads[i], i/s.shape.Hkv, i%s.shape.Hkv
		if m > 0 {
			st.absorbToken(rows.key(i), c.V.At(b, kh).Row(0), c.KeyMask == nil || c.KeyMask[b])
		}
		for g := 0; g < group && n > 0; g++ {
			st.answerDegree1(&f, rows.query(i*group + g)[:u.da], out.At(b, kh*group+g).Row(0))
		}
		if st.n == st.c {
			st.u.ar = ar
			st.closeChunk()
		}
	}
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
