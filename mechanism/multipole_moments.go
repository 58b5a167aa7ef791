package mechanism

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// momentLayout is where the sums of a cell lie. r is k with order 0, else the distance of k
// from the first key of the cell. The sums are
//
//	Σr [D], Σv [Dv]
//	order 1 and 2: Σ r_a v [D,Dv]
//	order 2:       Σ r_a r_b [pairs], Σ r_a r_b v [pairs,Dv] for a ≤ b
type momentLayout struct {
	order, d, dv, pairs  int
	width                int // numbers of a cell
	dipole, quad, square int // where the sums of orders 1 and 2 begin: Σ r_a v, Σ r_a r_b, Σ r_a r_b v
	features             int // numbers of a query that a moment is multiplied by: 1, s q_a, (s q_a)(s q_b)
}

func newMomentLayout(order, d, dv int) momentLayout {
	l := momentLayout{order: order, d: d, dv: dv, dipole: d + dv, width: d + dv, features: 1}
	if order > 0 {
		l.width += d * dv
		l.features += d
	}
	if order > 1 {
		l.pairs = d * (d + 1) / 2
		l.quad, l.square = l.width, l.width+l.pairs
		l.width += l.pairs * (1 + dv)
		l.features += l.pairs
	}
	return l
}

// setTerms sets dst [width] to what a key with distance r [D] from the reference and value v
// [Dv] adds to the sums, times sign.
func setTerms[T tensor.Float](t *kernel.Table[T], l *momentLayout, dst, r, v []T, sign T) {
	t.Scale(dst[:l.d], sign, r)
	t.Scale(dst[l.d:][:l.dv], sign, v)
	if l.order == 0 {
		return
	}
	for a := range l.d {
		t.Scale(dst[l.dipole+a*l.dv:][:l.dv], sign*r[a], v)
	}
	if l.order == 1 {
		return
	}
	f := 0
	for a := range l.d {
		for b := a; b < l.d; b++ {
			product := sign * r[a] * r[b]
			dst[l.quad+f] = product
			t.Scale(dst[l.square+f*l.dv:][:l.dv], product, v)
			f++
		}
	}
}

// cellSums holds the sums of keys and values of each cell. Sums are pairs of numbers, so that
// a key that is added and taken away again leaves no rounding error behind.
type cellSums[T tensor.Float] struct {
	momentLayout
	counts     []uint64 // keys of each cell
	references []T      // [cells][D], nil with order 0
	hi, lo     []T      // [cells][width]
}

func (s *cellSums[T]) cell(x []T, c int) []T { return x[c*s.width:][:s.width] }

func (s *cellSums[T]) reference(c int) []T { return s.references[c*s.d:][:s.d] }

// add adds a key and its value to cell c, or takes them away with sign -1. room has
// D + width elements.
func (s *cellSums[T]) add(t *kernel.Table[T], c int, k, v []T, sign T, room []T) {
	if s.order == 0 && sign > 0 {
		hi, lo := s.cell(s.hi, c), s.cell(s.lo, c)
		t.AddCarry(hi[:s.d], lo[:s.d], k)
		t.AddCarry(hi[s.d:], lo[s.d:], v)
		s.counts[c]++
		return
	}
	r, terms := room[:s.d], room[s.d:][:s.width]
	s.setDistance(t, r, c, k)
	setTerms(t, &s.momentLayout, terms, r, v, sign)
	t.AddCarry(s.cell(s.hi, c), s.cell(s.lo, c), terms)
	s.counts[c] += uint64(int64(sign))
}

// setDistance sets r [D] of a key k in cell c.
func (s *cellSums[T]) setDistance(t *kernel.Table[T], r []T, c int, k []T) {
	copy(r, k)
	if s.references != nil {
		t.Axpy(r, -1, s.reference(c))
	}
}

// farTile holds what a tile of queries is multiplied by: for each cell the mean c̄ of its far
// keys, their number, and moments about c̄.
type farTile[T tensor.Float] struct {
	momentLayout
	means   []T // [cells][D]
	columns []T // [D][stride] means as columns
	stride  int
	counts  []T // [cells]
	moments []T // [cells][features][Dv]: Σv, Σ (k-c̄)_a v, Σ (k-c̄)_a (k-c̄)_b v
	squares []T // [cells][pairs]: Σ (k-c̄)_a (k-c̄)_b
}

// newFarTile returns a tile of zeros in memory from take.
func newFarTile[T tensor.Float](l momentLayout, cells int, take func(n int) []T) farTile[T] {
	stride := kernel.Stride(cells)
	return farTile[T]{
		momentLayout: l, means: take(cells * l.d), columns: take(l.d * stride), stride: stride, counts: take(cells),
		moments: take(cells * l.features * l.dv), squares: take(cells * l.pairs),
	}
}

// tileNumbers returns the number of elements of a farTile.
func tileNumbers(l *momentLayout, cells int) float64 {
	return float64(cells)*(float64(l.d+1+l.pairs)+float64(l.features)*float64(l.dv)) + float64(l.d)*float64(kernel.Stride(cells))
}

// momentsOf returns the moments of cell c from feature f on.
func (x *farTile[T]) momentsOf(c, f int) []T {
	return x.moments[(c*x.features+f)*x.dv : (c+1)*x.features*x.dv]
}

// set computes row c from the sums of cell from of s. delta has D elements.
func (x *farTile[T]) set(t *kernel.Table[T], c int, s *cellSums[T], from int, delta []float64) {
	mean, n, hi, lo := x.means[c*x.d:][:x.d], s.counts[from], s.cell(s.hi, from), s.cell(s.lo, from)
	if x.counts[c] = T(n); n == 0 {
		clear(mean)
		x.setColumn(c)
		clear(x.momentsOf(c, 0))
		clear(x.squares[c*x.pairs:][:x.pairs])
		return
	}
	t.Add(x.momentsOf(c, 0)[:x.dv], hi[x.d:][:x.dv], lo[x.d:][:x.dv])
	if x.order == 0 {
		t.Add(mean, hi[:x.d], lo[:x.d])
		t.Scale(mean, 1/T(n), mean)
		x.setColumn(c)
		return
	}
	for a := range delta {
		delta[a] = (float64(hi[a]) + float64(lo[a])) / float64(n)
	}
	for a, y := range s.reference(from) {
		mean[a] = T(float64(y) + delta[a])
	}
	x.setColumn(c)
	sum := func(i int) float64 { return float64(hi[i]) + float64(lo[i]) }
	at := x.momentsOf(c, 1)
	for a := range x.d {
		for e := range x.dv {
			at[a*x.dv+e] = T(sum(x.dipole+a*x.dv+e) - delta[a]*sum(x.d+e))
		}
	}
	if x.order == 1 {
		return
	}
	at = at[x.d*x.dv:]
	f := 0
	for a := range x.d {
		for b := a; b < x.d; b++ {
			x.squares[c*x.pairs+f] = T(sum(x.quad+f) - float64(n)*delta[a]*delta[b])
			for e := range x.dv {
				at[f*x.dv+e] = T(sum(x.square+f*x.dv+e) - delta[a]*sum(x.dipole+b*x.dv+e) -
					delta[b]*sum(x.dipole+a*x.dv+e) + delta[a]*delta[b]*sum(x.d+e))
			}
			f++
		}
	}
}

// setColumn copies the mean of cell c to its column.
func (x *farTile[T]) setColumn(c int) {
	for a, y := range x.means[c*x.d:][:x.d] {
		x.columns[a*x.stride+c] = y
	}
}

// setQueryFeatures sets psi [features] to what the moments of a cell are multiplied by for a
// scaled query q [D]: 1, q_a, and q_a q_b of the second-order term, whose pairs a < b count
// twice.
func setQueryFeatures[T tensor.Float](l *momentLayout, psi, q []T) {
	psi[0] = 1
	if l.order == 0 {
		return
	}
	copy(psi[1:], q)
	if l.order == 1 {
		return
	}
	f := 1 + l.d
	for a := range q {
		psi[f] = q[a] * q[a] / 2
		f++
		for b := a + 1; b < l.d; b++ {
			psi[f] = q[a] * q[b]
			f++
		}
	}
}

// addQueryFeaturesGrad adds to dq the gradient of q, given the gradient of its features.
func addQueryFeaturesGrad[T tensor.Float](l *momentLayout, dq, dpsi, q []T) {
	if l.order == 0 {
		return
	}
	for a := range q {
		dq[a] += dpsi[1+a]
	}
	if l.order == 1 {
		return
	}
	f := 1 + l.d
	for a := range q {
		dq[a] += dpsi[f] * q[a]
		f++
		for b := a + 1; b < l.d; b++ {
			dq[a] += dpsi[f] * q[b]
			dq[b] += dpsi[f] * q[a]
			f++
		}
	}
}
