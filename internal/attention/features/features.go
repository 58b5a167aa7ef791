package features

import (
	"math"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// Monomials generates the packed features of the linear form one after another. Let x = (1, x₁
// … x_w) be the prepared row with a 1 in front. A feature is a product x[i₁]·…·x[i_p] with i₁ ≤
// … ≤ i_p, and
//
//	f(a·b) = Σ weight · a[i₁]…a[i_p] · b[i₁]…b[i_p].
//
// The weight is the multinomial coefficient of the nonzero indices, times the kernel's
// coefficient for their number. A kernel of a single power needs only the tuples without index
// 0. Tuples are in lexicographic order, so that consecutive features share all factors but the
// last; such features are called a run.
//
// Features are computed for a block of tokens at a time, from rows x[i] that hold component i
// of every token. Row 0 is 1, or 0 for a masked token, all of whose features are then 0.
type Monomials struct {
	table      *kernel.Table[float]
	First      int     // smallest index in a tuple: 0, or 1 without the constant
	Width      int     // largest index in a tuple
	Count      int     // number of tuples
	Weights    []float // [count], and room for a vector
	start      []int   // first tuple [p]
	parts      []*Monomials
	next       int   // feature that comes next
	tuple      []int // its tuple [p]
	savedTuple []int // an earlier tuple, [p]
	runs       []kernel.Run
}

// NewMonomials returns the monomials of the polynomial with coefficients coef [p+1], for rows
// of the given width. Without the constant there are only the monomials of degree p.
func NewMonomials(t *kernel.Table[float], coef []float64, withConstant bool, width int) *Monomials {
	m := &Monomials{table: t, Width: width, Count: CountMonomials(len(coef)-1, width, withConstant)}
	if !withConstant {
		m.First = 1
	}
	m.allocate(len(coef) - 1)
	m.start = make([]int, len(coef)-1)
	for l := range m.start {
		m.start[l] = m.First
	}
	m.Weights = make([]float, m.Count, m.Count+kernel.Lanes)
	m.Rewind()
	for f := range m.Weights {
		m.Weights[f] = float(multinomial(m.tuple) * coef[nonzero(m.tuple)])
		m.skip(1)
	}
	return m
}

// CountMonomials returns the number of packed monomials for rows of width w. With the constant
// these are all monomials up to degree p, C(w+p, p); without, those of degree p. It returns
// math.MaxInt if there would be more.
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
func (m *Monomials) Clone() *Monomials {
	c := *m
	c.parts = nil
	c.allocate(len(c.tuple))
	return &c
}

// Parts returns the monomials divided into parts of BlockSize features, in order. The moments
// of a part are a slice of the moments of all features. The parts are made once and cached.
// They do not support ReadFewTokens.
func (m *Monomials) Parts() []*Monomials {
	if m.parts == nil && m.Count <= BlockSize {
		m.parts = []*Monomials{m}
	}
	if m.parts != nil {
		return m.parts
	}
	m.Rewind()
	for f := 0; f < m.Count; f += BlockSize {
		part := m.Clone()
		part.Count = min(BlockSize, m.Count-f)
		part.Weights = m.Weights[f : f+part.Count : f+part.Count+kernel.Lanes]
		part.start = slices.Clone(m.tuple)
		m.parts = append(m.parts, part)
		for m.next < f+part.Count {
			lo, hi := m.runBounds(f + part.Count - m.next)
			m.skip(hi - lo)
		}
	}
	return m.parts
}

// Bytes returns the memory of the monomials, without the weights that clones share.
func (m *Monomials) Bytes() int64 {
	size := unsafe.Sizeof(*m) + uintptr(2*cap(m.tuple))*unsafe.Sizeof(m.next) + uintptr(cap(m.runs))*unsafe.Sizeof(kernel.Run{})
	return int64(size)
}

// allocate makes room for tuples of p indices and for runs.
func (m *Monomials) allocate(p int) {
	tuples := make([]int, 2*p)
	m.tuple, m.savedTuple = tuples[:p], tuples[p:]
	m.runs = make([]kernel.Run, 0, m.maxRuns(p))
}

// maxRuns bounds the runs of a block of features of degree p: each has its own prefix of at
// most one factor, or there is one at a time.
func (m *Monomials) maxRuns(p int) int {
	if p > 2 {
		return 1
	}
	return min(m.Width+1, BlockSize)
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
func (m *Monomials) blockCount() int { return min(BlockSize, m.Count) }

// Rewind goes back to the first tuple.
func (m *Monomials) Rewind() {
	m.next = 0
	copy(m.tuple, m.start)
}

// runBounds returns the last indices lo ≤ i < hi of the features that come next and
// share their other factors, n at most.
func (m *Monomials) runBounds(n int) (lo, hi int) {
	lo = m.tuple[len(m.tuple)-1]
	return lo, min(lo+n, m.Width+1)
}

// skip goes n features further within a run and returns the first position in
// the tuple that changes, -1 after the last tuple.
func (m *Monomials) skip(n int) int {
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
func (m *Monomials) prefixProducts(tmp, x []float, ld, n, changed int) []float {
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
func (m *Monomials) hasShortTuples() bool { return len(m.tuple) <= 2 }

// nextRuns returns runs of rows of p and x for the first of the next count features, and
// their number. Changed is the first position in the tuple whose product tmp does not
// hold. The result skipped is the value of skip.
func (m *Monomials) nextRuns(tmp, x []float, ld, n, count, changed int) (runs []kernel.Run, p []float, features, skipped int) {
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

// Expand sets dst [count, ld] to the next count features of len(y) tokens x [1+width, ld], and
// sums [count] to the sums over tokens of feature times y.
func (m *Monomials) Expand(ar *arena.Arena, dst, x []float, ld, count int, y, sums []float) {
	mark := ar.Mark()
	tmp := arena.Take[float](ar, len(m.tuple)*ld)
	changed := 0
	for f := 0; f < count; {
		runs, p, k, next := m.nextRuns(tmp, x, ld, len(y), count-f, changed)
		m.table.FeatureSums(dst[f*ld:], runs, p, x, ld, y, sums[f:])
		f, changed = f+k, next
	}
	ar.Reset(mark)
}

// ExpandWeighted sets dst [count, ld] to the next count features of len(sums) tokens x
// [1+width, ld], multiplied by their weights. It adds to sums the products of each token's
// features with z [count], which are first summed from zero. Weights are applied when moments
// are read, not when they are summed.
func (m *Monomials) ExpandWeighted(ar *arena.Arena, dst, x []float, ld, count int, z, sums []float) {
	mark := ar.Mark()
	tmp, total := arena.Take[float](ar, len(m.tuple)*ld), arena.TakeZeros[float](ar, len(sums))
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
// tokens x [1+width, ld]. The gradient of a feature is its weight times dphi [count, ld] + z·y,
// with z [count]. Features of a run share a prefix, all factors but the last. The gradient of a
// prefix is collected over its features and passed on to its own factors at the end of the run,
// so that a feature takes two row operations for any p. A prefix of no factors is the constant
// and has no gradient.
func (m *Monomials) FoldGrad(ar *arena.Arena, dx, dphi, x []float, ld, count int, z, y []float) {
	n, weight := len(y), m.Weights[m.next:]
	if m.hasShortTuples() {
		runs, _, _, _ := m.nextRuns(nil, x, ld, n, count, 0)
		m.table.FeatureGrad(dx, dx, dphi, runs, x, x, ld, weight, z, y)
		return
	}
	mark := ar.Mark()
	last := len(m.tuple) - 2 // position of the prefix's last factor
	tmp := arena.Take[float](ar, len(m.tuple)*ld)
	grad := arena.TakeZeros[float](ar, len(m.tuple)*ld) // of the prefix up to each position
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
func (m *Monomials) ExpandToken(dst, x []float) (count int) {
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
		p, row := float(1), m.tuple[last-1]
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

// BlockSize is the number of features that are held at a time. Their values for a chunk of
// tokens fit the second-level cache.
const BlockSize = 176

// Moments holds the sums of the linear form over any number of tokens: for every feature, the
// sum of feature times row and the sum of feature times number. For keys the rows are values
// and the numbers are 1. For the gradient of keys, rows and numbers come from the queries that
// see the keys.
type Moments struct {
	S        []float   // [F, Stride] sums of feature times row
	Z        []float   // [F] sums of feature times number, with spare room for a vector
	Stride   int       // a multiple of kernel.Lanes
	NonEmpty bool      // whether tokens have been added; otherwise S and Z are undefined
	Residual *Rounding // rounding errors of S and Z; nil: not kept
}

// AddTokens adds n tokens with components x [1+width, ld], rows y [n, Stride], ldy apart, and
// numbers w [n]. The sums over these tokens start from zero and are then added to the moments.
func (s *Moments) AddTokens(ar *arena.Arena, m *Monomials, x []float, ld, n int, y []float, ldy int, w []float) {
	mark := ar.Mark()
	phi, sums := arena.Take[float](ar, m.blockCount()*ld), arena.Take[float](ar, m.blockCount())
	var rows []float
	if s.Residual != nil {
		rows = arena.Take[float](ar, m.blockCount()*s.Stride)
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

// ReadTokens multiplies the features of n tokens x [1+width, ld] by the moments. It adds the
// results to rows of o [n, Stride], ldo apart, and to den [n]. If acc is false it overwrites o.
func (s *Moments) ReadTokens(ar *arena.Arena, m *Monomials, x []float, ld, n int, acc bool, o []float, ldo int, den []float) {
	mark := ar.Mark()
	phi := arena.Take[float](ar, m.blockCount()*ld)
	m.Rewind()
	for f := 0; f < m.Count; f += BlockSize {
		k := min(BlockSize, m.Count-f)
		m.ExpandWeighted(ar, phi, x, ld, k, s.Z[f:], den[:n])
		m.table.Block(n, s.Stride, k, phi, 1, ld, s.S[f*s.Stride:], s.Stride, o, ldo, acc)
		acc = true
	}
	ar.Reset(mark)
}

// AddGrad adds to dx [1+width, ld] the gradient of Σ y·o + w·den, where o and den are the
// results of ReadTokens for n tokens x [1+width, ld]. yt [dv+1, ld] holds the rows y as
// columns, and below them the numbers w.
func (s *Moments) AddGrad(ar *arena.Arena, m *Monomials, dx, x, yt []float, ld, n, dv int) {
	mark := ar.Mark()
	dphi := arena.Take[float](ar, m.blockCount()*ld)
	m.Rewind()
	for f := 0; f < m.Count; f += BlockSize {
		k := min(BlockSize, m.Count-f)
		m.table.Block(k, kernel.Pad(n), dv, s.S[f*s.Stride:], s.Stride, 1, yt, ld, dphi, ld, false)
		m.FoldGrad(ar, dx, dphi, x, ld, k, s.Z[f:], yt[dv*ld:][:n])
	}
	ar.Reset(mark)
}

// Rounding holds numbers in the layout of Moments: the sums, or their rounding errors.
type Rounding struct{ S, Z []float }

// Halves returns the sums and, if they are kept, their rounding errors.
func (s *Moments) Halves() []Rounding {
	upper := Rounding{s.S, s.Z}
	if s.Residual == nil {
		return []Rounding{upper}
	}
	return []Rounding{upper, *s.Residual}
}

// Compensate makes the moments keep the rounding errors of their sums, in memory from take.
func (s *Moments) Compensate(take func(n int) []float) {
	s.Residual = &Rounding{take(len(s.S)), take(len(s.Z))}
}

// carry adds rows [k, Stride] and sums [k] to the moments of k features from f on, which
// have a lower half.
func (s *Moments) carry(t *kernel.Table[float], f int, rows, sums []float) {
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

// CopyFrom copies from, which has the same shape.
func (s *Moments) CopyFrom(from *Moments) {
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
func (s *Moments) Fade(t *kernel.Table[float], by float) {
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

// AddMoments adds from, which has the same shape.
func (s *Moments) AddMoments(t *kernel.Table[float], from *Moments) {
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

// ReadFewTokens is ReadTokens for n ≤ kernel.Lanes prepared rows a [n, lda]. It adds to o [n,
// Stride] and den [n]. Each sum takes the same operations in the same order as in ReadTokens.
func (s *Moments) ReadFewTokens(ar *arena.Arena, m *Monomials, a []float, lda, n int, o, den []float) {
	mark := ar.Mark()
	defer ar.Reset(mark)
	ldx := m.Width + 1 + kernel.Lanes
	x := arena.Take[float](ar, n*ldx)
	for i := range n {
		row := x[i*ldx:][:ldx]
		row[0] = 1
		copy(row[1:], a[i*lda:][:m.Width])
	}
	ld := BlockSize + max(featureRoom, m.Width+1) + kernel.Lanes
	phi := arena.Take[float](ar, n*ld)
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
func (s *Moments) mix(ar *arena.Arena, t *kernel.Table[float], phi []float, ld, f, k, n int, o, den []float) {
	if n == 1 {
		den[0] = t.Mix(o[:s.Stride], phi[:k], BlockSize, s.S[f*s.Stride:], s.Stride, s.Z[f:], den[0])
		return
	}
	mark := ar.Mark()
	// Column c has the sums of Z from f+c on. The first is wanted, the others fill the
	// vector.
	sums := arena.TakeZeros[float](ar, n*kernel.Lanes)
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

// AppendFlat appends the moments to the slice to as [F, 1+dv]: for each feature its element of
// Z and its row of S, without padding and without Residual.
func (s *Moments) AppendFlat(to []float, dv int) []float {
	for f := range len(s.S) / s.Stride {
		if s.NonEmpty {
			to = append(append(to, s.Z[f]), s.S[f*s.Stride:][:dv]...)
		} else {
			to = append(to, make([]float, 1+dv)...)
		}
	}
	return to
}

// SetFlat sets the moments from [F, 1+dv] elements in the order of AppendFlat, and returns the
// elements of from after them.
func (s *Moments) SetFlat(from []float, dv int) []float {
	for f := range len(s.S) / s.Stride {
		row := s.S[f*s.Stride:][:s.Stride]
		clear(row[copy(row, from[1:1+dv]):])
		s.Z[f] = from[0]
		from = from[1+dv:]
	}
	s.NonEmpty = true
	return from
}

// ShapeAs gives s the shape of p, with undefined contents.
func (s *Moments) ShapeAs(p *Moments) {
	s.S, s.Z, s.Stride = scratch.Grow(s.S[:0], len(p.S)), scratch.Grow(s.Z[:0], len(p.Z)), p.Stride
}
