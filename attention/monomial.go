package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// monomials walks through the packed features of the linear form. With the
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
type monomials[T tensor.Float] struct {
	t      *kernel.Table[T]
	first  int   // smallest index of a tuple
	width  int   // largest
	count  int   // number of tuples
	weight []T   // [count], and room for a vector
	next   int   // feature that comes next
	at     []int // its tuple, [p]
	past   []int // an earlier tuple, [p]
	runs   []kernel.Run
}

// newMonomials returns the walker for prepared rows of a width.
func newMonomials[T tensor.Float](t *kernel.Table[T], s *Spec[T], width int) *monomials[T] {
	m := &monomials[T]{t: t, width: width, count: s.features(width)}
	if s.pure() {
		m.first = 1
	}
	m.own(s.degree())
	m.weight = make([]T, m.count, m.count+kernel.Lanes)
	m.rewind()
	for f := range m.weight {
		m.weight[f] = T(multinomial(m.at) * s.Coef[nonzero(m.at)])
		m.skip(1)
	}
	return m
}

// monomials returns a walker for prepared rows of a width. Walkers of one
// engine share their weights.
func (e *engine[T]) monomials(width int) *monomials[T] {
	first, ok := e.walkers.Load(width)
	if !ok {
		first, _ = e.walkers.LoadOrStore(width, newMonomials(kernel.Active[T](), &e.spec, width))
	}
	return first.(*monomials[T]).copy()
}

// copy returns another walker, which shares the weights.
func (m *monomials[T]) copy() *monomials[T] {
	c := *m
	c.own(len(c.at))
	return &c
}

// own gives the walker tuples of p indices and runs of its own.
func (m *monomials[T]) own(p int) {
	tuples := make([]int, 2*p)
	m.at, m.past = tuples[:p], tuples[p:]
	m.runs = make([]kernel.Run, 0, featureBlock)
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

// multinomial returns in how many orders the nonzero indices of a sorted tuple
// can stand.
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

// most is how many features exist at a time.
func (m *monomials[T]) most() int { return min(featureBlock, m.count) }

// rewind goes to the first tuple.
func (m *monomials[T]) rewind() {
	m.next = 0
	for l := range m.at {
		m.at[l] = m.first
	}
}

// run returns the last indices lo ≤ i < hi of the features that come next and
// share their other factors, n at most.
func (m *monomials[T]) run(n int) (lo, hi int) {
	lo = m.at[len(m.at)-1]
	return lo, min(lo+n, m.width+1)
}

// skip goes n features further within a run and returns the first position in
// the tuple that changes, -1 after the last tuple.
func (m *monomials[T]) skip(n int) int {
	m.next += n
	l := len(m.at) - 1
	m.at[l] += n
	if m.at[l] <= m.width {
		return l
	}
	for l--; l >= 0 && m.at[l] == m.width; l-- {
	}
	if l >= 0 {
		m.at[l]++
		for k := l + 1; k < len(m.at); k++ {
			m.at[k] = m.at[l]
		}
	}
	return l
}

// prefix returns the product of all factors but the last, for n tokens. Rows
// of tmp keep the products of the first two factors and more; those that
// position changed and what follows take part in are computed again.
func (m *monomials[T]) prefix(tmp, x []T, ld, n, changed int) []T {
	last := len(m.at) - 2
	p := x[m.at[0]*ld:][:n]
	for l := 1; l <= last; l++ {
		q := tmp[l*ld:][:n]
		if l >= changed {
			m.t.Mul(q, p, x[m.at[l]*ld:])
		}
		p = q
	}
	return p
}

// few reports that no prefix has more than one factor: prefixes are rows of the
// components themselves.
func (m *monomials[T]) few() bool { return len(m.at) <= 2 }

// nextRuns returns as many as it can of the next count features, as runs of
// rows of p and of x, and how many they are. Changed is the first position in
// the tuple that is not as tmp has it, and then what skip gave.
func (m *monomials[T]) nextRuns(tmp, x []T, ld, n, count, changed int) (runs []kernel.Run, p []T, features, skipped int) {
	m.runs = m.runs[:0]
	if !m.few() {
		p = m.prefix(tmp, x, ld, n, changed)
		lo, hi := m.run(count)
		m.runs = append(m.runs, kernel.Run{X: int32(lo), N: int32(hi - lo)})
		return m.runs, p, hi - lo, m.skip(hi - lo)
	}
	for features < count {
		var shared int
		if len(m.at) == 2 {
			shared = m.at[0]
		}
		lo, hi := m.run(count - features)
		m.runs = append(m.runs, kernel.Run{P: int32(shared), X: int32(lo), N: int32(hi - lo)})
		features += hi - lo
		m.skip(hi - lo)
	}
	return m.runs, x, features, 0
}

// expand sets count rows of dst to the features that come next, of the len(y)
// tokens that are the columns of x, and sums [count] to their sums times y. All
// rows have stride ld.
func (m *monomials[T]) expand(ar *arena.Arena, dst, x []T, ld, count int, y, sums []T) {
	mark := ar.Mark()
	tmp := arena.Take[T](ar, len(m.at)*ld)
	changed := 0
	for f := 0; f < count; {
		runs, p, k, next := m.nextRuns(tmp, x, ld, len(y), count-f, changed)
		m.t.FeatureSums(dst[f*ld:], runs, p, x, ld, y, sums[f:])
		f, changed = f+k, next
	}
	ar.Reset(mark)
}

// expandWeighted sets count rows of dst to the features that come next, each
// times its weight, of len(sums) tokens, and adds their products with z [count],
// summed from zero, to sums. Features are weighted where they meet moments, and
// not where they are summed.
func (m *monomials[T]) expandWeighted(ar *arena.Arena, dst, x []T, ld, count int, z, sums []T) {
	mark := ar.Mark()
	tmp, total := arena.Take[T](ar, len(m.at)*ld), arena.TakeZeros[T](ar, len(sums))
	weight := m.weight[m.next:]
	changed := 0
	for f := 0; f < count; {
		runs, p, k, next := m.nextRuns(tmp, x, ld, len(sums), count-f, changed)
		m.t.FeatureDots(dst[f*ld:], runs, p, x, ld, weight[f:], z[f:], total)
		f, changed = f+k, next
	}
	m.t.Add(sums, sums, total)
	ar.Reset(mark)
}

// fold adds to the rows of dx the gradient that the next count features have
// through them: their weights times dphi + z·y, with z [count] and y a number
// for each token. A prefix collects the gradient of
// everything built on it and hands it to its own factors when it is left, so
// that a feature costs two row operations whatever p is. The prefix of a single
// factor is the constant, and what it collects is dropped.
func (m *monomials[T]) fold(ar *arena.Arena, dx, dphi, x []T, ld, count int, z, y []T) {
	n, weight := len(y), m.weight[m.next:]
	if m.few() {
		runs, _, _, _ := m.nextRuns(nil, x, ld, n, count, 0)
		m.t.FeatureGrad(dx, dx, dphi, runs, x, x, ld, weight, z, y)
		return
	}
	mark := ar.Mark()
	last := len(m.at) - 2 // position of the prefix's last factor
	tmp := arena.Take[T](ar, len(m.at)*ld)
	grad := arena.TakeZeros[T](ar, len(m.at)*ld) // of the prefix up to each position
	changed := 0
	for f := 0; f < count; {
		copy(m.past, m.at)
		runs, p, k, next := m.nextRuns(tmp, x, ld, n, count-f, changed)
		m.t.FeatureGrad(dx, grad[last*ld:], dphi[f*ld:], runs, p, x, ld, weight[f:], z[f:], y)
		f, changed = f+k, next
		leave := changed
		if f == count {
			leave = 0
		}
		for l := last; l >= max(leave, 0); l-- {
			d := grad[l*ld:][:n]
			xi := m.past[l]
			if l == 0 {
				m.t.Add(dx[xi*ld:][:n], dx[xi*ld:], d)
			} else {
				before := x[m.past[0]*ld:]
				if l > 1 {
					before = tmp[(l-1)*ld:]
				}
				m.t.MulAdd(dx[xi*ld:][:n], d, before)
				m.t.MulAdd(grad[(l-1)*ld:][:n], d, x[xi*ld:])
			}
			clear(d)
		}
	}
	ar.Reset(mark)
}
