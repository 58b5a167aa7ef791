package kernel

// A product is divided into blocks that fit the caches. One pass covers at most gemmDepth of k. B is
// copied in panels of PanelColumns; the first-level cache holds the columns of one tile. Rows of A are cut
// evenly into blocks of at most gemmRows, which stay in the second-level cache; all but the last have whole
// tiles of tallRows rows or less. Gemm copies at most gemmCols columns of B at a time, which fit the
// third-level cache.
const (
	PanelColumns = 8 * Lanes

	gemmDepth = 256
	gemmRows  = 11 * tallRows
	tallRows  = 12
	gemmCols  = 8 * PanelColumns
	// Up to gemmFewRows rows, copying A and an untransposed B costs more than reading them in place.
	// gemmNarrow is the number of columns that are then copied at a time.
	gemmFewRows = 24
	gemmNarrow  = 2 * Lanes
)

// GemmScratch returns the scratch elements that Gemm needs for m, n and k, or for any smaller ones. The
// number is bounded.
func GemmScratch(m, n, k int) int {
	return PanelsSize(min(n, gemmCols), min(k, gemmDepth)) + MultiplyScratch(m, k)
}

// passDepth returns the depth of a pass over k. Passes are about equal.
func passDepth(k int) int {
	passes := max(1, (k+gemmDepth-1)/gemmDepth)
	return (k + passes - 1) / passes
}

// Stride returns the least row stride for n elements that is an odd number of cache lines, so that the
// lines of a column spread over all sets of a cache.
func Stride(n int) int {
	if n = Pad(n); n/Lanes%2 == 0 {
		n += Lanes
	}
	return n
}

// Gemm computes C = op(A)·op(B), or C += op(A)·op(B) when acc is set, for
// C [m,n], op(A) [m,k], op(B) [k,n], where op transposes when ta or tb is set:
// A is stored [m,k] with row stride lda, or [k,m] when ta is set; likewise B.
// scratch holds at least GemmScratch(m,n,k) elements, overlaps nothing and is overwritten.
//
// An element is the sum of partial products over pieces of k, which depend on k alone: its bits do not
// depend on m, n or its position in C.
func Gemm[T Float](t *Table[T], ta, tb bool, m, n, k int, a []T, lda int, b []T, ldb int, acc bool, c []T, ldc int, scratch []T) {
	if m <= 0 || n <= 0 {
		return
	}
	if k == 0 && !acc {
		for i := range m {
			clear(c[i*ldc:][:n])
		}
	}
	most := passDepth(k)
	size := PanelsSize(min(n, gemmCols), most)
	panels, scratch := scratch[:size], scratch[size:]
	for p := 0; p < k; p += most {
		depth := min(most, k-p)
		left := operand[T]{Table: t, width: PanelColumns, trans: ta, ld: lda}
		left.data = left.submatrix(a, 0, p)
		right := operand[T]{Table: t, width: PanelColumns, trans: tb, ld: ldb}
		j, step := 0, gemmCols
		few := m <= gemmFewRows
		if few {
			step = gemmNarrow
		}
		if !tb && (few || ta && m <= gemmRows && n <= PanelColumns) {
			// Read full vectors of B in place.
			j = n &^ (Lanes - 1)
			ars, acs := left.opStrides()
			t.Block(m, j, depth, left.data, ars, acs, right.submatrix(b, p, 0), ldb, c, ldc, acc)
		}
		for ; j < n; j += step {
			cols := min(step, n-j)
			right.packPanels(panels, right.submatrix(b, p, j), cols, depth)
			left.multiplyPanels(m, 0, cols, cols, depth, panels, c[j:], ldc, acc, nil, scratch)
		}
		acc = true
	}
}

// Panels is a matrix op(B) [K,N] of packed weights, for products with many blocks of rows. K is divided
// as in Gemm, and each piece into panels of columns.
type Panels[T Float] struct {
	table *Table[T]
	width int // of a panel
	N, K  int
	data  []T
}

// PanelsSize returns the elements of Panels [k,n]. They suffice for any smaller n and k.
func PanelsSize(n, k int) int { return panelsWidth(n, PanelColumns) * k }

// panelsWidth returns the sum of the strides of the panels of n columns, each of at most width.
func panelsWidth(n, width int) int {
	w := n / width * Stride(width)
	if rest := n % width; rest > 0 {
		w += Stride(rest)
	}
	return w
}

// NewPanels returns Panels [k,n] in data, which holds at least PanelsSize(n,k) elements. They are
// undefined until every piece is packed.
func NewPanels[T Float](t *Table[T], n, k int, data []T) Panels[T] {
	p := Panels[T]{table: t, width: PanelColumns, N: n, K: k, data: data[:PanelsSize(n, k)]}
	if t.PanelWidth > 0 {
		p.width = t.PanelWidth
	}
	return p
}

// Pieces returns the number of pieces that Pack must be called for, in any order.
func (p *Panels[T]) Pieces() int {
	most := passDepth(p.K)
	if p.K == 0 {
		return 0
	}
	return (p.K + most - 1) / most * ((p.N + p.width - 1) / p.width)
}

// Pack overwrites one piece with op(B), where op transposes when trans is set: b is stored [K,N] with
// row stride ldb, or [N,K].
func (p *Panels[T]) Pack(piece int, trans bool, b []T, ldb int) {
	across := (p.N + p.width - 1) / p.width
	most := passDepth(p.K)
	k, j := piece/across*most, piece%across*p.width
	depth := min(most, p.K-k)
	f := operand[T]{Table: p.table, width: p.width, trans: trans, ld: ldb}
	f.packPanels(p.piece(k, j), f.submatrix(b, k, j), min(p.width, p.N-j), depth)
}

// MultiplyScratch returns the scratch elements that Multiply needs for m and k, or for any smaller ones.
func MultiplyScratch(m, k int) int {
	m, k = min(m, gemmRows), min(k, gemmDepth)
	return m * (Lanes + Stride(k))
}

// Multiply computes columns j0 ≤ j < j1 of C = op(A)·op(B), or adds them to C when acc is set, with the
// bits of Gemm. A is [m,K]; j0 is a multiple of Lanes; c begins with column j0. It then adds bias [N] to
// the rows, unless bias is nil. Meanwhile it prefetches the memory ahead, if the table has Tiles, and
// returns the rest that it did not reach.
func (p *Panels[T]) Multiply(ta bool, m int, a []T, lda, j0, j1 int, acc bool, c []T, ldc int, bias, scratch, ahead []T) (rest []T) {
	if m <= 0 || j1 <= j0 {
		return ahead
	}
	if p.K == 0 {
		for i := 0; i < m && !acc; i++ {
			clear(c[i*ldc:][:j1-j0])
		}
		if bias != nil {
			p.table.AddRows(c, ldc, c, ldc, bias[j0:], 0, m, j1-j0)
		}
	}
	most := passDepth(p.K)
	f := operand[T]{Table: p.table, width: p.width, trans: ta, ld: lda, prefetch: ahead}
	first := j0 / p.width * p.width
	for k := 0; k < p.K; k += most {
		depth := min(most, p.K-k)
		f.data, f.pieceAhead = f.submatrix(a, 0, k), nil
		var last []T
		if end := k + depth; end < p.K {
			f.pieceAhead = p.piece(end, first)
		} else if bias != nil {
			last = bias[first:]
		}
		f.multiplyPanels(m, j0-first, j1-first, p.N-first, depth, p.piece(k, first), c, ldc, acc, last, scratch)
		acc = true
	}
	return f.prefetch
}

// piece returns the panels from column j on of the piece of k.
func (p *Panels[T]) piece(k, j int) []T {
	return p.data[k*panelsWidth(p.N, p.width)+panelsWidth(j, p.width)*min(passDepth(p.K), p.K-k):]
}

// operand is op(A) or op(B) of a product, with its storage.
type operand[T Float] struct {
	*Table[T]
	width    int // of a panel of op(B)
	trans    bool
	data     []T
	ld       int
	prefetch []T // memory left to prefetch; op(A) only
	// The panels of op(B) that are read next, by this piece of k and by the next one; nil: none. op(A) only.
	panelAhead, pieceAhead []T
}

// submatrix returns the stored matrix from element (i,j) of op(data).
func (f *operand[T]) submatrix(data []T, i, j int) []T {
	if f.trans {
		i, j = j, i
	}
	return data[i*f.ld+j:]
}

// opStrides returns the strides of rows and columns of op(data).
func (f *operand[T]) opStrides() (rows, cols int) {
	if f.trans {
		return 1, f.ld
	}
	return f.ld, 1
}

// packPanels copies k rows of n columns of op(b) to panels. Columns beyond n of the last panel are zero.
func (f *operand[T]) packPanels(panels, b []T, n, k int) {
	last := (n - 1) / f.width * f.width
	full, s := Stride(f.width), Stride(n-last)
	rest := panels[last/f.width*full*k:]
	if n%Lanes != 0 {
		clear(rest[:s*k])
	}
	if f.trans {
		for j := 0; j < last; j += f.width {
			f.Transpose(panels[j/f.width*full*k:], full, b[j*f.ld:], f.ld, f.width, k)
		}
		f.Transpose(rest, s, b[last*f.ld:], f.ld, n-last, k)
		return
	}
	for p := range k {
		row := b[p*f.ld:][:n]
		if f.width == Lanes {
			for j := 0; j < last; j += Lanes {
				*(*[Lanes]T)(panels[j*k+p*Lanes:]) = [Lanes]T(row[j:])
			}
			copy(rest[p*s:], row[last:])
			continue
		}
		for j := 0; j < last; j += f.width {
			copy(panels[(j/f.width*k+p)*full:][:f.width], row[j:])
		}
		copy(rest[p*s:], row[last:])
	}
}

// multiplyPanels sets C [m,j1-j0] to the product of op(data) [m,k] with columns j0 ≤ j < j1 of n packed
// ones, or adds it with acc. It then adds bias [n], unless bias is nil.
func (f *operand[T]) multiplyPanels(m, j0, j1, n, k int, panels, c []T, ldc int, acc bool, bias, scratch []T) {
	edge, block := scratch[:min(m, gemmRows)*Lanes], scratch[min(m, gemmRows)*Lanes:]
	blocks := (m + gemmRows - 1) / gemmRows
	size := (m + blocks*tallRows - 1) / (blocks * tallRows) * tallRows
	for i := 0; i < m; i += size {
		rows := min(size, m-i)
		a := f.submatrix(f.data, i, 0)
		ars, acs := f.opStrides()
		if m > gemmFewRows && !f.isCacheFriendly(k) {
			a, ars, acs = block, f.copyRows(block, a, rows, k), 1
		}
		panel := panels
		for j := 0; j < j1; j += f.width {
			s, first := Stride(min(f.width, n-j)), max(j, j0)
			var add []T
			if bias != nil {
				add = bias[first:]
			}
			f.panelAhead = panel[s*k:]
			if j+f.width >= j1 {
				f.panelAhead = f.pieceAhead
			}
			f.multiplyPanel(rows, min(j+f.width, j1)-first, k, a, ars, acs, panel[first-j:], s, c[i*ldc+first-j0:], ldc, acc, add, edge)
			panel = panel[s*k:]
		}
	}
}

// isCacheFriendly reports whether rows of op(data), read k elements at a time, are contiguous enough to
// be read in place. Beside the columns of a tile there is room for them in the first-level cache unless
// the rows of a tile fall into the same sets of it, or for wide tiles into fewer than four sets.
func (f *operand[T]) isCacheFriendly(k int) bool {
	if f.trans {
		return false
	}
	if f.ld <= k+Lanes || f.ld == Stride(f.ld) {
		return true
	}
	const sets, apart = 4096 / 4, 4 * Lanes // elements of a way of the cache, and by which rows are apart at least
	rest, lines := f.ld%sets, f.ld/Lanes
	return rest >= apart && rest <= sets-apart && (f.width == Lanes || lines&-lines <= sets/Lanes/4)
}

// copyRows copies m rows of op(a) to block and returns its stride. A transposed a is transposed back,
// since a tile would use few elements of each cache line.
func (f *operand[T]) copyRows(block, a []T, m, k int) (ld int) {
	s := Stride(k)
	if f.trans {
		f.Transpose(block, s, a, f.ld, k, m)
		return s
	}
	for r := range m {
		copy(block[r*s:][:k], a[r*f.ld:])
	}
	return s
}

// multiplyPanel multiplies m rows of A with n columns of one packed panel of op(B) with row stride s,
// and adds bias [n], unless bias is nil.
func (f *operand[T]) multiplyPanel(m, n, k int, a []T, ars, acs int, panel []T, s int, c []T, ldc int, acc bool, bias, edge []T) {
	whole := n &^ (Lanes - 1)
	f.multiplyBlock(m, whole, k, a, ars, acs, panel, s, c, ldc, acc, bias)
	if n == whole {
		return
	}
	f.Block(m, Lanes, k, a, ars, acs, panel[whole:], s, edge, Lanes, false)
	for i := range m {
		row, edge := c[i*ldc+whole:][:n-whole], edge[i*Lanes:]
		if acc {
			f.Add(row, row, edge)
		} else {
			copy(row, edge)
		}
	}
	f.addBias(m, n-whole, bias, c, ldc, whole)
}

// multiplyBlock is Block, and adds bias [n], unless bias is nil. It prefetches memory if the table has
// Tiles: what is left to prefetch, or panels whose rows follow each other.
func (f *operand[T]) multiplyBlock(m, n, k int, a []T, ars, acs int, b []T, brs int, c []T, ldc int, acc bool, bias []T) {
	rows, cols := 0, 0
	if f.Tiles != nil && acs == 1 && (bias != nil || len(f.prefetch) > 0 || f.width == Lanes && brs == Lanes) {
		ahead := &f.prefetch
		if f.PanelWidth > 0 {
			ahead = &f.panelAhead
		}
		rows, cols, *ahead = f.Tiles(m, n, k, a, ars, b, brs, c, ldc, acc, bias, *ahead)
	}
	if rows < m && cols > 0 {
		c := c[rows*ldc:]
		f.Block(m-rows, cols, k, a[rows*ars:], ars, acs, b, brs, c, ldc, acc)
		f.addBias(m-rows, cols, bias, c, ldc, 0)
	}
	if cols < n {
		f.Block(m, n-cols, k, a, ars, acs, b[cols:], brs, c[cols:], ldc, acc)
		f.addBias(m, n-cols, bias, c, ldc, cols)
	}
}

// addBias adds bias[j:j+n] to columns j ≤ c < j+n of C, unless bias is nil.
func (f *operand[T]) addBias(m, n int, bias, c []T, ldc, j int) {
	if bias != nil {
		f.AddRows(c[j:], ldc, c[j:], ldc, bias[j:], 0, m, n)
	}
}
