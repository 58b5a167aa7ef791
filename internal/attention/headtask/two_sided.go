package headtask

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// This is a far field on both sides of a window. A query at position p = i+Offset has the far
// keys j ≤ p-w and j ≥ p+w. The keys of each chunk are summed once. Running sums in both
// directions give the sums of all chunks before and after a block of queries; nothing is
// subtracted. If only some queries of a block see a chunk, its weights are computed pair by
// pair.
//
// The sums of many chunks are held at a time. They are therefore computed for one block of
// features at a time, which fits the cache.

// TwoSidedForm computes the far field on both sides of a window of the given width.
type TwoSidedForm struct {
	*Task
	width int
	first int // place of the first query of block 0, which may lie before query 0

	chunk   int // tokens
	columns int // stride of rows that run over a chunk's tokens
	stride  int // of values
	lda     int // of prepared rows

	keys    []float   // columns of each chunk under their ones [chunks, da+1, columns]
	values  []float   // [M, stride]
	queries [][]float // per head: columns of each block under ones [blocks, da+1, columns]

	o, den [][]float // forward, per head: numerators [N, stride] and denominators [N]

	// Backward. y and w are, per head, gradients of numerators and denominators.
	y, w      [][]float
	dq        [][]float // per head, like queries
	db, dk, v []float   // of keys from tiles [M, lda], of keys like keys, and of values
}

// TwoSided returns the form of a far field on both sides of a window. u.Offset is the position
// of query 0.
func (u *Task) TwoSided(width int) *TwoSidedForm {
	c := u.tokens()
	// The keys that a block sees on its left then end with a chunk.
	ahead := ((u.Offset-width)%c + c) % c
	return &TwoSidedForm{
		Task: u, width: width, first: u.Offset - ahead,
		chunk: c, columns: scratch.Stride[float](c), stride: kernel.Pad(u.Dv), lda: kernel.Pad(u.PreparedWidth),
	}
}

// TwoSidedChunk returns the number of tokens of a chunk for a far field on both sides of a
// window: the largest divisor of 2·width from size/2 to size, or size if there is none. With a
// divisor of 2·width, the keys that a block of queries sees end at chunk borders on both sides.
func TwoSidedChunk(width, size int) int {
	for c := size; 2*c >= size && c > 0; c-- {
		if 2*width%c == 0 {
			return c
		}
	}
	return size
}

// CountTwoSidedScratch returns the number of elements of the sums of a key head with m keys,
// the given number of features, and values of width dv.
func CountTwoSidedScratch(m, features, dv, chunk int) float64 {
	size := momentsSize(min(features, blockSize), kernel.Pad(dv))
	return float64(2*min(twoSidedParts(size), pieces(m, chunk))+2) * float64(size)
}

const blockSize = features.BlockSize

// TwoSidedRoom is the number of elements of sums that may be held at a time. The keys of a
// longer sequence are summed twice. Tests set a lower value.
var TwoSidedRoom = 1 << 22

// twoSidedParts returns the number of parts whose sums, of the given size, are held at a time.
func twoSidedParts(size int) int { return max(TwoSidedRoom/(2*size), 8) }

// momentsSize returns the number of elements of moments, without their spare room.
func momentsSize(features, stride int) int { return features * (stride + 1) }

// queriesOf returns the queries i0 ≤ i < i1 of block t.
func (u *TwoSidedForm) queriesOf(t int) (i0, i1 int) {
	i0 = u.first + t*u.chunk - u.Offset
	return max(i0, 0), min(i0+u.chunk, u.N)
}

// keysOf returns the keys j0 ≤ j < j1 of chunk k.
func (u *TwoSidedForm) keysOf(k int) (j0, j1 int) {
	return k * u.chunk, min((k+1)*u.chunk, u.M)
}

// blocks returns the number of blocks of queries.
func (u *TwoSidedForm) blocks() int {
	if u.N == 0 {
		return 0
	}
	return pieces(u.N+u.Offset-u.first, u.chunk)
}

// chunks returns the number of chunks of keys.
func (u *TwoSidedForm) chunks() int { return pieces(u.M, u.chunk) }

// chunksBefore returns how many chunks of keys lie before the windows of all queries of block t.
func (u *TwoSidedForm) chunksBefore(t int) int {
	i0, _ := u.queriesOf(t)
	keys := i0 + u.Offset - u.width + 1
	if keys >= u.M {
		return u.chunks()
	}
	return max(keys, 0) / u.chunk
}

// firstChunkAfter returns the first chunk of keys that lies after the windows of all queries of
// block t.
func (u *TwoSidedForm) firstChunkAfter(t int) int {
	_, i1 := u.queriesOf(t)
	return min(pieces(i1-1+u.Offset+u.width, u.chunk), u.chunks())
}

// blocksBefore returns how many blocks of queries, the first, have chunk k after them.
func (u *TwoSidedForm) blocksBefore(k int) int {
	return countUpTo(u.blocks(), func(t int) bool { return u.firstChunkAfter(t) <= k })
}

// firstBlockAfter returns the first block of queries that has chunk k before it.
func (u *TwoSidedForm) firstBlockAfter(k int) int {
	return countUpTo(u.blocks(), func(t int) bool { return u.chunksBefore(t) <= k })
}

// countUpTo returns how many of the numbers below n meet a condition that holds for
// the first of them alone.
func countUpTo(n int, holds func(i int) bool) int {
	lo, hi := 0, n
	for lo < hi {
		if mid := (lo + hi) / 2; holds(mid) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// columnsAt returns chunk or block i of columns.
func (u *TwoSidedForm) columnsAt(x []float, i int) []float {
	size := (u.PreparedWidth + 1) * u.columns
	return x[i*size:][:size]
}

// takeColumns takes columns of n chunks or blocks.
func (u *TwoSidedForm) takeColumns(n int) []float {
	return arena.Take[float](u.Arena, n*(u.PreparedWidth+1)*u.columns)
}

// each calls f for n pieces, which pass the given number of stages.
func (u *TwoSidedForm) each(n, stages int, f func(s *Scan, group *tokenGroup, i int)) {
	eachPiece(u.Task, n, stages, func(u *Task) *Scan {
		s := u.memberScan()
		s.First = -1
		return s
	}, f)
}

// prepareKeys prepares all keys and values.
func (u *TwoSidedForm) prepareKeys() {
	u.keys, u.values = u.takeColumns(u.chunks()), arena.Take[float](u.Arena, u.M*u.stride)
	u.each(u.chunks(), 0, func(s *Scan, _ *tokenGroup, k int) {
		j0, j1 := u.keysOf(k)
		x, side := u.columnsAt(u.keys, k), s.Task.KeySide()
		s.prepare(x, &side, j0, j1)
		for j := j0; j < j1; j++ {
			if x[j-j0] = 0; u.HasKey(j) {
				x[j-j0] = 1
			}
		}
		s.Task.CopyValues(u.values[j0*u.stride:], u.stride, j0, j1)
	})
}

// prepareQueries prepares block t of the queries of head g.
func (u *TwoSidedForm) prepareQueries(s *Scan, g, t int) []float {
	i0, i1 := u.queriesOf(t)
	x, side := u.columnsAt(u.queries[g], t), s.Task.QuerySide(g)
	s.prepare(x, &side, i0, i1)
	for i := range i1 - i0 {
		x[i] = 1
	}
	return x
}

// Forward sets the numerators and denominators of all queries.
func (u *TwoSidedForm) Forward() {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	u.prepareKeys()
	for range u.Q {
		u.queries = append(u.queries, u.takeColumns(u.blocks()))
		u.o, u.den = append(u.o, arena.TakeZeros[float](u.Arena, u.N*u.stride)), append(u.den, arena.TakeZeros[float](u.Arena, u.N+kernel.Lanes))
	}
	u.each(u.blocks(), 0, func(s *Scan, _ *tokenGroup, t int) { u.answerTiles(s, t) })
	u.scanKeys(func(x *twoSidedMember, g, t, i0, i1 int) {
		x.sum.ReadTokens(x.Arena, x.part, u.columnsAt(u.queries[g], t), u.columns, i1-i0, true, u.o[g][i0*u.stride:], u.stride, u.den[g][i0:i1])
	})
	u.each(u.blocks(), 0, func(s *Scan, _ *tokenGroup, t int) {
		i0, i1 := u.queriesOf(t)
		for g := range u.Q {
			s.divideRows(g, i0, i1, 0, u.o[g][i0*u.stride:], u.den[g][i0:i1])
		}
	})
}

// answerTiles prepares block t of the queries and computes the pairs with their tiles.
func (u *TwoSidedForm) answerTiles(s *Scan, t int) {
	mark := s.Task.Arena.Mark()
	defer s.Task.Arena.Reset(mark)
	i0, _ := u.queriesOf(t)
	tiles := u.tiles(s.Task, t)
	for g := range u.Q {
		q := u.prepareQueries(s, g, t)
		for i := range tiles {
			tiles[i].eachBlock(func(b *block, r0, c0 int) {
				b.a, b.lda, b.hasColumns = q[u.columns+r0:], u.columns, true
				s.Task.polyBlock(b, tiles[i].values[c0*u.stride:], u.stride, u.o[g][(i0+r0)*u.stride:], u.stride, u.den[g][i0+r0:])
			})
		}
	}
}

// scanKeys has queries i0 ≤ i < i1 of every head, block t, read the sums of their far keys
// in whole chunks, for a block of features at a time.
func (u *TwoSidedForm) scanKeys(read func(x *twoSidedMember, g, t, i0, i1 int)) {
	for _, part := range u.Monomials.Parts() {
		twoSidedScan{
			task: u.Task, part: part, parts: u.chunks(), readers: u.blocks(), countBefore: u.chunksBefore, firstAfter: u.firstChunkAfter,
			add: func(x *twoSidedMember, k int, m *features.Moments) {
				j0, j1 := u.keysOf(k)
				keys := u.columnsAt(u.keys, k)
				m.AddTokens(x.Arena, x.part, keys, u.columns, j1-j0, u.values[j0*u.stride:], u.stride, keys[:j1-j0])
			},
			read: func(x *twoSidedMember, t int) {
				i0, i1 := u.queriesOf(t)
				for g := range u.Q {
					read(x, g, t, i0, i1)
				}
			},
		}.run()
	}
}

// Backward sets dQ, dK and dV.
func (u *TwoSidedForm) Backward() {
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	u.prepareKeys()
	for range u.Q {
		u.queries, u.dq = append(u.queries, u.takeColumns(u.blocks())), append(u.dq, u.takeColumns(u.blocks()))
		u.y, u.w = append(u.y, arena.Take[float](u.Arena, u.N*u.stride)), append(u.w, arena.Take[float](u.Arena, u.N))
	}
	u.dk, u.db = u.takeColumns(u.chunks()), arena.TakeZeros[float](u.Arena, u.M*u.lda)
	u.v = arena.TakeZeros[float](u.Arena, u.M*u.stride)
	u.each(u.blocks(), 1, u.backTiles)
	u.scanKeys(func(x *twoSidedMember, g, t, i0, i1 int) {
		x.addGrad(u, u.columnsAt(u.dq[g], t), u.columnsAt(u.queries[g], t), u.y[g][i0*u.stride:], u.w[g][i0:i1])
	})
	u.each(u.chunks(), 0, func(s *Scan, _ *tokenGroup, k int) {
		j0, j1 := u.keysOf(k)
		dk := u.columnsAt(u.dk, k)
		clear(dk)
		s.Task.Table.Transpose(dk[u.columns:], u.columns, u.db[j0*u.lda:], u.lda, j1-j0, u.PreparedWidth)
	})
	for _, part := range u.Monomials.Parts() {
		twoSidedScan{
			task: u.Task, part: part, parts: u.blocks(), readers: u.chunks(), countBefore: u.blocksBefore, firstAfter: u.firstBlockAfter,
			add: func(x *twoSidedMember, t int, m *features.Moments) {
				i0, i1 := u.queriesOf(t)
				for g := range u.Q {
					m.AddTokens(x.Arena, x.part, u.columnsAt(u.queries[g], t), u.columns, i1-i0, u.y[g][i0*u.stride:], u.stride, u.w[g][i0:i1])
				}
			},
			read: func(x *twoSidedMember, k int) {
				j0, j1 := u.keysOf(k)
				keys := u.columnsAt(u.keys, k)
				mark := x.Arena.Mark()
				x.sum.ReadTokens(x.Arena, x.part, keys, u.columns, j1-j0, true, u.v[j0*u.stride:], u.stride, arena.TakeZeros[float](x.Arena, j1-j0))
				x.Arena.Reset(mark)
				x.addGrad(u, u.columnsAt(u.dk, k), keys, u.values[j0*u.stride:], keys[:j1-j0])
			},
		}.run()
	}
	u.setGrads()
}

// setGrads takes the gradients of prepared rows back to the rows.
func (u *TwoSidedForm) setGrads() {
	var scales []float64
	if u.Workers > 1 {
		scales = u.scaleParts(u.blocks())
	}
	u.each(u.blocks(), 0, func(s *Scan, _ *tokenGroup, t int) {
		i0, i1 := u.queriesOf(t)
		s.Task.scalePart(scales, t)
		for g := range u.Q {
			side := s.Task.QuerySide(g)
			s.Task.DScale[g] += s.prepareGrad(u.DQ[g], u.columnsAt(u.dq[g], t), &side, i0, i1)
		}
	})
	u.sumScale(scales)
	u.each(u.chunks(), 0, func(s *Scan, _ *tokenGroup, k int) {
		j0, j1 := u.keysOf(k)
		side := s.Task.KeySide()
		s.prepareGrad(u.DK, u.columnsAt(u.dk, k), &side, j0, j1)
		for j := j0; j < j1; j++ {
			if row := u.DVal.Row(j); u.HasKey(j) {
				copy(row, u.v[j*u.stride:])
			} else {
				clear(row)
			}
		}
	})
}

// backTiles prepares block t of the queries and the gradients of their outputs, and sets
// the gradients from tiles. It adds the gradients of keys and values in the block's turn.
func (u *TwoSidedForm) backTiles(s *Scan, group *tokenGroup, t int) {
	ar := s.Task.Arena
	mark := ar.Mark()
	defer ar.Reset(mark)
	i0, i1 := u.queriesOf(t)
	n := i1 - i0
	tiles := u.tiles(s.Task, t)
	for i := range tiles {
		tiles[i].takeGrads(s.Task)
	}
	for g := range u.Q {
		mark := ar.Mark()
		q := u.prepareQueries(s, g, t)
		y, w := u.y[g][i0*u.stride:], u.w[g][i0:i1]
		rows, sums := s.outputGrad(g, i0, i1)
		copy(y, rows[:n*u.stride])
		copy(w, sums)
		s.Task.Spec.maskDenGrad(w, u.Den[g][i0:i1])
		dq := u.columnsAt(u.dq[g], t)
		clear(dq)
		if len(tiles) > 0 {
			a, da := s.transposeColumns(q, n), arena.TakeZeros[float](ar, n*u.lda)
			for i := range tiles {
				x := &tiles[i]
				x.eachBlock(func(b *block, r0, c0 int) {
					b.a, b.lda = a[r0*u.lda:], u.lda
					s.Task.blockGrad(b, &gradient{
						b: x.rows[c0*u.lda:], vt: x.valuesT[c0:], do: y[r0*u.stride:], ldo: u.stride, w: w[r0:],
						da: da[r0*u.lda:], Db: x.dkeys[c0*u.lda:], Dv: x.dvalues[c0*u.stride:],
					})
				})
			}
			s.Task.Table.Transpose(dq[u.columns:], u.columns, da, u.lda, n, u.PreparedWidth)
		}
		ar.Reset(mark)
	}
	if group != nil {
		group.waitForTurn(0, t)
	}
	for _, x := range tiles {
		rows := u.db[x.j0*u.lda : x.j1*u.lda]
		s.Task.Table.Add(rows, rows, x.dkeys)
		values := u.v[x.j0*u.stride : x.j1*u.stride]
		s.Task.Table.Add(values, values, x.dvalues)
	}
	if group != nil {
		group.passStage(0)
	}
}

// sideTile is the keys j0 ≤ j < j1 on one side of a block of queries that only some of
// them see as far keys.
type sideTile struct {
	u         *TwoSidedForm
	j0, j1, n int  // keys, and queries of the block
	edge      int  // on the left query r sees keys j ≤ edge+r, on the right j ≥ edge+r
	isRight   bool // side
	mask      []bool

	keys, values []float // columns of the keys [da, ld], values [j1-j0, stride]
	ld           int

	rows, valuesT, dkeys, dvalues []float // backward: keys as rows, values as columns, gradients of both
}

// tiles returns the tiles of block t that have keys, in memory of task.
func (u *TwoSidedForm) tiles(task *Task, t int) (tiles []sideTile) {
	i0, i1 := u.queriesOf(t)
	a, b, n := i0+u.Offset, i1-1+u.Offset, i1-i0
	for _, x := range [2]sideTile{
		{u: u, j0: u.chunksBefore(t) * u.chunk, j1: min(b-u.width+1, u.M), edge: a - u.width, n: n},
		{u: u, j0: max(a+u.width, 0), j1: min(u.firstChunkAfter(t)*u.chunk, u.M), edge: a + u.width, n: n, isRight: true},
	} {
		if x.j0 < x.j1 {
			x.load(task)
			tiles = append(tiles, x)
		}
	}
	return tiles
}

// load sets the keys and values of the tile.
func (x *sideTile) load(task *Task) {
	u := x.u
	x.ld = scratch.Stride[float](x.j1 - x.j0)
	x.keys, x.values = arena.Take[float](task.Arena, u.PreparedWidth*x.ld), u.values[x.j0*u.stride:x.j1*u.stride]
	for j := x.j0; j < x.j1; {
		k := j / u.chunk
		from, n := u.columnsAt(u.keys, k)[u.columns+j-k*u.chunk:], min((k+1)*u.chunk, x.j1)-j
		for c := range u.PreparedWidth {
			copy(x.keys[c*x.ld+j-x.j0:][:n], from[c*u.columns:])
		}
		j += n
	}
	if u.Mask != nil && slices.Contains(u.Mask[x.j0:x.j1], false) {
		x.mask = u.Mask[x.j0:x.j1]
	}
}

// takeGrads takes room for the gradients of the tile.
func (x *sideTile) takeGrads(task *Task) {
	u, n := x.u, x.j1-x.j0
	x.rows = arena.TakeZeros[float](task.Arena, n*u.lda)
	task.Table.Transpose(x.rows, u.lda, x.keys, x.ld, u.PreparedWidth, n)
	x.valuesT = arena.Take[float](task.Arena, u.Dv*x.ld)
	task.Table.Transpose(x.valuesT, x.ld, x.values, u.stride, n, u.Dv)
	x.dkeys, x.dvalues = arena.TakeZeros[float](task.Arena, n*u.lda), arena.TakeZeros[float](task.Arena, n*u.stride)
}

// sideRows is the number of queries on the right that meet keys at a time. These begin
// with the first that one of the queries sees.
const sideRows = diagonalRows

// eachBlock calls f for blocks of queries from r0 on and keys from c0 on, which lack
// the queries.
func (x *sideTile) eachBlock(f func(b *block, r0, c0 int)) {
	nk := x.j1 - x.j0
	if !x.isRight {
		r0 := max(x.j0-x.edge, 0) // queries before it see none
		f(x.block(0, x.n-r0, x.edge+r0-x.j0), r0, 0)
		return
	}
	for r0 := 0; r0 < x.n; r0 += sideRows {
		begin := x.edge + r0 - x.j0 // the first key that query r0 sees
		if begin >= nk {
			return
		}
		c0 := max(begin, 0) / kernel.Lanes * kernel.Lanes
		b := x.block(c0, min(sideRows, x.n-r0), nk-c0)
		b.band, b.twoEnds = b.diag+1-(begin-c0), true
		f(b, r0, c0)
	}
}

// block describes the weights of n queries with the keys from c0 on: query r sees keys
// up to diag+r.
func (x *sideTile) block(c0, n, diag int) *block {
	nk := x.j1 - x.j0 - c0
	b := &block{bt: x.keys[c0:], panel: nk, ldb: x.ld, Nq: n, nk: nk, diag: min(diag, nk)}
	if x.mask != nil {
		b.mask = x.mask[c0:]
	}
	return b
}
