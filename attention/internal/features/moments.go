package features

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// BlockSize is the number of features that exist at a time. Their values for a chunk of
// tokens stay in the second-level cache.
const BlockSize = 176

// Moments are what the linear form keeps of any number of tokens: for every
// feature the sum of feature times row, and of feature times number. For keys
// the rows are values and the numbers are 1; for the gradient of keys both
// come from the queries that see them.
type Moments[T tensor.Float] struct {
	S        []T          // [F, Stride] sums of feature times row
	Z        []T          // [F] sums of feature times number, with room for a vector behind each
	Stride   int          // a multiple of kernel.Lanes
	NonEmpty bool         // otherwise S and Z are undefined
	Residual *Rounding[T] // rounding errors of S and Z; nil: they are not kept
}

// AddTokens adds n tokens with components x [1+width, ld], rows y [n, Stride] that lie
// ldy apart, and numbers w [n]. Their sums are taken from zero first.
func (s *Moments[T]) AddTokens(ar *arena.Arena, m *Monomials[T], x []T, ld, n int, y []T, ldy int, w []T) {
	mark := ar.Mark()
	phi, sums := arena.Take[T](ar, m.blockCount()*ld), arena.Take[T](ar, m.blockCount())
	var rows []T
	if s.Residual != nil {
		rows = arena.Take[T](ar, m.blockCount()*s.Stride)
	}
	m.Rewind()
	for f := 0; f < m.Count; f += BlockSize {
		k := min(BlockSize, m.Count-f)
		m.Expand(ar, phi, x, ld, k, w[:n], sums)
		if s.Residual != nil {
			m.table.Block(k, s.Stride, n, phi, ld, 1, y, ldy, rows, s.Stride, false)
			s.carry(m.table, f, rows[:k*s.Stride], sums[:k])
			continue
		}
		m.table.Block(k, s.Stride, n, phi, ld, 1, y, ldy, s.S[f*s.Stride:], s.Stride, s.NonEmpty)
		z := s.Z[f:][:k]
		if s.NonEmpty {
			m.table.Add(z, z, sums)
		} else {
			copy(z, sums)
		}
	}
	s.NonEmpty = true
	ar.Reset(mark)
}

// ReadTokens adds the products of the moments with n tokens x [1+width, ld] to rows of o
// [n, Stride], which lie ldo apart, and to den [n]. If acc is false it sets o.
func (s *Moments[T]) ReadTokens(ar *arena.Arena, m *Monomials[T], x []T, ld, n int, acc bool, o []T, ldo int, den []T) {
	mark := ar.Mark()
	phi := arena.Take[T](ar, m.blockCount()*ld)
	m.Rewind()
	for f := 0; f < m.Count; f += BlockSize {
		k := min(BlockSize, m.Count-f)
		m.ExpandWeighted(ar, phi, x, ld, k, s.Z[f:], den[:n])
		m.table.Block(n, s.Stride, k, phi, 1, ld, s.S[f*s.Stride:], s.Stride, o, ldo, acc)
		acc = true
	}
	ar.Reset(mark)
}

// AddGrad adds to dx [1+width, ld] the gradient of Σ y·o + w·den, where ReadTokens gives o
// and den for n tokens x [1+width, ld]. yt [dv+1, ld] holds the rows y as columns above
// the numbers w.
func (s *Moments[T]) AddGrad(ar *arena.Arena, m *Monomials[T], dx, x, yt []T, ld, n, dv int) {
	mark := ar.Mark()
	dphi := arena.Take[T](ar, m.blockCount()*ld)
	m.Rewind()
	for f := 0; f < m.Count; f += BlockSize {
		k := min(BlockSize, m.Count-f)
		m.table.Block(k, kernel.Pad(n), dv, s.S[f*s.Stride:], s.Stride, 1, yt, ld, dphi, ld, false)
		m.FoldGrad(ar, dx, dphi, x, ld, k, s.Z[f:], yt[dv*ld:][:n])
	}
	ar.Reset(mark)
}

// Rounding holds numbers laid out as moments: a half of compensated moments.
type Rounding[T kernel.Float] struct{ S, Z []T }

// Halves returns the moments and, if it is kept, their lower half.
func (s *Moments[T]) Halves() []Rounding[T] {
	upper := Rounding[T]{s.S, s.Z}
	if s.Residual == nil {
		return []Rounding[T]{upper}
	}
	return []Rounding[T]{upper, *s.Residual}
}

// Compensate adds lower halves to the moments, in memory from take: their sums are then
// compensated.
func (s *Moments[T]) Compensate(take func(n int) []T) {
	s.Residual = &Rounding[T]{take(len(s.S)), take(len(s.Z))}
}

// carry adds rows [k, Stride] and sums [k] to the moments of k features from f on, which
// have a lower half.
func (s *Moments[T]) carry(t *kernel.Table[T], f int, rows, sums []T) {
	k := len(sums)
	hi, lo := s.S[f*s.Stride:][:k*s.Stride], s.Residual.S[f*s.Stride:][:k*s.Stride]
	hiz, loz := s.Z[f:][:k], s.Residual.Z[f:][:k]
	if !s.NonEmpty {
		copy(hi, rows)
		copy(hiz, sums)
		clear(lo)
		clear(loz)
		return
	}
	t.AddCarry(hi, lo, rows)
	t.AddCarry(hiz, loz, sums)
}

// CopyFrom copies moments of the same shape.
func (s *Moments[T]) CopyFrom(from *Moments[T]) {
	if s.NonEmpty = from.NonEmpty; !s.NonEmpty {
		return
	}
	copy(s.S, from.S)
	copy(s.Z, from.Z)
	if s.Residual == nil {
		return
	}
	if from.Residual == nil {
		clear(s.Residual.S)
		clear(s.Residual.Z)
		return
	}
	copy(s.Residual.S, from.Residual.S)
	copy(s.Residual.Z, from.Residual.Z)
}

// Fade multiplies the moments by a factor.
func (s *Moments[T]) Fade(t *kernel.Table[T], by T) {
	if !s.NonEmpty || by == 1 {
		return
	}
	t.Scale(s.S, by, s.S)
	t.Scale(s.Z, by, s.Z)
	if s.Residual != nil {
		t.Scale(s.Residual.S, by, s.Residual.S)
		t.Scale(s.Residual.Z, by, s.Residual.Z)
	}
}

// AddMoments adds moments of the same shape.
func (s *Moments[T]) AddMoments(t *kernel.Table[T], from *Moments[T]) {
	switch {
	case !from.NonEmpty:
	case !s.NonEmpty:
		s.CopyFrom(from)
	case s.Residual == nil:
		t.Add(s.S, s.S, from.S)
		t.Add(s.Z, s.Z, from.Z)
	default:
		for _, half := range from.Halves() {
			t.AddCarry(s.S, s.Residual.S, half.S)
			t.AddCarry(s.Z, s.Residual.Z, half.Z)
		}
	}
}

// ReadFewTokens is ReadTokens for n ≤ kernel.Lanes prepared rows a [n, lda]. It adds to o
// [n, Stride] and den [n]. Every sum is the same sequence of operations as in ReadTokens.
func (s *Moments[T]) ReadFewTokens(ar *arena.Arena, m *Monomials[T], a []T, lda, n int, o, den []T) {
	mark := ar.Mark()
	defer ar.Reset(mark)
	ldx := m.Width + 1 + kernel.Lanes
	x := arena.Take[T](ar, n*ldx)
	for i := range n {
		row := x[i*ldx:][:ldx]
		row[0] = 1
		copy(row[1:], a[i*lda:][:m.Width])
	}
	ld := BlockSize + max(featureRoom, m.Width+1) + kernel.Lanes
	phi := arena.Take[T](ar, n*ld)
	m.Rewind()
	have := 0 // features that phi holds, from f on
	for f := 0; f < m.Count; {
		copy(m.savedTuple, m.tuple)
		made := 0
		for i := range n {
			copy(m.tuple, m.savedTuple)
			m.next = f + have
			made = m.ExpandToken(phi[i*ld+have:][:ld-have], x[i*ldx:][:m.Width+1])
		}
		have += made
		k := have
		if m.next < m.Count {
			k -= have % BlockSize
		}
		s.mix(ar, m.table, phi, ld, f, k, n, o, den)
		f, have = f+k, have-k
		for i := range n {
			copy(phi[i*ld:][:have], phi[i*ld+k:])
		}
	}
}

// mix adds to o and den the products of k features phi [n, ld] of n tokens with the
// moments of features from f on, a multiple of BlockSize.
func (s *Moments[T]) mix(ar *arena.Arena, t *kernel.Table[T], phi []T, ld, f, k, n int, o, den []T) {
	if n == 1 {
		den[0] = t.Mix(o[:s.Stride], phi[:k], BlockSize, s.S[f*s.Stride:], s.Stride, s.Z[f:], den[0])
		return
	}
	mark := ar.Mark()
	// Column c has the sums of Z from f+c on. The first is wanted, the others fill the
	// vector.
	sums := arena.TakeZeros[T](ar, n*kernel.Lanes)
	for i := range n {
		sums[i*kernel.Lanes] = den[i]
	}
	for ; k > 0; k, f, phi = k-BlockSize, f+BlockSize, phi[BlockSize:] {
		k := min(k, BlockSize)
		t.Block(n, s.Stride, k, phi, ld, 1, s.S[f*s.Stride:], s.Stride, o, s.Stride, true)
		t.Block(n, kernel.Lanes, k, phi, ld, 1, s.Z[f:], 1, sums, kernel.Lanes, true)
	}
	for i := range n {
		den[i] = sums[i*kernel.Lanes]
	}
	ar.Reset(mark)
}

// featureRoom is about the number of features of one token that ReadFewTokens makes at
// a time.
const featureRoom = 32 * BlockSize

// AppendFlat appends [F, 1+dv] to the slice to, for each feature its numbers in Z and S:
// no padding and no Residual.
func (s *Moments[T]) AppendFlat(to []T, dv int) []T {
	for f := range len(s.S) / s.Stride {
		if s.NonEmpty {
			to = append(append(to, s.Z[f]), s.S[f*s.Stride:][:dv]...)
		} else {
			to = append(to, make([]T, 1+dv)...)
		}
	}
	return to
}

// SetFlat sets the moments from [F, 1+dv], the elements that AppendFlat appended, and
// returns the elements behind them.
func (s *Moments[T]) SetFlat(from []T, dv int) []T {
	for f := range len(s.S) / s.Stride {
		row := s.S[f*s.Stride:][:s.Stride]
		clear(row[copy(row, from[1:1+dv]):])
		s.Z[f] = from[0]
		from = from[1+dv:]
	}
	s.NonEmpty = true
	return from
}

// ShapeAs gives moments the shape of p, with undefined contents.
func (s *Moments[T]) ShapeAs(p *Moments[T]) {
	s.S, s.Z, s.Stride = scratch.Grow(s.S[:0], len(p.S)), scratch.Grow(s.Z[:0], len(p.Z)), p.Stride
}
