package features

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// Monomials walks through the packed features of the linear form. With the
// prepared row augmented to x = (1, x₁ … x_w), a feature is a product
// x[i₁]·…·x[i_p] with i₁ ≤ … ≤ i_p, and
//
//	f(a·b) = Σ weight · a[i₁]…a[i_p] · b[i₁]…b[i_p]
//
// where weight is the multinomial coefficient of the nonzero indices times the
// kernel's coefficient of their number. A kernel of one power needs only the
// tuples without the index 0. The order is lexicographic, so that features in
// a row share all factors but the last: a run.
//
// Features are made for a stretch of tokens at once, from rows x[i] that hold
// component i of every token. Row 0 is 1, or 0 for a token to be left out,
// which then vanishes from every feature.
type Monomials[T tensor.Float] struct {
	table      *kernel.Table[T]
	First      int   // smallest index of a tuple
	Width      int   // largest
	Count      int   // number of tuples
	Weights    []T   // [count], and room for a vector
	next       int   // feature that comes next
	tuple      []int // its tuple [p]
	savedTuple []int // an earlier tuple, [p]
	runs       []kernel.Run
}

// NewMonomials returns the monomials of the polynomial with coefficients coef [p+1] over
// rows of the width. Without the constant there are monomials of degree p alone.
func NewMonomials[T tensor.Float](t *kernel.Table[T], coef []float64, withConstant bool, width int) *Monomials[T] {
	m := &Monomials[T]{table: t, Width: width, Count: CountMonomials(len(coef)-1, width, withConstant)}
	if !withConstant {
		m.First = 1
	}
	m.allocate(len(coef) - 1)
	m.Weights = make([]T, m.Count, m.Count+kernel.Lanes)
	m.Rewind()
	for f := range m.Weights {
		m.Weights[f] = T(multinomial(m.tuple) * coef[nonzero(m.tuple)])
		m.skip(1)
	}
	return m
}

// CountMonomials returns the number of packed symmetric monomials of rows of width w:
// with the constant all of degree ≤ p, C(w+p, p), else all of degree p. It is
// math.MaxInt where it would be more.
func CountMonomials(p, w int, withConstant bool) int {
	if !withConstant {
		w--
	}
	n := 1
	for l := 1; l <= p; l++ {
		if w > 0 && n > math.MaxInt/(w+l) {
			return math.MaxInt
		}
		n = n * (w + l) / l
	}
	return n
}

// Clone returns a copy that shares the weights.
func (m *Monomials[T]) Clone() *Monomials[T] {
	c := *m
	c.allocate(len(c.tuple))
	return &c
}

// allocate makes room for tuples of p indices and for runs.
func (m *Monomials[T]) allocate(p int) {
	tuples := make([]int, 2*p)
	m.tuple, m.savedTuple = tuples[:p], tuples[p:]
	m.runs = make([]kernel.Run, 0, BlockSize)
}

func nonzero(tuple []int) int {
	n := 0
	for _, i := range tuple {
		if i > 0 {
			n++
		}
	}
	return n
}

// multinomial returns the number of orders of the nonzero indices of a sorted tuple.
func multinomial(tuple []int) float64 {
	c := 1.0
	n, same := 0, 0
	for k, i := range tuple {
		if i == 0 {
			continue
		}
		if k == 0 || tuple[k-1] != i {
			same = 0
		}
		n, same = n+1, same+1
		c = c * float64(n) / float64(same)
	}
	return c
}

// blockCount is the number of features that exist at a time.
func (m *Monomials[T]) blockCount() int { return min(BlockSize, m.Count) }

// Rewind goes to the first tuple.
func (m *Monomials[T]) Rewind() {
	m.next = 0
	for l := range m.tuple {
		m.tuple[l] = m.First
	}
}

// runBounds returns the last indices lo ≤ i < hi of the features that come next and
// share their other factors, n at most.
func (m *Monomials[T]) runBounds(n int) (lo, hi int) {
	lo = m.tuple[len(m.tuple)-1]
	return lo, min(lo+n, m.Width+1)
}

// skip goes n features further within a run and returns the first position in
// the tuple that changes, -1 after the last tuple.
func (m *Monomials[T]) skip(n int) int {
	m.next += n
	l := len(m.tuple) - 1
	m.tuple[l] += n
	if m.tuple[l] <= m.Width {
		return l
	}
	for l--; l >= 0 && m.tuple[l] == m.Width; l-- {
	}
	if l >= 0 {
		m.tuple[l]++
		for k := l + 1; k < len(m.tuple); k++ {
			m.tuple[k] = m.tuple[l]
		}
	}
	return l
}

// prefixProducts returns the product of all factors but the last, for n tokens. Rows
// of tmp keep the products of the first two factors and more. Products with the factor
// at position changed or a later one are computed anew.
func (m *Monomials[T]) prefixProducts(tmp, x []T, ld, n, changed int) []T {
	last := len(m.tuple) - 2
	p := x[m.tuple[0]*ld:][:n]
	for l := 1; l <= last; l++ {
		q := tmp[l*ld:][:n]
		if l >= changed {
			m.table.Mul(q, p, x[m.tuple[l]*ld:])
		}
		p = q
	}
	return p
}

// hasShortTuples reports whether prefixes have at most one factor, so that they are rows of
// the components.
func (m *Monomials[T]) hasShortTuples() bool { return len(m.tuple) <= 2 }

// nextRuns returns runs of rows of p and x for the first of the next count features, and
// their number. Changed is the first position in the tuple whose product tmp does not
// hold. The result skipped is the value of skip.
func (m *Monomials[T]) nextRuns(tmp, x []T, ld, n, count, changed int) (runs []kernel.Run, p []T, features, skipped int) {
	m.runs = m.runs[:0]
	if !m.hasShortTuples() {
		p = m.prefixProducts(tmp, x, ld, n, changed)
		lo, hi := m.runBounds(count)
		m.runs = append(m.runs, kernel.Run{X: int32(lo), N: int32(hi - lo)})
		return m.runs, p, hi - lo, m.skip(hi - lo)
	}
	for features < count {
		var shared int
		if len(m.tuple) == 2 {
			shared = m.tuple[0]
		}
		lo, hi := m.runBounds(count - features)
		m.runs = append(m.runs, kernel.Run{P: int32(shared), X: int32(lo), N: int32(hi - lo)})
		features += hi - lo
		m.skip(hi - lo)
	}
	return m.runs, x, features, 0
}

// Expand sets dst [count, ld] to the next features of len(y) tokens x [1+width, ld], and
// sums [count] to their products with y.
func (m *Monomials[T]) Expand(ar *arena.Arena, dst, x []T, ld, count int, y, sums []T) {
	mark := ar.Mark()
	tmp := arena.Take[T](ar, len(m.tuple)*ld)
	changed := 0
	for f := 0; f < count; {
		runs, p, k, next := m.nextRuns(tmp, x, ld, len(y), count-f, changed)
		m.table.FeatureSums(dst[f*ld:], runs, p, x, ld, y, sums[f:])
		f, changed = f+k, next
	}
	ar.Reset(mark)
}

// ExpandWeighted sets dst [count, ld] to the next features of len(sums) tokens x
// [1+width, ld], each times its weight, and adds their products with z [count], summed from
// zero, to sums. Features are weighted when they meet moments, not when they are summed.
func (m *Monomials[T]) ExpandWeighted(ar *arena.Arena, dst, x []T, ld, count int, z, sums []T) {
	mark := ar.Mark()
	tmp, total := arena.Take[T](ar, len(m.tuple)*ld), arena.TakeZeros[T](ar, len(sums))
	weight := m.Weights[m.next:]
	changed := 0
	for f := 0; f < count; {
		runs, p, k, next := m.nextRuns(tmp, x, ld, len(sums), count-f, changed)
		m.table.FeatureDots(dst[f*ld:], runs, p, x, ld, weight[f:], z[f:], total)
		f, changed = f+k, next
	}
	m.table.Add(sums, sums, total)
	ar.Reset(mark)
}

// FoldGrad adds to dx [1+width, ld] the gradient through the next count features of len(y)
// tokens x [1+width, ld]: their weights times dphi [count, ld] + z·y, with z [count]. A
// prefix collects the gradient of its features and hands it to its own factors when it is
// left, so that a feature costs two row operations for every p. The prefix of a single
// factor is the constant, whose gradient is dropped.
func (m *Monomials[T]) FoldGrad(ar *arena.Arena, dx, dphi, x []T, ld, count int, z, y []T) {
	n, weight := len(y), m.Weights[m.next:]
	if m.hasShortTuples() {
		runs, _, _, _ := m.nextRuns(nil, x, ld, n, count, 0)
		m.table.FeatureGrad(dx, dx, dphi, runs, x, x, ld, weight, z, y)
		return
	}
	mark := ar.Mark()
	last := len(m.tuple) - 2 // position of the prefix's last factor
	tmp := arena.Take[T](ar, len(m.tuple)*ld)
	grad := arena.TakeZeros[T](ar, len(m.tuple)*ld) // of the prefix up to each position
	changed := 0
	for f := 0; f < count; {
		copy(m.savedTuple, m.tuple)
		runs, p, k, next := m.nextRuns(tmp, x, ld, n, count-f, changed)
		m.table.FeatureGrad(dx, grad[last*ld:], dphi[f*ld:], runs, p, x, ld, weight[f:], z[f:], y)
		f, changed = f+k, next
		leave := changed
		if f == count {
			leave = 0
		}
		for l := last; l >= max(leave, 0); l-- {
			d := grad[l*ld:][:n]
			xi := m.savedTuple[l]
			if l == 0 {
				m.table.Add(dx[xi*ld:][:n], dx[xi*ld:], d)
			} else {
				before := x[m.savedTuple[0]*ld:]
				if l > 1 {
					before = tmp[(l-1)*ld:]
				}
				m.table.MulAdd(dx[xi*ld:][:n], d, before)
				m.table.MulAdd(grad[(l-1)*ld:][:n], d, x[xi*ld:])
			}
			clear(d)
		}
	}
	ar.Reset(mark)
}

// ExpandToken sets dst to the next weighted features of one token x [1+width], whole runs
// while there is room, and returns their number. The products are ExpandWeighted's, along
// the features. kernel.Lanes elements beyond x and beyond the features in dst are
// scratch.
func (m *Monomials[T]) ExpandToken(dst, x []T) (count int) {
	weight := m.Weights[m.next:]
	last := len(m.tuple) - 1
	if last == 0 {
		m.table.Mul(dst[:len(weight)], weight, x[m.First:])
		m.next = m.Count
		return len(weight)
	}
	room := len(dst) - kernel.Lanes
	for m.next < m.Count {
		// Runs that share all but the last two of their factors.
		p, row := T(1), m.tuple[last-1]
		for _, i := range m.tuple[:last-1] {
			p *= x[i]
		}
		rows, size := 0, 0
		for row+rows <= m.Width && count+size+m.Width+1-row-rows <= room {
			size += m.Width + 1 - row - rows
			rows++
		}
		if rows == 0 {
			break
		}
		m.table.FeatureRow(dst[count:], m.Weights[m.next:m.Count+kernel.Lanes], p, x[row:], rows)
		count += size
		m.next += size
		m.tuple[last-1] += rows - 1
		m.tuple[last] = m.Width
		m.skip(1)
		m.next--
	}
	return count
}
