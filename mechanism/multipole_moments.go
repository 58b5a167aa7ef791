package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
)

// momentLayout describes the sums of a cell, one after another. r is the distance of k from the
// first key of the cell, or k itself with order 0 and no tilt. The sums are
//
//	Σr [D], Σv [Dv]
//	order 1 and 2: Σ r_a v [D,Dv]
//	order 2:       Σ r_a r_b [pairs], Σ r_a r_b v [pairs,Dv] for a ≤ b
//	with tilt:     Σ 1
//
// With tilt each key is summed with its weight.
type momentLayout struct {
	order, d, dv, pairs  int
	width                int // numbers of a cell
	dipole, quad, square int // where the sums of orders 1 and 2 begin: Σ r_a v, Σ r_a r_b, Σ r_a r_b v
	features             int // numbers of a query that a moment is multiplied by: 1, s q_a, (s q_a)(s q_b)
	mass                 int // index of the sum of the weights of keys; 0: keys are counted
}

// hasReferences reports whether sums are of distances from the first key of a cell.
func (x *multipoleAttention) hasReferences() bool { return x.order > 0 || x.tilt != nil }

// layout returns the layout of keys and values of widths d and dv.
func (x *multipoleAttention) layout(d, dv int) momentLayout {
	l := newMomentLayout(x.order, d, dv)
	if x.tilt != nil {
		l.mass = l.width
		l.width++
	}
	return l
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

// setTerms sets dst [width] to the terms that a key with distance r [D] from the reference and
// value v [Dv] adds to the sums, times sign.
func setTerms(t *kernel.Table[float], l *momentLayout, dst, r, v []float, sign float) {
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
type cellSums struct {
	momentLayout
	counts     []uint64 // keys of each cell
	references []float  // [cells][D]; nil: zeros
	hi, lo     []float  // [cells][width]
	tilts      cellTilts
}

// cellTilts holds the weights exp(s r·(k-C)) of keys k in the sums of their cell, where r is the
// tilt of the cell and C its centre.
type cellTilts struct {
	rows    []float   // [cells][D] s r; nil: keys weigh 1
	offsets []float64 // [cells] s r·C
}

// maxTilt bounds the exponents of the weights of keys in sums, and of the factor that undoes them. A key
// that is added and taken away leaves an error of less than 2⁻⁴⁸·exp(20) times the smallest weight.
const maxTilt = 10

// boundTilt returns x, at most maxTilt on both sides of 0.
func boundTilt(x float64) float64 { return max(min(x, maxTilt), -maxTilt) }

// setTilts sets c to the tilts of a key head: of the rows of the codebook in cells, or of all
// rows if cells is nil.
func (x *multipoleAttention) setTilts(c cellTilts, keyHead, keyHeads int, cells []int32) {
	from, book := x.headRows(x.tilt.Data, keyHead, keyHeads), x.book(keyHead, keyHeads)
	s := x.factor(book.Cols)
	for n := range c.offsets {
		row := n
		if cells != nil {
			row = int(cells[n])
		}
		to := c.of(n, book.Cols)
		for e, y := range from.Row(row) {
			to[e] = max(min(s*y, math.MaxFloat32), -math.MaxFloat32)
		}
		c.offsets[n] = sumOfProducts(to, book.Row(row))
	}
}

// of returns s r of cell n.
func (c *cellTilts) of(n, d int) []float { return c.rows[n*d:][:d] }

// exponent returns s r·(k-C) of a key in cell n, before it is bounded.
func (c *cellTilts) exponent(n int, k []float) float64 {
	return sumOfProducts(c.of(n, len(k)), k) - c.offsets[n]
}

// weight returns the weight of a key in cell n.
func (c *cellTilts) weight(n int, k []float) float {
	if c.rows == nil {
		return 1
	}
	return float(math.Exp(boundTilt(c.exponent(n, k))))
}

// massOf returns the sum of the weights of the keys of cell c.
func (s *cellSums) massOf(c int) float64 {
	if s.mass == 0 {
		return float64(s.counts[c])
	}
	at := c*s.width + s.mass
	return float64(s.hi[at]) + float64(s.lo[at])
}

func (s *cellSums) cell(x []float, c int) []float { return x[c*s.width:][:s.width] }

func (s *cellSums) reference(c int) []float { return s.references[c*s.d:][:s.d] }

// add adds a key and its value to cell c, or takes them away with sign -1. room has
// D + width elements.
func (s *cellSums) add(t *kernel.Table[float], c int, k, v []float, sign float, room []float) {
	if s.order == 0 && sign > 0 && s.mass == 0 {
		hi, lo := s.cell(s.hi, c), s.cell(s.lo, c)
		t.AddCarry(hi[:s.d], lo[:s.d], k)
		t.AddCarry(hi[s.d:], lo[s.d:], v)
		s.counts[c]++
		return
	}
	r, terms := room[:s.d], room[s.d:][:s.width]
	if s.order == 0 && s.mass == 0 {
		t.Scale(terms[:s.d], -1, k)
		t.Scale(terms[s.d:], -1, v)
		t.AddCarry(s.cell(s.hi, c), s.cell(s.lo, c), terms)
		s.counts[c]--
		return
	}
	s.setDistance(t, r, c, k)
	w := sign * s.tilts.weight(c, k)
	setTerms(t, &s.momentLayout, terms, r, v, w)
	if s.mass > 0 {
		terms[s.mass] = w
	}
	t.AddCarry(s.cell(s.hi, c), s.cell(s.lo, c), terms)
	s.counts[c] += uint64(int64(sign))
}

// setDistance sets r [D] to the distance of key k from the reference of cell c.
func (s *cellSums) setDistance(t *kernel.Table[float], r []float, c int, k []float) {
	copy(r, k)
	if s.references != nil {
		t.Axpy(r, -1, s.reference(c))
	}
}

// farTile holds the operands of a tile of queries: for each cell the mean c̄ of its far keys,
// their number, and moments about c̄.
type farTile struct {
	momentLayout
	means   []float // [cells][D]
	columns []float // [D][stride] means as columns
	stride  int
	counts  []float // [cells] numbers of keys, or the sums of their weights
	moments []float // [cells][features][Dv]: Σv, Σ (k-c̄)_a v, Σ (k-c̄)_a (k-c̄)_b v
	squares []float // [cells][pairs]: Σ (k-c̄)_a (k-c̄)_b
}

// newFarTile returns a tile of zeros in memory from take.
func newFarTile(l momentLayout, cells int, take func(n int) []float) farTile {
	stride := kernel.Stride(cells)
	return farTile{
		momentLayout: l, means: take(cells * l.d), columns: take(l.d * stride), stride: stride, counts: take(cells),
		moments: take(cells * l.features * l.dv), squares: take(cells * l.pairs),
	}
}

// tileNumbers returns the number of elements of a farTile.
func tileNumbers(l *momentLayout, cells int) float64 {
	return float64(cells)*(float64(l.d+1+l.pairs)+float64(l.features)*float64(l.dv)) + float64(l.d)*float64(kernel.Stride(cells))
}

// momentsOf returns the moments of cell c from feature f on.
func (x *farTile) momentsOf(c, f int) []float {
	return x.moments[(c*x.features+f)*x.dv : (c+1)*x.features*x.dv]
}

// set computes row c from the sums of cell from of s. delta has D elements.
func (x *farTile) set(t *kernel.Table[float], c int, s *cellSums, from int, delta []float64) {
	mean, n, hi, lo := x.means[c*x.d:][:x.d], s.counts[from], s.cell(s.hi, from), s.cell(s.lo, from)
	if x.counts[c] = 0; n == 0 {
		clear(mean)
		x.setColumn(c)
		clear(x.momentsOf(c, 0))
		clear(x.squares[c*x.pairs:][:x.pairs])
		return
	}
	mass := s.massOf(from)
	x.counts[c] = float(mass)
	t.Add(x.momentsOf(c, 0)[:x.dv], hi[x.d:][:x.dv], lo[x.d:][:x.dv])
	if x.order == 0 {
		t.Add(mean, hi[:x.d], lo[:x.d])
		t.Scale(mean, 1/float(mass), mean)
		if s.references != nil {
			t.Add(mean, mean, s.reference(from))
		}
		x.setColumn(c)
		x.untilt(t, c, s, from)
		return
	}
	for a := range delta {
		delta[a] = (float64(hi[a]) + float64(lo[a])) / mass
	}
	for a, y := range s.reference(from) {
		mean[a] = float(float64(y) + delta[a])
	}
	x.setColumn(c)
	sum := func(i int) float64 { return float64(hi[i]) + float64(lo[i]) }
	at := x.momentsOf(c, 1)
	for a := range x.d {
		for e := range x.dv {
			at[a*x.dv+e] = float(sum(x.dipole+a*x.dv+e) - delta[a]*sum(x.d+e))
		}
	}
	if x.order == 1 {
		x.untilt(t, c, s, from)
		return
	}
	at = at[x.d*x.dv:]
	f := 0
	for a := range x.d {
		for b := a; b < x.d; b++ {
			x.squares[c*x.pairs+f] = float(sum(x.quad+f) - float64(n)*delta[a]*delta[b])
			for e := range x.dv {
				at[f*x.dv+e] = float(sum(x.square+f*x.dv+e) - delta[a]*sum(x.dipole+b*x.dv+e) -
					delta[b]*sum(x.dipole+a*x.dv+e) + delta[a]*delta[b]*sum(x.d+e))
			}
			f++
		}
	}
}

// untilt multiplies row c by exp(s r·(C-c̄)) of cell from of s. Its moment of order 0 becomes that of a
// query beside r: Σv - s r·Σ (k-c̄)vᵀ.
func (x *farTile) untilt(t *kernel.Table[float], c int, s *cellSums, from int) {
	if s.mass == 0 {
		return
	}
	w := s.tilts.back(from, x.means[c*x.d:][:x.d])
	x.counts[c] *= w
	moments := x.momentsOf(c, 0)
	for a := 0; a < x.d && x.order > 0; a++ {
		t.Axpy(moments[:x.dv], -s.tilts.of(from, x.d)[a], moments[(1+a)*x.dv:][:x.dv])
	}
	t.Scale(moments, w, moments)
}

// back returns exp(s r·(C-c̄)), the factor that undoes the weights of the keys of cell n at their mean c̄.
func (c *cellTilts) back(n int, mean []float) float {
	return float(math.Exp(boundTilt(-c.exponent(n, mean))))
}

// setColumn copies the mean of cell c to its column.
func (x *farTile) setColumn(c int) {
	for a, y := range x.means[c*x.d:][:x.d] {
		x.columns[a*x.stride+c] = y
	}
}

// setQueryFeatures sets psi [features] to the factors of the moments of a cell for a scaled query
// q [D]: 1, then q_a, then q_a²/2 and q_a q_b for a < b.
func setQueryFeatures(l *momentLayout, psi, q []float) {
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
func addQueryFeaturesGrad(l *momentLayout, dq, dpsi, q []float) {
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
