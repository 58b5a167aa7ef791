package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	// multipoleRows is the number of queries whose weights are computed at once.
	multipoleRows = 64
	// momentColumns is about the number of moments that are multiplied at once.
	momentColumns = 512
	// nearColumns is the number of near keys that are multiplied at once. Products over more keys
	// are summed in parts whose sizes depend on the number of keys, and so on later tokens.
	nearColumns = 256
	// assignedKeys is the number of keys whose cells are found at once.
	assignedKeys = 96
)

// multipolePass is Forward or Backward of one head, block after block of queries. The cells
// that have keys are numbered in the order of their first keys.
type multipolePass struct {
	*multipoleAttention
	h     *headwise.Head
	scale float
	// Keys before first and from last on are near to all queries. Keys lo ≤ j < hi are near to
	// the current block. Keys between first and lo are far, and those between hi and last too
	// unless the call is causal.
	first, last, lo, hi int
	length              int // B
	skipped             int // tokens of the sequence between rows first-1 and first that have no rows
	end                 int // of the keys that some query of the current tile sees

	numbered []int32 // with tilt: rows of the codebook by numbers of cells; nil: the same

	cells []int32 // number of the cell of each key, -1 for masked keys and keys outside first ≤ j < last
	count int     // cells of the head
	used  int     // cells that the current block needs: all, or of a causal call those that have had far keys
	empty []int32 // used cells without far keys in the current block

	sums    cellSums
	tile    farTile
	ordered bool      // cells have the numbers of rows of the codebook, and all are used if one is
	past    *cellSums // of tokens before all rows; nil: none
	near    nearKeys  // with a codebook, of the current block
	tame    bool      // all keys and values between first and last are finite
	stale   []int32   // cells whose row of tile is out of date
	isStale []int32   // [count] 1 for those
	room    []float
	delta   []float64

	grads multipoleGrads // of Backward
}

// findCells sets cells [M] to the row of the codebook nearest to each key, and to -1 for masked
// keys and keys that are near to all queries. With adapt above 0 the rows first move by as many
// Lloyd steps.
func (x *multipoleAttention) findCells(h *headwise.Head, cells []float) {
	ar := h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	for j := range cells {
		cells[j] = -1
	}
	book := x.book(h.KeyHead, h.KeyHeads)
	if x.adapt > 0 {
		centres := h.TakeScratch(book.Rows, book.Cols)
		copy(centres.Data, book.Data)
		book = centres
	}
	halves := arena.Take[float](ar, kernel.Pad(book.Rows))
	for range x.adapt {
		x.assign(h, cells, newNearestCells(book, halves).withRoom(ar))
		moveCentres(h, cells, book)
	}
	x.assign(h, cells, newNearestCells(book, halves).withRoom(ar))
}

// assign sets cells to the nearest centre of each key that is not near to all queries.
func (x *multipoleAttention) assign(h *headwise.Head, cells []float, s nearestCells) {
	first, last := x.innerKeys(h)
	x.assignKeys(h, cells, first, last, s)
}

// assignKeys sets the cells of the unmasked keys first ≤ j < last. Masked keys, which are zeros, are not
// searched: products of 8 bits do not tell their cells.
func (x *multipoleAttention) assignKeys(h *headwise.Head, cells []float, first, last int, s nearestCells) {
	ar := h.Scratch
	mark := ar.Mark()
	defer ar.Reset(mark)
	count := 0
	for j := first; j < last; j++ {
		if h.IsUnmasked(j) {
			count++
		}
	}
	s = s.forKeys(h.Table, ar, count)
	var rows [nearestRows]int
	var found [nearestRows]int32
	apart := h.TakeScratch(nearestRows, h.K.Cols)
	for j := first; j < last; {
		n := 0
		for ; j < last && n < nearestRows; j++ {
			if h.IsUnmasked(j) {
				rows[n] = j
				n++
			}
		}
		if n == 0 {
			return
		}
		tile := h.K.Slice(rows[0], rows[n-1]+1)
		if tile.Rows > n { // masked keys are among them
			for r, at := range rows[:n] {
				copy(apart.Row(r), h.K.Row(at))
			}
			tile = apart.Slice(0, n)
		}
		s.find(h.Table, ar, found[:n], tile)
		for r, cell := range found[:n] {
			cells[rows[r]] = float(cell)
		}
	}
}

// moveCentres moves each centre to the mean of the keys in its cell. The centre of an empty cell
// stays.
func moveCentres(h *headwise.Head, cells []float, centres tensor.Mat) {
	ar, d := h.Scratch, centres.Cols
	mark := ar.Mark()
	defer ar.Reset(mark)
	sums, counts := arena.TakeZeros[float64](ar, centres.Rows*d), arena.TakeZeros[int32](ar, centres.Rows)
	for j, cell := range cells {
		if cell < 0 {
			continue
		}
		counts[int(cell)]++
		for e, y := range h.K.Row(j) {
			sums[int(cell)*d+e] += float64(y)
		}
	}
	for c, n := range counts {
		if n == 0 {
			continue
		}
		for e := range d {
			centres.Row(c)[e] = float(sums[c*d+e] / float64(n))
		}
	}
}

// dropPadding removes the masked keys at the end of a call that is not causal, which are padding,
// and returns the number of keys that there were.
func dropPadding(h *headwise.Head) (rows int) {
	rows = h.K.Rows
	if h.Causal || h.Mask == nil {
		return rows
	}
	n := rows
	for n > 0 && !h.Mask[n-1] {
		n--
	}
	h.K, h.V, h.Mask = h.K.Slice(0, n), h.V.Slice(0, n), h.Mask[:n]
	return rows
}

// restorePadding undoes dropPadding.
func restorePadding(h *headwise.Head, rows int) {
	if h.K.Rows < rows {
		h.K, h.V, h.Mask = h.K.Slice(0, rows), h.V.Slice(0, rows), h.Mask[:rows]
	}
}

// innerKeys returns the bounds of the keys that are not near to all queries.
func (x *multipoleAttention) innerKeys(h *headwise.Head) (first, last int) {
	m := h.K.Rows
	first, last = min(x.sinks, m), m
	if !h.Causal {
		last = max(m-x.ends, first)
	}
	return first, last
}

// hasFar reports whether some key is far from a query of the blocks from the first to the last.
func (x *multipoleAttention) hasFar(h *headwise.Head, first, last int) bool {
	from, end := x.innerKeys(h)
	before := last*x.block-x.window > from
	return from < end && (before || !h.Causal && (first+1)*x.block+x.window < end)
}

// open returns the pass of a head, whose first block of queries is block. rows [M] holds the
// rows of the codebook that findCells found.
func (x *multipoleAttention) open(h *headwise.Head, rows []float, block int) (p multipolePass) {
	ar := h.Scratch
	d, dv := h.K.Cols, h.V.Cols
	p = multipolePass{multipoleAttention: x, h: h, scale: x.factor(d), cells: arena.Take[int32](ar, len(rows)), length: x.block, end: h.K.Rows}
	p.first, p.last = x.innerKeys(h)
	most := float(-1)
	for _, row := range rows {
		most = max(most, row)
	}
	numbers := arena.TakeZeros[int32](ar, int(most)+1) // 0: no number
	for j, row := range rows {
		p.cells[j] = -1
		if row < 0 {
			continue
		}
		number := &numbers[int(row)]
		if *number == 0 {
			p.count++
			*number = int32(p.count)
		}
		p.cells[j] = *number - 1
	}
	if x.tilt != nil {
		p.numbered = arena.Take[int32](ar, p.count)
		for row, number := range numbers {
			if number > 0 {
				p.numbered[number-1] = int32(row)
			}
		}
	}
	p.takeSums(x.layout(d, dv))
	p.near = p.newNearKeys(min(p.first+x.nearLength(h.Causal)+h.K.Rows-p.last, h.K.Rows), 0)
	p.tame = !scratch.HasNonFiniteSum(h.K.Slice(p.first, p.last)) && !scratch.HasNonFiniteSum(h.V.Slice(p.first, p.last))
	if x.hasReferences() {
		p.sums.references = arena.Take[float](ar, p.count*d)
		known := 0
		for j, c := range p.cells {
			if int(c) == known { // its first key
				copy(p.sums.reference(known), h.K.Row(j))
				known++
			}
		}
	}
	if !h.Causal {
		p.used = p.count
	}
	p.start(block)
	return p
}

// takeSums takes memory for the sums of the cells, which are zeros, and their tile.
func (p *multipolePass) takeSums(l momentLayout) {
	ar := p.h.Scratch
	p.sums = cellSums{momentLayout: l, counts: arena.TakeZeros[uint64](ar, p.count),
		hi: arena.TakeZeros[float](ar, p.count*l.width), lo: arena.TakeZeros[float](ar, p.count*l.width)}
	if p.multipoleAttention.tilt != nil {
		p.sums.tilts = cellTilts{arena.Take[float](ar, p.count*l.d), arena.Take[float64](ar, p.count)}
		p.setTilts(p.sums.tilts, p.h.KeyHead, p.h.KeyHeads, p.numbered)
	}
	p.tile = newFarTile(l, p.count, func(n int) []float { return arena.TakeZeros[float](ar, n) })
	p.stale, p.isStale = arena.Take[int32](ar, p.count)[:0], arena.TakeZeros[int32](ar, p.count)
	p.empty = arena.Take[int32](ar, p.count)[:0]
	p.room, p.delta = arena.Take[float](ar, l.d+l.width), arena.Take[float64](ar, l.d)
}

// start adds the keys that are far from a block, the first one of the pass, to the sums.
func (p *multipolePass) start(block int) {
	p.lo, p.hi = p.nearRange(block)
	for j := p.first; j < p.last; j++ {
		if p.isFar(j, p.lo, p.hi) {
			p.move(j, 1, p.lo, p.hi)
		}
	}
}

// nearRange returns the bounds of the keys near to a block, among those between first and last.
func (p *multipolePass) nearRange(block int) (lo, hi int) {
	within := func(j int) int { return max(min(j, p.last), p.first) }
	lo, hi = block*p.length-p.window-p.skipped, (block+1)*p.length-p.skipped
	if !p.h.Causal {
		hi += p.window
	}
	return within(lo), within(hi)
}

// isFar reports whether a key between first and last is far from a block that is near to lo ≤ j < hi.
func (p *multipolePass) isFar(j, lo, hi int) bool { return j < lo || j >= hi && !p.h.Causal }

// move adds key j to the sums of its cell, or takes it away with sign -1, on the way to the
// near keys lo ≤ j < hi.
func (p *multipolePass) move(j int, sign float, lo, hi int) {
	c := int(p.cells[j])
	if c < 0 {
		return
	}
	p.used = max(p.used, c+1)
	if p.ordered {
		p.used = p.count
	}
	if sign < 0 && !p.tame && p.isWild(j) {
		p.recount(c, j, lo, hi)
	} else {
		p.sums.add(p.h.Table, c, p.h.K.Row(j), p.h.V.Row(j), sign, p.room)
	}
	if p.isStale[c] == 0 {
		p.isStale[c] = 1
		p.stale = append(p.stale, int32(c))
	}
}

// isWild reports whether key j or its value is not finite.
func (p *multipolePass) isWild(j int) bool {
	return scratch.HasNonFiniteSum(p.h.K.Slice(j, j+1)) || scratch.HasNonFiniteSum(p.h.V.Slice(j, j+1))
}

// recount computes the sums of cell c without key left, whose numbers cannot be taken away
// since they are not finite. Keys before it have moved already.
func (p *multipolePass) recount(c, left, lo, hi int) {
	s := &p.sums
	s.counts[c] = 0
	clear(s.cell(s.hi, c))
	clear(s.cell(s.lo, c))
	if p.past != nil {
		s.counts[c] = p.past.counts[c]
		copy(s.cell(s.hi, c), s.cell(p.past.hi, c))
		copy(s.cell(s.lo, c), s.cell(p.past.lo, c))
	}
	for j := p.first; j < p.last; j++ {
		far := p.isFar(j, p.lo, p.hi)
		if j < left {
			far = p.isFar(j, lo, hi)
		}
		if int(p.cells[j]) == c && j != left && far {
			s.add(p.h.Table, c, p.h.K.Row(j), p.h.V.Row(j), 1, p.room)
		}
	}
}

// moveTo makes block the current one.
func (p *multipolePass) moveTo(block int) {
	lo, hi := p.nearRange(block)
	for j := min(lo, p.lo); j < max(hi, p.hi); j++ {
		was, is := p.isFar(j, p.lo, p.hi), p.isFar(j, lo, hi)
		switch {
		case is && !was:
			p.pull(j, -1)
			p.move(j, 1, lo, hi)
		case was && !is:
			p.pull(j, 1)
			p.move(j, -1, lo, hi)
		}
	}
	p.lo, p.hi = lo, hi
}

// refresh brings the tile and the list of empty cells up to date.
func (p *multipolePass) refresh() {
	s := &p.sums
	for _, c := range p.stale {
		c := int(c)
		p.isStale[c] = 0
		p.tile.set(p.h.Table, c, s, c, p.delta)
	}
	p.stale, p.empty = p.stale[:0], p.empty[:0]
	for c, n := range s.counts[:p.used] {
		if n == 0 {
			p.empty = append(p.empty, int32(c))
		}
	}
}

// segments returns the ranges of the keys near to the current block.
func (p *multipolePass) segments() [3][2]int {
	return [3][2]int{{0, p.first}, {p.lo, max(min(p.hi, p.end), p.lo)}, {p.last, p.h.K.Rows}}
}

// queriesOf returns the bounds of the queries of a block.
func (p *multipolePass) queriesOf(block int) (i0, i1 int) {
	shift := p.h.Shift + p.skipped
	return max(block*p.length-shift, 0), min((block+1)*p.length-shift, p.h.Q.Rows)
}

// queryTile holds the scores or weights of n queries from i0 on.
type queryTile struct {
	i0, n int
	q     tensor.Mat // scaled queries [n,D]
	near  tensor.Mat // of near keys, segment after segment
	far   tensor.Mat // of the used cells: s q·c̄
	psi   tensor.Mat // features of queries [n,features], of orders above 0
	quad  tensor.Mat // second-order terms of the sums of weights [n,used], of order 2
}

// scores returns the scores of queries i0 ≤ i < i1, -Inf where a query does not see a key or
// a cell is empty.
func (p *multipolePass) scores(i0, i1 int) queryTile {
	h, least := p.h, float(math.Inf(-1))
	columns := 0
	for _, s := range p.segments() {
		columns += s[1] - s[0]
	}
	columns = kernel.Pad(max(columns, p.near.least))
	x := queryTile{i0: i0, n: i1 - i0, q: h.TakeScratch(i1-i0, h.Q.Cols),
		near: h.TakeScratch(i1-i0, columns)}
	h.Table.Scale(x.q.Data, p.scale, h.Q.Data[i0*h.Q.Stride:])
	p.setNear()
	h.Table.Block(x.n, columns, h.Q.Cols, x.q.Data, x.q.Stride, 1, p.near.columns, p.near.stride, x.near.Data, columns, false)
	for r := range x.n {
		beyond := x.near.Row(r)[p.near.count:]
		for j := range beyond {
			beyond[j] = least
		}
	}
	p.eachSegment(&x.near, func(part tensor.Mat, j0, j1 int) {
		for r := range part.Rows {
			row := part.Row(r)
			if h.Causal {
				for j := range row[seenOf(h, i0+r, j0, len(row)):] {
					row[len(row)-1-j] = least
				}
			}
			if h.Mask == nil {
				continue
			}
			for j := range row {
				if !h.Mask[j0+j] {
					row[j] = least
				}
			}
		}
	})
	width, stride := kernel.Pad(p.used), kernel.Stride(p.used)
	x.far = tensor.Mat{Data: arena.Take[float](h.Scratch, x.n*stride), Rows: x.n, Cols: p.used, Stride: stride}
	if p.used == 0 {
		return x
	}
	h.Table.Block(x.n, width, h.Q.Cols, x.q.Data, x.q.Stride, 1, p.tile.columns, p.tile.stride, x.far.Data, stride, false)
	for r := range x.n {
		row := x.far.Row(r)
		for _, c := range p.empty {
			row[c] = least
		}
	}
	if p.order > 0 {
		x.psi = h.TakeScratch(x.n, p.tile.features)
		for r := range x.n {
			setQueryFeatures(&p.sums.momentLayout, x.psi.Row(r), x.q.Row(r))
		}
	}
	if p.order > 1 {
		x.quad = h.TakeScratch(x.n, p.used)
		h.Multiply(x.quad, entry.SliceColumns(x.psi, 1+h.Q.Cols, x.psi.Cols), p.squareRows(), false, true, false)
	}
	return x
}

// seenOf returns how many of the n keys from j0 on query i of a causal call sees.
func seenOf(h *headwise.Head, i, j0, n int) int {
	return max(min(i+h.Shift+1-j0, n), 0)
}

// addSeen sets out, or adds to it with acc, the product of the weights w of queries from i0 on
// and keys from j0 on with the rows of these keys in y. Weights of keys that a query does not
// see are 0. It leaves out rows that are not finite for queries that do not see them, since
// 0·NaN is not 0.
func addSeen(h *headwise.Head, out, w, y tensor.Mat, i0, j0 int, acc bool) {
	y = y.Slice(j0, j0+w.Cols)
	unseen := w.Cols // the first key that some query does not see
	if h.Causal {
		unseen = seenOf(h, i0, j0, w.Cols)
	}
	if rest := y.Slice(unseen, y.Rows); !scratch.HasNonFiniteSum(rest) {
		if y.Cols%kernel.Lanes == 0 && w.Cols <= nearColumns { // without a copy of y
			h.Table.Block(w.Rows, y.Cols, w.Cols, w.Data, w.Stride, 1, y.Data, y.Stride, out.Data, out.Stride, acc)
		} else {
			h.Multiply(out, w, y, false, false, acc)
		}
		return
	}
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	tame := h.TakeScratch(y.Rows, y.Cols)
	isWild := func(j int) bool { return j >= unseen && scratch.HasNonFiniteSum(y.Slice(j, j+1)) }
	for j := range y.Rows {
		copy(tame.Row(j), y.Row(j))
		if isWild(j) {
			clear(tame.Row(j))
		}
	}
	h.Multiply(out, w, tame, false, false, acc)
	for j := range y.Rows {
		for r := 0; r < w.Rows && isWild(j); r++ {
			if j < seenOf(h, i0+r, j0, w.Cols) {
				h.Table.Axpy(out.Row(r), w.Row(r)[j], y.Row(j))
			}
		}
	}
}

// nearKeys holds the near keys of a block as columns, and their values as rows. Both are padded
// with zeros to a multiple of kernel.Lanes.
type nearKeys struct {
	columns  []float // [D][stride]
	stride   int
	values   []float // [stride][width]; zeros of values that are not finite
	width    int
	count    int     // near keys
	least    int     // columns at least
	wild     []int32 // keys whose values are not finite
	segments [3][2]int
}

// newNearKeys returns room for the near keys of a block, n at most, in least columns or more.
func (p *multipolePass) newNearKeys(n, least int) nearKeys {
	h := p.h
	stride, width := kernel.Stride(max(n, least)), kernel.Pad(h.V.Cols)
	return nearKeys{columns: arena.TakeZeros[float](h.Scratch, h.K.Cols*stride), stride: stride,
		values: arena.TakeZeros[float](h.Scratch, stride*width), width: width, least: least, wild: arena.Take[int32](h.Scratch, n)[:0]}
}

// nearLength returns the number of keys of a block and its window.
func (x *multipoleAttention) nearLength(causal bool) int {
	if causal {
		return x.block + x.window
	}
	return x.block + 2*x.window
}

// setNear brings the near keys up to date with the segments of the current block.
func (p *multipolePass) setNear() {
	x, h := &p.near, p.h
	if x.segments == p.segments() {
		return
	}
	x.segments, x.wild = p.segments(), x.wild[:0]
	d, at := h.K.Cols, 0
	for _, s := range x.segments {
		n := s[1] - s[0]
		if n <= 0 {
			continue
		}
		h.Table.Transpose(x.columns[at:], x.stride, h.K.Data[s[0]*h.K.Stride:], h.K.Stride, n, d)
		for r := range n {
			copy(x.values[(at+r)*x.width:], h.V.Row(s[0]+r))
		}
		if scratch.HasNonFiniteSum(matrixOf(x.values[at*x.width:], n, x.width)) {
			for r := range n {
				if j := s[0] + r; scratch.HasNonFiniteSum(h.V.Slice(j, j+1)) {
					clear(x.values[(at+r)*x.width:][:x.width])
					x.wild = append(x.wild, int32(j))
				}
			}
		}
		at += n
	}
	x.count = at
	end := kernel.Pad(max(at, x.least))
	for a := range d {
		clear(x.columns[a*x.stride+at : a*x.stride+end])
	}
	clear(x.values[at*x.width : end*x.width])
}

// attendNear sets out to the products of the weights of a tile and the values of near keys.
func (p *multipolePass) attendNear(x *queryTile, out tensor.Mat) {
	h, wide := p.h, out
	width := p.near.width
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	if width != out.Stride {
		wide = h.TakeScratch(x.n, width)
	}
	h.Table.Block(x.n, width, x.near.Cols, x.near.Data, x.near.Stride, 1, p.near.values, width, wide.Data, width, false)
	if width != out.Stride {
		for r := range x.n {
			copy(out.Row(r), wide.Row(r))
		}
	}
	if len(p.near.wild) == 0 {
		return
	}
	p.eachSegment(&x.near, func(part tensor.Mat, j0, j1 int) {
		for _, j := range p.near.wild {
			for r := 0; r < x.n && j0 <= int(j) && int(j) < j1; r++ {
				if !h.Causal || seenOf(h, x.i0+r, int(j), 1) > 0 {
					h.Table.Axpy(out.Row(r), part.Row(r)[int(j)-j0], h.V.Row(int(j)))
				}
			}
		}
	})
}

// eachSegment calls f with columns of a matrix of near keys and their range of keys.
func (p *multipolePass) eachSegment(near *tensor.Mat, f func(part tensor.Mat, j0, j1 int)) {
	at := 0
	for _, s := range p.segments() {
		for j := s[0]; j < s[1]; j += nearColumns {
			n := min(nearColumns, s[1]-j)
			f(entry.SliceColumns(*near, at, at+n), j, j+n)
			at += n
		}
	}
}

// meanRows returns c̄ of the used cells.
func (p *multipolePass) meanRows() tensor.Mat { return matrixOf(p.tile.means, p.used, p.sums.d) }

// squareRows returns the second moments of the used cells.
func (p *multipolePass) squareRows() tensor.Mat {
	return matrixOf(p.tile.squares, p.used, p.tile.pairs)
}

// matrixOf returns the matrix [rows,cols] at the beginning of x.
func matrixOf(x []float, rows, cols int) tensor.Mat {
	return tensor.Mat{Data: x[:rows*cols], Rows: rows, Cols: cols, Stride: cols}
}

// eachMomentGroup calls f with groups of cells c0 ≤ c < c1 and their moments
// [(c1-c0)·features, Dv].
func (p *multipolePass) eachMomentGroup(moments []float, f func(c0, c1 int, rows tensor.Mat)) {
	l := &p.tile.momentLayout
	group := max(momentColumns/l.features, 1)
	if p.order == 0 {
		group = max(p.used, 1)
	}
	for c0 := 0; c0 < p.used; c0 += group {
		c1 := min(c0+group, p.used)
		f(c0, c1, matrixOf(moments[c0*l.features*l.dv:], (c1-c0)*l.features, l.dv))
	}
}

// expandWeights sets dst [n,(c1-c0)·features] to the products of the far weights of cells and
// the features of queries.
func (x *queryTile) expandWeights(t *kernel.Table[float], dst tensor.Mat, c0, c1 int) {
	for r := range x.n {
		psi, to := x.psi.Row(r), dst.Row(r)
		for _, w := range x.far.Row(r)[c0:c1] {
			t.Scale(to[:len(psi)], w, psi)
			to = to[len(psi):]
		}
	}
}

// Forward saves the logarithm of the denominator of each query, and the cell of each key.
func (x *multipoleAttention) Forward(h *headwise.Head) {
	defer restorePadding(h, dropPadding(h))
	n := h.Q.Rows
	saved := h.SaveBuffer(n + h.K.Rows)
	lse, rows := saved[:n], saved[n:]
	length := x.block
	block, end := floorDiv(h.Shift, length), floorDiv(h.Shift+n-1, length)+1
	if x.hasFar(h, block, end-1) {
		x.findCells(h, rows)
	} else { // the function is softmax
		for j := range rows {
			rows[j] = -1
		}
	}
	p := x.open(h, rows, block)
	p.forward(lse, block, end)
}

// forward sets the outputs of the queries of blocks from block up to end, and their elements
// of lse.
func (p *multipolePass) forward(lse []float, block, end int) {
	h := p.h
	for ; block < end; block++ {
		p.moveTo(block)
		p.refresh()
		for i0, i1 := p.queriesOf(block); i0 < i1; i0 += multipoleRows {
			mark := h.Scratch.Mark()
			rows := min(multipoleRows, i1-i0)
			p.attend(p.scores(i0, i0+rows), lse)
			h.Scratch.Reset(mark)
		}
	}
}

// weigh replaces the scores of a tile by weights relative to the exponentials of tops, and
// sets sums to their sums.
func (p *multipolePass) weigh(x *queryTile, tops, sums []float) {
	t := p.h.Table
	for r := range x.n {
		near, far := x.near.Row(r), x.far.Row(r)
		tops[r] = max(t.Max(near), t.Max(far))
		sums[r] = t.Exp(near, near, tops[r])
		if p.used > 0 {
			t.Exp(far, far, tops[r])
		}
	}
	for r := 0; r < x.n && p.used > 0; r++ {
		far := x.far.Row(r)
		sums[r] += t.Dot(far, p.tile.counts[:p.used])
		if p.order > 1 {
			sums[r] += t.Dot(far, x.quad.Row(r))
		}
	}
}

// attend sets the outputs of a tile of scores, which it overwrites, and their elements of lse.
func (p *multipolePass) attend(x queryTile, lse []float) {
	h, t := p.h, p.h.Table
	tops, sums := arena.Take[float](h.Scratch, x.n), arena.Take[float](h.Scratch, x.n)
	p.weigh(&x, tops, sums)
	out, acc := h.Out.Slice(x.i0, x.i0+x.n), false
	if x.near.Cols > 0 {
		p.attendNear(&x, out)
		acc = true
	}
	p.eachMomentGroup(p.tile.moments, func(c0, c1 int, moments tensor.Mat) {
		weights := entry.SliceColumns(x.far, c0, c1)
		if p.order == 0 && moments.Cols%kernel.Lanes == 0 && out.Stride == out.Cols {
			t.Block(x.n, moments.Cols, c1-c0, weights.Data, weights.Stride, 1, moments.Data, moments.Stride, out.Data, out.Stride, acc)
			acc = true
			return
		}
		if p.order > 0 {
			mark := h.Scratch.Mark()
			defer h.Scratch.Reset(mark)
			weights = h.TakeScratch(x.n, moments.Rows)
			x.expandWeights(t, weights, c0, c1)
		}
		h.Multiply(out, weights, moments, false, false, acc)
		acc = true
	})
	for r := range x.n {
		t.Scale(out.Row(r), 1/sums[r], out.Row(r))
		lse[x.i0+r] = tops[r] + float(math.Log(float64(sums[r])))
	}
}
