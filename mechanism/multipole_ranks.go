package mechanism

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

// The tokens of a call that is not causal may be divided among ranks. The keys that are near to
// queries of another rank, a few on each side of a cut, and the keys that are near to all queries
// form the border: every rank gets their rows. For all other keys the ranks exchange the sums of
// the cells. A rank then makes a pass over the sinks, the keys near to its own queries and the
// ends, which begins with the sums of all other keys. Backward sends the gradients of those sums
// back to the keys.

// rankPart is the part of a call that a rank has: queries q0 ≤ i < q1 and keys k0 ≤ j < k1.
type rankPart struct{ q0, q1, k0, k1 int }

// dividedRow holds which keys of a batch row are near to the queries of which rank. Keys before
// sinks and from ends up to last are near to all queries. From last on all keys are masked.
type dividedRow struct {
	sinks, ends, last int
	near              [][2]int // [ranks] lo ≤ j < hi: keys between sinks and ends that are near to some query of a rank
	border            []int    // ascending: sinks, ends, and keys in near of another rank than their own
}

// dividedCall is a call over tokens divided among ranks.
type dividedCall struct {
	x     *multipoleAttention
	ranks *comm.Comm
	c     *attention.Call
	momentLayout
	cells int
	parts []rankPart
	own   rankPart
	shift int // M-N of the whole call
	rows  []dividedRow

	border     [][]float // [B·Hkv][border][D+Dv+2]: key, value, 1 if it is unmasked, cell
	ownCells   [][]float // [B·Hkv][own keys] rows of the codebook, -1: none
	references [][]float // [B·Hkv][cells][D], with orders above 0
	past       [][]float // [B·Hkv][2][cells][width]: hi and lo of the sums of keys outside the rank's pass
	counts     [][]uint64
	lse        [][]float // [B·H][own queries]
}

// perHead returns a slice for each of n heads, of size elements each.
func perHead[E any](n, size int) [][]E {
	list, all := make([][]E, n), make([]E, n*size)
	for i := range list {
		list[i] = all[i*size:][:size:size]
	}
	return list
}

// heads returns the number of key heads of all batch rows.
func (s *dividedCall) heads() int { return s.c.K.B * s.c.K.H }

// exists reports whether key j of the part is unmasked.
func (s *dividedCall) exists(b, j int) bool {
	c := s.c
	return (c.KeyMask == nil || c.KeyMask[b*c.K.N+j]) && (c.KeyLens == nil || int64(j) < c.KeyLens[b])
}

// locate exchanges the sizes of the ranks' parts and sets parts, own, shift and rows.
func (s *dividedCall) locate() error {
	c := s.c
	told := binary.LittleEndian.AppendUint64(nil, uint64(c.Q.N))
	told = binary.LittleEndian.AppendUint64(told, uint64(c.K.N))
	for b := range c.K.B {
		last := c.K.N
		for last > 0 && !s.exists(b, last-1) {
			last--
		}
		told = binary.LittleEndian.AppendUint64(told, uint64(last))
	}
	all, err := comm.AllGather(s.ranks, told)
	if err != nil {
		return err
	}
	s.rows = make([]dividedRow, c.K.B)
	at := rankPart{}
	for r, other := range all {
		if len(other) != len(told) {
			return errors.New("ranks: one has another number of batch rows")
		}
		number := func(i int) int { return int(binary.LittleEndian.Uint64(other[8*i:])) }
		at = rankPart{at.q1, at.q1 + number(0), at.k1, at.k1 + number(1)}
		s.parts = append(s.parts, at)
		if r == s.ranks.Rank() {
			s.own = at
		}
		for b := range s.rows {
			if last := number(2 + b); last > 0 {
				s.rows[b].last = at.k0 + last
			}
		}
	}
	s.shift = at.k1 - at.q1
	for b := range s.rows {
		s.x.setRow(&s.rows[b], s.parts, s.shift)
	}
	return nil
}

// setRow sets all fields of w, given last.
func (x *multipoleAttention) setRow(w *dividedRow, parts []rankPart, shift int) {
	w.sinks = min(x.sinks, w.last)
	w.ends = max(w.last-x.ends, w.sinks)
	inner := func(j int) int { return max(min(j, w.ends), w.sinks) }
	for j := range w.sinks {
		w.border = append(w.border, j)
	}
	for j := w.ends; j < w.last; j++ {
		w.border = append(w.border, j)
	}
	for _, p := range parts {
		near := [2]int{w.sinks, w.sinks}
		if p.q0 < p.q1 {
			first, last := floorDiv(p.q0+shift, x.block), floorDiv(p.q1-1+shift, x.block)
			near = [2]int{inner(first*x.block - x.window), inner((last+1)*x.block + x.window)}
		}
		w.near = append(w.near, near)
		for j := near[0]; j < near[1]; j++ {
			if j < p.k0 || j >= p.k1 {
				w.border = append(w.border, j)
			}
		}
	}
	slices.Sort(w.border)
	w.border = slices.Compact(w.border)
}

// isInner reports whether key j of the sequence may be far from a query.
func (w *dividedRow) isInner(j int) bool { return w.sinks <= j && j < w.ends }

// isIn reports whether key j is in the pass of a rank.
func (w *dividedRow) isIn(j, rank int) bool {
	return !w.isInner(j) || w.near[rank][0] <= j && j < w.near[rank][1]
}

// inBorder returns the place of key j in the border, and whether it is there.
func (w *dividedRow) inBorder(j int) (int, bool) { return slices.BinarySearch(w.border, j) }

// dividedPart is the rank's part of a key head.
type dividedPart struct {
	b, keyHead int
	row        *dividedRow
	k, v       tensor.Mat // [own keys,D] rotated, [own keys,Dv]; zeros of masked keys
}

func (s *dividedCall) part(ar *arena.Arena, i int) dividedPart {
	c := s.c
	p := dividedPart{b: i / c.K.H, keyHead: i % c.K.H}
	p.row = &s.rows[p.b]
	var mask []bool
	if c.KeyMask != nil || c.KeyLens != nil {
		mask = make([]bool, c.K.N)
		for j := range mask {
			mask[j] = s.exists(p.b, j)
		}
	}
	p.k = headwise.RotateAndMask(ar, c.K.Head(p.b, p.keyHead), mask, c.Rope, 0)
	p.v = headwise.RotateAndMask(ar, c.V.Head(p.b, p.keyHead), mask, nil, 0)
	return p
}

// findCells sets ownCells.
func (s *dividedCall) findCells() {
	s.ownCells = perHead[float](s.heads(), s.c.K.N)
	par.RunEach(s.heads(), s.x.rankWork(s.c), func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		p := s.part(ar, i)
		cells := s.ownCells[i]
		for j := range cells {
			cells[j] = -1
		}
		mask := make([]bool, s.c.K.N)
		for j := range mask {
			mask[j] = s.exists(p.b, j)
		}
		h := headwise.Head{K: p.k, Mask: mask, Scratch: ar, Table: kernel.Active[float](), KeyHead: p.keyHead, KeyHeads: s.c.K.H}
		book := s.x.book(p.keyHead, s.c.K.H)
		first, last := min(max(p.row.sinks-s.own.k0, 0), s.c.K.N), min(max(p.row.ends-s.own.k0, 0), s.c.K.N)
		s.x.assignKeys(&h, cells, first, last, newNearestCells(book, arena.Take[float](ar, kernel.Pad(book.Rows))).withRoom(ar))
	})
}

// rankWork returns the operations of the rank's part of a call.
func (x *multipoleAttention) rankWork(c *attention.Call) float64 {
	s := c.Shape()
	s.B = 1
	return float64(c.Q.B*c.Q.H) * x.Cost(s).FLOPs
}

// shareBorder sends the rows of the border to all ranks.
func (s *dividedCall) shareBorder() error {
	width := s.d + s.dv + 2
	var own []float
	for i := range s.heads() {
		ar := arena.Acquire()
		p := s.part(ar, i)
		for _, j := range p.row.border {
			if j -= s.own.k0; j < 0 || j >= s.c.K.N {
				continue
			}
			own = append(append(own, p.k.Row(j)...), p.v.Row(j)...)
			exists := float(0)
			if s.exists(p.b, j) {
				exists = 1
			}
			own = append(own, exists, s.ownCells[i][j])
		}
		ar.Release()
	}
	all, err := comm.AllGather(s.ranks, own)
	if err != nil {
		return err
	}
	s.border = make([][]float, s.heads())
	for i := range s.border {
		border := s.rows[i/s.c.K.H].border
		for r, p := range s.parts {
			from, _ := slices.BinarySearch(border, p.k0)
			to, _ := slices.BinarySearch(border, p.k1)
			n := (to - from) * width
			s.border[i], all[r] = append(s.border[i], all[r][:n]...), all[r][n:]
		}
	}
	return nil
}

// borderRow returns key number at of the border of head i.
func (s *dividedCall) borderRow(i, at int) (k, v []float, exists bool, cell int32) {
	row := s.border[i][at*(s.d+s.dv+2):][:s.d+s.dv+2]
	return row[:s.d], row[s.d:][:s.dv], row[s.d+s.dv] > 0, int32(row[s.d+s.dv+1])
}

// agreeOnReferences makes the first key of each cell its reference on all ranks.
func (s *dividedCall) agreeOnReferences() error {
	if s.order == 0 {
		return nil
	}
	s.references = perHead[float](s.heads(), s.cells*s.d)
	has := make([]byte, s.heads()*s.cells)
	for i := range s.references {
		ar := arena.Acquire()
		p := s.part(ar, i)
		for j, cell := range s.ownCells[i] {
			if cell < 0 || has[i*s.cells+int(cell)] != 0 {
				continue
			}
			has[i*s.cells+int(cell)] = 1
			copy(s.references[i][int(cell)*s.d:], p.k.Row(j))
		}
		ar.Release()
	}
	all, err := comm.AllGather(s.ranks, has)
	if err != nil {
		return err
	}
	for i := range has {
		for _, before := range all[:s.ranks.Rank()] {
			if before[i] != 0 {
				clear(s.references[i/s.cells][i%s.cells*s.d:][:s.d])
			}
		}
	}
	flat := slices.Concat(s.references...)
	if err := comm.AllReduce(s.ranks, flat); err != nil {
		return err
	}
	for i := range s.references {
		copy(s.references[i], flat[i*s.cells*s.d:])
	}
	return nil
}

// sumsOf returns sums of head i in the memory of the arena, zeros to begin with.
func (s *dividedCall) sumsOf(ar *arena.Arena, i int) cellSums {
	sums := cellSums{momentLayout: s.momentLayout, counts: arena.TakeZeros[uint64](ar, s.cells),
		hi: arena.TakeZeros[float](ar, s.cells*s.width), lo: arena.TakeZeros[float](ar, s.cells*s.width)}
	if s.order > 0 {
		sums.references = s.references[i]
	}
	return sums
}

// exchangeSums sets past and counts: the sums of the keys that are not in the rank's pass.
func (s *dividedCall) exchangeSums() error {
	size := s.cells * (1 + s.width)
	middle := perHead[float64](s.heads(), size) // sums over the rank's keys that are not in the border
	s.past, s.counts = perHead[float](s.heads(), 2*s.cells*s.width), perHead[uint64](s.heads(), s.cells)
	t, rank := kernel.Active[float](), s.ranks.Rank()
	each := func(f func(i int, p dividedPart, sums *cellSums, room []float)) {
		par.RunEach(s.heads(), float64(s.heads()*s.c.K.N*s.width), func(i int) {
			ar := arena.Acquire()
			defer ar.Release()
			sums := s.sumsOf(ar, i)
			f(i, s.part(ar, i), &sums, arena.Take[float](ar, s.d+s.width))
		})
	}
	each(func(i int, p dividedPart, sums *cellSums, room []float) {
		for j, cell := range s.ownCells[i] {
			if _, shared := p.row.inBorder(s.own.k0 + j); cell >= 0 && !shared {
				sums.add(t, int(cell), p.k.Row(j), p.v.Row(j), 1, room)
			}
		}
		for c, n := range sums.counts {
			middle[i][c] = float64(n)
		}
		for e, y := range sums.hi {
			middle[i][s.cells+e] = float64(y) + float64(sums.lo[e])
		}
	})
	others, err := s.sumOthers(middle)
	if err != nil {
		return err
	}
	each(func(i int, p dividedPart, sums *cellSums, room []float) {
		for c := range sums.counts {
			sums.counts[c] = uint64(others[i][c])
		}
		for e, y := range others[i][s.cells:] {
			sums.hi[e] = float(y)
			sums.lo[e] = float(y - float64(sums.hi[e]))
		}
		for j, cell := range s.ownCells[i] {
			if at := s.own.k0 + j; cell >= 0 && !p.row.isIn(at, rank) {
				if _, shared := p.row.inBorder(at); !shared {
					sums.add(t, int(cell), p.k.Row(j), p.v.Row(j), 1, room)
				}
			}
		}
		for at, j := range p.row.border {
			if k, v, _, cell := s.borderRow(i, at); cell >= 0 && !p.row.isIn(j, rank) {
				sums.add(t, int(cell), k, v, 1, room)
			}
		}
		copy(s.counts[i], sums.counts)
		copy(s.past[i], sums.hi)
		copy(s.past[i][len(sums.hi):], sums.lo)
	})
	return nil
}

// sumOthers returns the sums of x over the other ranks.
func (s *dividedCall) sumOthers(x [][]float64) ([][]float64, error) {
	before := slices.Concat(x...)
	after := slices.Clone(before)
	if err := comm.ExclusiveScan(s.ranks, before, nil); err != nil {
		return nil, err
	}
	if err := comm.ReverseScan(s.ranks, after, nil); err != nil {
		return nil, err
	}
	sums := perHead[float64](len(x), len(before)/max(len(x), 1))
	for i := range sums {
		for e := range sums[i] {
			sums[i][e] = before[i*len(sums[i])+e] + after[i*len(sums[i])+e]
		}
	}
	return sums, nil
}

// eachPassKey returns the number of keys of the rank's pass: the sinks, those near to its queries,
// and the ends. It calls f, unless nil, with the row and the place of each.
func (w *dividedRow) eachPassKey(rank int, f func(r, j int)) (rows int) {
	for _, s := range [3][2]int{{0, w.sinks}, w.near[rank], {w.ends, w.last}} {
		for j := s[0]; j < s[1]; j++ {
			if f != nil {
				f(rows, j)
			}
			rows++
		}
	}
	return rows
}

// passKeys are the keys of the rank's pass of a key head.
type passKeys struct {
	k, v  tensor.Mat
	mask  []bool
	cells []int32
}

func (s *dividedCall) passKeys(ar *arena.Arena, i int, p dividedPart) (x passKeys) {
	rank := s.ranks.Rank()
	rows := p.row.eachPassKey(rank, nil)
	x = passKeys{k: scratch.TakeMat(ar, rows, s.d), v: scratch.TakeMat(ar, rows, s.dv), mask: make([]bool, rows), cells: arena.Take[int32](ar, rows)}
	p.row.eachPassKey(rank, func(r, j int) {
		var k, v []float
		if at, shared := p.row.inBorder(j); shared {
			k, v, x.mask[r], x.cells[r] = s.borderRow(i, at)
		} else {
			j -= s.own.k0
			k, v, x.mask[r], x.cells[r] = p.k.Row(j), p.v.Row(j), s.exists(p.b, j), int32(s.ownCells[i][j])
		}
		copy(x.k.Row(r), k)
		copy(x.v.Row(r), v)
	})
	return x
}

// pass returns the pass of query head g of a group and the bounds of its blocks. The block from
// which it begins is the last one if backward is set.
func (s *dividedCall) pass(ar *arena.Arena, i, g int, p dividedPart, keys passKeys, backward bool) (*headwise.Head, multipolePass, int, int) {
	c, x, row, rank := s.c, s.x, p.row, s.ranks.Rank()
	head := p.keyHead*(c.Q.H/c.K.H) + g
	skipped := row.near[rank][0] - row.sinks
	h := &headwise.Head{Q: headwise.RotateAndMask(ar, c.Q.Head(p.b, head), nil, c.Rope, 0), K: keys.k, V: keys.v, Out: scratch.TakeMat(ar, c.Q.N, s.dv),
		Mask: keys.mask, Shift: s.own.q0 + s.shift - skipped, Head: head, KeyHead: p.keyHead, KeyHeads: c.K.H, Scratch: ar, Table: kernel.Active[float]()}
	m := multipolePass{multipoleAttention: x, h: h, scale: x.factor(s.d), cells: keys.cells, length: x.block, ordered: true, count: s.cells,
		skipped: skipped, end: keys.k.Rows, first: row.sinks, last: row.sinks + row.near[rank][1] - row.near[rank][0]}
	m.takeSums(s.momentLayout)
	past := s.sumsOf(ar, i)
	copy(past.counts, s.counts[i])
	copy(past.hi, s.past[i])
	copy(past.lo, s.past[i][len(past.hi):])
	m.past, m.sums.references = &past, past.references
	copy(m.sums.counts, past.counts)
	copy(m.sums.hi, past.hi)
	copy(m.sums.lo, past.lo)
	for cell, n := range m.sums.counts {
		if n > 0 {
			m.used, m.isStale[cell], m.stale = m.count, 1, append(m.stale, int32(cell))
		}
	}
	m.near = m.newNearKeys(min(m.first+x.nearLength(false)+h.K.Rows-m.last, h.K.Rows), 0)
	m.tame = !scratch.HasNonFiniteSum(h.K.Slice(m.first, m.last)) && !scratch.HasNonFiniteSum(h.V.Slice(m.first, m.last))
	q0 := s.own.q0 + s.shift
	first, end := floorDiv(q0, x.block), floorDiv(q0+c.Q.N-1, x.block)+1
	if backward {
		m.start(end - 1)
	} else {
		m.start(first)
	}
	return h, m, first, end
}

// ForwardDivided computes Forward of a call that is not causal, with tokens divided among ranks.
// It returns an error if tilt is set, if the sums would be too large, if the exchange between ranks
// fails, or if keep is nil and an output is not finite.
func (x *multipoleAttention) ForwardDivided(ranks *comm.Comm, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if x.tilt != nil {
		return errors.New("multipole: setting tilt=true: needs causal=true with ranks, causal is false; take tilt=false, or exchange with --fit 0")
	}
	s := &dividedCall{x: x, ranks: ranks, c: c, momentLayout: newMomentLayout(x.order, c.K.D, c.V.D), cells: x.codebook.Shape[1]}
	shape := c.Shape()
	if err := shape.CheckStateSize(float64(s.heads()*s.cells) * (32*float64(1+s.width) + 2*entry.ElementBytes()*float64(s.width))); err != nil {
		return err // the same on all ranks
	}
	if err := s.locate(); err != nil {
		return err
	}
	s.findCells()
	for _, f := range []func() error{s.shareBorder, s.agreeOnReferences, s.exchangeSums} {
		if err := f(); err != nil {
			return err
		}
	}
	s.lse = perHead[float](c.Q.B*c.Q.H, c.Q.N)
	broken := make([]bool, s.heads())
	par.RunEach(s.heads(), x.rankWork(c), func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		p, group := s.part(ar, i), c.Q.H/c.K.H
		keys := s.passKeys(ar, i, p)
		for g := range group {
			head := p.keyHead*group + g
			to := out.Head(p.b, head)
			if p.row.last == 0 {
				scratch.ClearRows(to, 0, c.Q.N)
				continue
			}
			if c.Q.N == 0 {
				continue
			}
			mark := ar.Mark()
			h, m, first, end := s.pass(ar, i, g, p, keys, false)
			m.forward(s.lse[p.b*c.Q.H+head], first, end)
			scratch.CopyMat(to, h.Out)
			broken[i] = broken[i] || scratch.HasNonFiniteSum(h.Out)
			ar.Reset(mark)
		}
	})
	if keep != nil {
		keep.Den, keep.Moments, keep.Heads = keep.Den[:0], keep.Moments[:0], keep.Heads[:0]
		keep.UnseenCount, keep.WeakCount, keep.Aux, keep.Residual, keep.ExactShare = 0, 0, 0, 0, 0
		for b := range s.rows {
			if s.rows[b].last == 0 {
				keep.UnseenCount += int64(c.Q.N * c.Q.H)
			}
		}
		keep.Own = s
	}
	return attention.ReportNonFinite(out, keep, slices.Contains(broken, true))
}

// BackwardDivided computes Backward of a call with tokens divided among ranks. It returns an error
// if keep is not from ForwardDivided of this call, or if the exchange between ranks fails.
func (x *multipoleAttention) BackwardDivided(ranks *comm.Comm, g *attention.Grads, dout, out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	s, ok := keep.Own.(*dividedCall)
	var failed error
	if !ok || s.x != x || s.own.q1-s.own.q0 != c.Q.N || s.own.k1-s.own.k0 != c.K.N || s.c.Shape() != c.Shape() {
		failed = errOtherSegment
	}
	if err := comm.ShareError(ranks, failed); err != nil {
		return err
	}
	s.c, s.ranks = c, ranks
	b := dividedBackward{dividedCall: s, g: g, dout: dout, out: out, sums: perHead[float64](s.heads(), s.cells*s.width),
		keys: perHead[float](s.heads(), c.K.N*s.d), values: perHead[float](s.heads(), c.K.N*s.dv), border: make([][]float, s.heads())}
	par.RunEach(s.heads(), 3*x.rankWork(c), b.backQueries)
	later, err := s.sumOthers(b.sums)
	if err != nil {
		return err
	}
	border := slices.Concat(b.border...)
	if err := comm.AllReduce(ranks, border); err != nil {
		return err
	}
	for i := range b.border {
		n := len(b.border[i])
		b.border[i], border = border[:n], border[n:]
	}
	par.RunEach(s.heads(), float64(s.heads()*c.K.N*s.width), func(i int) { b.backKeys(i, later[i]) })
	return nil
}

// dividedBackward is Backward of a dividedCall.
type dividedBackward struct {
	*dividedCall
	g         *attention.Grads
	dout, out tensor.Heads
	sums      [][]float64 // [B·Hkv] gradients of past, by the rank's own queries
	keys      [][]float   // [B·Hkv][own keys][D] gradients by the rank's own queries
	values    [][]float   // [B·Hkv][own keys][Dv]
	border    [][]float   // [B·Hkv][border][D+Dv] gradients of the border by the rank's own queries
}

// backQueries sets the gradients of key head i through the rank's own queries.
func (s *dividedBackward) backQueries(i int) {
	ar := arena.Acquire()
	defer ar.Release()
	c, t, rank := s.c, kernel.Active[float](), s.ranks.Rank()
	p, group := s.part(ar, i), s.c.Q.H/s.c.K.H
	keys := s.passKeys(ar, i, p)
	rows, width := keys.k.Rows, s.d+s.dv
	s.border[i] = make([]float, len(p.row.border)*width)
	dk, dv := zeroMat(ar, rows, s.d), zeroMat(ar, rows, s.dv)
	sums := arena.TakeZeros[float](ar, s.cells*s.width)
	for g := range group {
		head := p.keyHead*group + g
		dq := s.g.DQ.Head(p.b, head)
		if c.Q.N == 0 || p.row.last == 0 {
			scratch.ClearRows(dq, 0, c.Q.N)
			continue
		}
		mark := ar.Mark()
		h, m, first, end := s.pass(ar, i, g, p, keys, true)
		scratch.CopyMat(h.Out, s.out.Head(p.b, head))
		h.NeedsBackward, h.Saved = true, s.lse[p.b*c.Q.H+head]
		own := &headwise.Grads{DOut: scratch.Contiguous(ar, s.dout.Head(p.b, head)),
			DQ: scratch.TakeMat(ar, c.Q.N, s.d), DK: scratch.TakeMat(ar, rows, s.d), DV: scratch.TakeMat(ar, rows, s.dv)}
		own.Clear()
		m.backward(own, end-1, first)
		t.Add(dk.Data, dk.Data, own.DK.Data)
		t.Add(dv.Data, dv.Data, own.DV.Data)
		t.Add(sums, sums, m.grads.sums)
		if c.Rope != nil {
			c.Rope.RotateRows(own.DQ, 0, true)
		}
		scratch.CopyMat(dq, own.DQ)
		ar.Reset(mark)
	}
	for e, y := range sums {
		s.sums[i][e] = float64(y)
	}
	// First the keys in the pass, then those in the sums with which the pass began.
	p.row.eachPassKey(rank, func(r, j int) {
		if at, shared := p.row.inBorder(j); shared {
			copy(s.border[i][at*width:], dk.Row(r))
			copy(s.border[i][at*width+s.d:], dv.Row(r))
		} else {
			copy(s.keys[i][(j-s.own.k0)*s.d:], dk.Row(r))
			copy(s.values[i][(j-s.own.k0)*s.dv:], dv.Row(r))
		}
	})
	n := len(p.row.border)
	k, v := zeroMat(ar, n, s.d), zeroMat(ar, n, s.dv)
	bk, bv := zeroMat(ar, n, s.d), zeroMat(ar, n, s.dv)
	cells := arena.Take[int32](ar, n)
	for at := range n {
		y, z, _, cell := s.borderRow(i, at)
		copy(k.Row(at), y)
		copy(v.Row(at), z)
		cells[at] = cell
	}
	m := s.puller(ar, i, k, v, cells, bk, bv, sums)
	for at, j := range p.row.border {
		if p.row.isIn(j, rank) {
			continue
		}
		m.pull(at, 1)
		copy(s.border[i][at*width:], bk.Row(at))
		copy(s.border[i][at*width+s.d:], bv.Row(at))
	}
	m = s.puller(ar, i, p.k, p.v, s.cellNumbers(ar, i), matrixOf(s.keys[i], s.c.K.N, s.d), matrixOf(s.values[i], s.c.K.N, s.dv), sums)
	for j := range s.c.K.N {
		if _, shared := p.row.inBorder(s.own.k0 + j); !shared && !p.row.isIn(s.own.k0+j, rank) {
			m.pull(j, 1)
		}
	}
}

// cellNumbers returns ownCells of head i as whole numbers.
func (s *dividedBackward) cellNumbers(ar *arena.Arena, i int) []int32 {
	cells := arena.Take[int32](ar, s.c.K.N)
	for j, cell := range s.ownCells[i] {
		cells[j] = int32(cell)
	}
	return cells
}

// puller returns a pass for pull, which adds the gradients through the sums to dk and dv.
func (s *dividedBackward) puller(ar *arena.Arena, i int, k, v tensor.Mat, cells []int32, dk, dv tensor.Mat, sums []float) multipolePass {
	h := &headwise.Head{K: k, V: v, Scratch: ar, Table: kernel.Active[float]()}
	m := multipolePass{multipoleAttention: s.x, h: h, cells: cells, count: s.cells, sums: cellSums{momentLayout: s.momentLayout},
		room: arena.Take[float](ar, s.d+s.width), grads: multipoleGrads{Grads: &headwise.Grads{DK: dk, DV: dv}, sums: sums}}
	if s.order > 0 {
		m.sums.references = s.references[i]
	}
	return m
}

// backKeys sets the gradients of the keys and values of key head i. later holds the gradients of the
// sums through the queries of the other ranks.
func (s *dividedBackward) backKeys(i int, later []float64) {
	ar := arena.Acquire()
	defer ar.Release()
	c, width := s.c, s.d+s.dv
	p := s.part(ar, i)
	sums := arena.Take[float](ar, len(later))
	for e, y := range later {
		sums[e] = float(y)
	}
	dk, dv := matrixOf(s.keys[i], c.K.N, s.d), matrixOf(s.values[i], c.K.N, s.dv)
	m := s.puller(ar, i, p.k, p.v, s.cellNumbers(ar, i), dk, dv, sums)
	for j := range c.K.N {
		if at, shared := p.row.inBorder(s.own.k0 + j); shared {
			row := s.border[i][at*width:][:width]
			copy(dk.Row(j), row)
			copy(dv.Row(j), row[s.d:])
		} else {
			m.pull(j, 1)
		}
		if !s.exists(p.b, j) {
			clear(dk.Row(j))
			clear(dv.Row(j))
		}
	}
	if c.Rope != nil {
		c.Rope.RotateRows(dk, 0, true)
	}
	scratch.CopyMat(s.g.DK.Head(p.b, p.keyHead), dk)
	scratch.CopyMat(s.g.DV.Head(p.b, p.keyHead), dv)
}
