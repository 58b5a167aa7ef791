package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// At degree 1 the features of a token are its prepared row, after a 1 if the kernel has
// a constant. A head's step is less work than setting up its unit. Its bits equal the
// bits of longer pieces.

// firstDegree reports that single tokens go the way of stepFirst.
func (s *sums[T]) firstDegree() bool {
	return s.e.spec.firstDegree() && !s.decays()
}

// firstDegree reports that features are the prepared row, and outputs what it meets.
func (s *Spec[T]) firstDegree() bool { return s.degree() == 1 && !s.OutputNorm }

// firstStep is what the heads of a step of degree 1 share.
type firstStep[T tensor.Float] struct {
	t      *kernel.Table[T]
	u      *unit[T] // of any head
	coef   []T      // of the kernel polynomial
	weight []T      // [F] of the features
	first  int      // 1 where there is no constant feature, else 0

	x   []T // [da+1] a query behind a 1
	phi []T // [F] its weighted features
	w   []T // [kernel.Pad(chunk)] its weights of the open chunk's keys
	sum []T // [1] their sum
	o   []T // [kernel.Pad(Dv)] its numerators
}

// stepFirst takes in one key of each of heads lo ≤ i < hi, if c has any, and
// then answers their queries, if it has any.
func (s *sums[T]) stepFirst(lo, hi int, out tensor.Heads[T], c *Call[T], n, m int, rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	u := s.heads[lo].u
	f := firstStep[T]{t: u.t, u: u, sum: arena.Take[T](ar, 1)}
	u.ar = ar
	f.coef = u.coef()
	f.weight, f.first = u.walker.Weights, u.walker.First
	f.x, f.phi = arena.Take[T](ar, u.da+1), arena.Take[T](ar, len(f.weight))
	f.w, f.o = arena.Take[T](ar, kernel.Pad(s.shape.Chunk)), arena.Take[T](ar, kernel.Pad(u.dv))
	group := s.shape.H / s.shape.Hkv
	for i := lo; i < hi; i++ {
		st, b, kh := s.heads[i], i/s.shape.Hkv, i%s.shape.Hkv
		if m > 0 {
			st.takeToken(rows.key(i), c.V.At(b, kh).Row(0), c.KeyMask == nil || c.KeyMask[b])
		}
		for g := 0; g < group && n > 0; g++ {
			st.answerFirst(&f, rows.query(i*group + g)[:u.da], out.At(b, kh*group+g).Row(0))
		}
		if st.n == st.c {
			st.u.ar = ar
			st.close()
		}
	}
}

// takeToken puts a prepared key [da] and its value [Dv] into the open chunk.
func (s *stream[T]) takeToken(key, value []T, exists bool) {
	column := s.x[s.ld+s.n:]
	for c, y := range key[:s.u.da] {
		column[c*s.ld] = y
	}
	row := s.v[s.n*s.past.Stride:][:s.past.Stride]
	k := 0
	if exists {
		k = copy(row, value)
	}
	clear(row[k:])
	s.mark(exists)
}

// answerFirst sets out [Dv] to the output of a prepared query [da].
func (s *stream[T]) answerFirst(f *firstStep[T], q, out []T) {
	if s.first == unseen {
		clear(out)
		return
	}
	t, o, ld := f.t, f.o, s.past.Stride
	clear(o)
	var den T
	if n := s.n; n > 0 {
		w := f.w[:n]
		t.Block(1, kernel.Pad(n), len(q), q, len(q), 1, s.x[s.ld:], s.ld, f.w, len(f.w), false)
		f.sum[0] = 0
		t.PolyRows(w, w, len(f.w), n, f.coef, f.sum)
		if den = f.sum[0]; s.holes {
			for j, exists := range s.exist[:n] {
				if !exists {
					w[j] = 0
				}
			}
			den = t.Sum(w)
		}
		t.Mix(o, w, n, s.v, ld, nil, 0)
	}
	if s.past.NonEmpty {
		f.x[0] = 1
		copy(f.x[1:], q)
		t.Mul(f.phi, f.weight, f.x[f.first:])
		den = t.Mix(o, f.phi, features.BlockSize, s.past.S, ld, s.past.Z, den)
	}
	over := f.u.over(f.u.spec.total(den, T(f.u.spec.Eps)))
	t.Scale(out, over, o)
}
