package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// featureBlock is the number of features that exist at a time. Their values
// for a chunk of tokens stay in the second-level cache.
const featureBlock = 176

// moments are what the linear form keeps of any number of tokens: for every
// feature the sum of feature times row, and of feature times number. For keys
// the rows are values and the numbers are 1; for the gradient of keys both
// come from the queries that see them.
type moments[T tensor.Float] struct {
	s    []T // [F, ld]
	z    []T // [F], and room for a vector from any of them on
	ld   int // a multiple of kernel.Lanes
	some bool
	low  *low[T] // what s and z have lost to rounding; nil: it is not kept
}

// maxMoments is the most numbers that the moments of a head may have: 4 GiB in
// float32, sixteen times those of degree 4 at D = Dv = 64. Wider rows or higher
// degrees are a mistake.
const maxMoments = 1 << 30

// checkMoments reports a width and a degree whose features with values of width dv
// have more moments than maxMoments.
func (e *engine[T]) checkMoments(d, dv int) error {
	f := e.spec.features(e.spec.width(d))
	size := float64(f) * float64(scratch.Stride[T](dv))
	if size <= maxMoments {
		return nil
	}
	more := ""
	if f == math.MaxInt {
		more = " and more"
	}
	return fmt.Errorf("%s: the linear form of degree %d has %d%s features for D = %d, whose sums with Dv = %d are %.0f%s numbers a head, at most %d",
		e.spec.Name, e.spec.degree(), f, more, d, dv, size, more, maxMoments)
}

// add adds n tokens, whose components are the columns of x: rows y [n, s.ld],
// which lie ldy apart, and numbers w [n]. Their sums are taken from zero first.
func (s *moments[T]) add(ar *arena.Arena, m *monomials[T], x []T, ld, n int, y []T, ldy int, w []T) {
	mark := ar.Mark()
	phi, sums := arena.Take[T](ar, m.most()*ld), arena.Take[T](ar, m.most())
	var rows []T
	if s.low != nil {
		rows = arena.Take[T](ar, m.most()*s.ld)
	}
	m.rewind()
	for f := 0; f < m.count; f += featureBlock {
		k := min(featureBlock, m.count-f)
		m.expand(ar, phi, x, ld, k, w[:n], sums)
		if s.low != nil {
			m.t.Block(k, s.ld, n, phi, ld, 1, y, ldy, rows, s.ld, false)
			s.carry(m.t, f, rows[:k*s.ld], sums[:k])
			continue
		}
		m.t.Block(k, s.ld, n, phi, ld, 1, y, ldy, s.s[f*s.ld:], s.ld, s.some)
		z := s.z[f:][:k]
		if s.some {
			m.t.Add(z, z, sums)
		} else {
			copy(z, sums)
		}
	}
	s.some = true
	ar.Reset(mark)
}

// read adds what the moments hold for n tokens, the columns of x, to rows of
// o [n, s.ld], which lie ldo apart, or sets these where acc is not set, and adds
// to den [n].
func (s *moments[T]) read(ar *arena.Arena, m *monomials[T], x []T, ld, n int, acc bool, o []T, ldo int, den []T) {
	mark := ar.Mark()
	phi := arena.Take[T](ar, m.most()*ld)
	m.rewind()
	for f := 0; f < m.count; f += featureBlock {
		k := min(featureBlock, m.count-f)
		m.expandWeighted(ar, phi, x, ld, k, s.z[f:], den[:n])
		m.t.Block(n, s.ld, k, phi, 1, ld, s.s[f*s.ld:], s.ld, o, ldo, acc)
		acc = true
	}
	ar.Reset(mark)
}

// grad adds to the columns of dx the gradient of Σ y·(what read gives for n
// columns x), where yt [dv+1, ld] holds the rows y as columns and under them the
// numbers that go with z.
func (s *moments[T]) grad(ar *arena.Arena, m *monomials[T], dx, x, yt []T, ld, n, dv int) {
	mark := ar.Mark()
	dphi := arena.Take[T](ar, m.most()*ld)
	m.rewind()
	for f := 0; f < m.count; f += featureBlock {
		k := min(featureBlock, m.count-f)
		m.t.Block(k, kernel.Pad(n), dv, s.s[f*s.ld:], s.ld, 1, yt, ld, dphi, ld, false)
		m.fold(ar, dx, dphi, x, ld, k, s.z[f:], yt[dv*ld:][:n])
	}
	ar.Reset(mark)
}
