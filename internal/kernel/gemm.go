package kernel

// A product is cut into blocks that suit the caches. One pass takes at most
// gemmDepth of k. B is copied in panels of PanelColumns, of which the
// first-level cache holds the columns of one tile after the other; gemmRows
// rows of A stay in the second. Gemm copies at most gemmCols columns of B at
// once, which the third-level cache holds.
const (
	PanelColumns = 8 * Lanes

	gemmDepth = 256
	gemmRows  = 128
	gemmCols  = 8 * PanelColumns
	// gemmFew is the number of rows up to which copying A, and a B that needs
	// no transposing, costs more than reading them where they are, as it does where
	// Aᵀ and B are narrow; gemmNarrow the columns that are then copied at once.
	gemmFew    = 24
	gemmNarrow = 2 * Lanes
)

// GemmScratch is the number of elements that Gemm needs as scratch: blocks of
// A, B and C, which do not grow with the matrices beyond a limit. It does for
// any smaller m, n and k too.
func GemmScratch(m, n, k int) int {
	return PanelsSize(min(n, gemmCols), min(k, gemmDepth)) + MultiplyScratch(m, k)
}

// passDepth is how much of k one pass takes, at most: passes are about equal.
func passDepth(k int) int {
	passes := max(1, (k+gemmDepth-1)/gemmDepth)
	return (k + passes - 1) / passes
}

// Stride is the least row stride for n elements that is an odd number of
// cache lines, so that the lines of a column spread over all sets of a cache.
func Stride(n int) int {
	if n = Pad(n); n/Lanes%2 == 0 {
		n += Lanes
	}
	return n
}

// Gemm computes C = op(A)·op(B), or C += op(A)·op(B) when acc is set, for
// C [m,n], op(A) [m,k], op(B) [k,n], where op transposes when ta or tb is set:
// A is stored [m,k] with row stride lda, or [k,m] when ta is set; likewise B.
// scratch holds at least GemmScratch(m,n,k) elements and overlaps nothing.
//
// An element is the sum of partial products over pieces of k, cut by k alone:
// its bits do not depend on m, n or its place in C.
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
		left := operand[T]{Table: t, trans: ta, ld: lda}
		left.data = left.from(a, 0, p)
		right := operand[T]{Table: t, trans: tb, ld: ldb}
		j, step := 0, gemmCols
		few := m <= gemmFew
		if few {
			step = gemmNarrow
		}
		if !tb && (few || ta && m <= gemmRows && n <= PanelColumns) {
			// B where it is, as far as its columns are full vectors.
			j = n &^ (Lanes - 1)
			ars, acs := left.strides()
			t.Block(m, j, depth, left.data, ars, acs, right.from(b, p, 0), ldb, c, ldc, acc)
		}
		for ; j < n; j += step {
			cols := min(step, n-j)
			right.pack(panels, right.from(b, p, j), cols, depth)
			left.multiply(m, 0, cols, cols, depth, panels, c[j:], ldc, acc, nil, scratch)
		}
		acc = true
	}
}

// Panels is a matrix op(B) [K,N] rearranged for products with many blocks of
// rows: K is cut as Gemm cuts it, and each piece into panels of columns.
type Panels[T Float] struct {
	table *Table[T]
	N, K  int
	data  []T
}

// PanelsSize is the number of elements that Panels [k,n] take. It does for any
// smaller n and k too.
func PanelsSize(n, k int) int { return width(n) * k }

// width is the sum of the strides of the panels of n columns.
func width(n int) int {
	w := n / PanelColumns * Stride(PanelColumns)
	if rest := n % PanelColumns; rest > 0 {
		w += Stride(rest)
	}
	return w
}

// NewPanels returns Panels that lie in data, which holds at least
// PanelsSize(n,k) elements. They are undefined until every piece is packed.
func NewPanels[T Float](t *Table[T], n, k int, data []T) Panels[T] {
	return Panels[T]{table: t, N: n, K: k, data: data[:PanelsSize(n, k)]}
}

// Pieces is the number of pieces that Pack is called for, in any order.
func (p *Panels[T]) Pieces() int {
	most := passDepth(p.K)
	if p.K == 0 {
		return 0
	}
	return (p.K + most - 1) / most * ((p.N + PanelColumns - 1) / PanelColumns)
}

// Pack copies one piece of op(B), where op transposes when trans is set: b is
// stored [K,N] with row stride ldb, or [N,K].
func (p *Panels[T]) Pack(piece int, trans bool, b []T, ldb int) {
	across := (p.N + PanelColumns - 1) / PanelColumns
	most := passDepth(p.K)
	k, j := piece/across*most, piece%across*PanelColumns
	depth := min(most, p.K-k)
	f := operand[T]{Table: p.table, trans: trans, ld: ldb}
	f.pack(p.data[k*width(p.N)+width(j)*depth:], f.from(b, k, j), min(PanelColumns, p.N-j), depth)
}

// MultiplyScratch is the number of elements that Multiply needs as scratch. It
// does for any smaller m and k too.
func MultiplyScratch(m, k int) int {
	m, k = min(m, gemmRows), min(k, gemmDepth)
	return m * (Lanes + Stride(k))
}

// Multiply computes columns j0 ≤ j < j1 of C = op(A)·op(B), or adds them to C
// when acc is set, as Gemm does and with the same bits. j0 is a multiple of Lanes;
// c begins with column j0. Then it adds bias [N] to the rows, unless it is nil. While it
// goes it asks for the memory ahead, as Tiles does where there are some, and it returns
// what it had no time for.
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
	f := operand[T]{Table: p.table, trans: ta, ld: lda, ahead: ahead}
	first := j0 / PanelColumns * PanelColumns
	for k := 0; k < p.K; k += most {
		depth := min(most, p.K-k)
		f.data = f.from(a, 0, k)
		var last []T
		if bias != nil && k+depth == p.K {
			last = bias[first:]
		}
		f.multiply(m, j0-first, j1-first, p.N-first, depth, p.data[k*width(p.N)+width(first)*depth:], c, ldc, acc, last, scratch)
		acc = true
	}
	return f.ahead
}

// operand is op(A) or op(B) of a product, as it is stored.
type operand[T Float] struct {
	*Table[T]
	trans bool
	data  []T
	ld    int
	ahead []T // of op(A): what is left to ask for
}

// from is the stored matrix from element (i,j) of op(data) on.
func (f *operand[T]) from(data []T, i, j int) []T {
	if f.trans {
		i, j = j, i
	}
	return data[i*f.ld+j:]
}

// strides are those of the rows and columns of op(data).
func (f *operand[T]) strides() (rows, cols int) {
	if f.trans {
		return 1, f.ld
	}
	return f.ld, 1
}

// pack copies k rows of n columns of op(b) to panels; the columns that the last
// one has beyond n are zero.
func (f *operand[T]) pack(panels, b []T, n, k int) {
	last := (n - 1) / PanelColumns * PanelColumns
	full, s := Stride(PanelColumns), Stride(n-last)
	rest := panels[last/PanelColumns*full*k:]
	if n%Lanes != 0 {
		clear(rest[:s*k])
	}
	if f.trans {
		for j := 0; j < last; j += PanelColumns {
			f.Transpose(panels[j/PanelColumns*full*k:], full, b[j*f.ld:], f.ld, PanelColumns, k)
		}
		f.Transpose(rest, s, b[last*f.ld:], f.ld, n-last, k)
		return
	}
	for p := range k {
		row := b[p*f.ld:][:n]
		for j := 0; j < last; j += PanelColumns {
			copy(panels[(j/PanelColumns*k+p)*full:][:PanelColumns], row[j:])
		}
		copy(rest[p*s:], row[last:])
	}
}

// multiply adds to C [m,j1-j0], or sets it to, the product of rows of op(data)
// with columns j0 ≤ j < j1 of n packed ones, over k, and adds bias [n], unless it is nil.
func (f *operand[T]) multiply(m, j0, j1, n, k int, panels, c []T, ldc int, acc bool, bias, scratch []T) {
	edge, block := scratch[:min(m, gemmRows)*Lanes], scratch[min(m, gemmRows)*Lanes:]
	for i := 0; i < m; i += gemmRows {
		rows := min(gemmRows, m-i)
		a := f.from(f.data, i, 0)
		ars, acs := f.strides()
		if m > gemmFew && !f.suits(k) {
			a, ars, acs = block, f.copyRows(block, a, rows, k), 1
		}
		panel := panels
		for j := 0; j < j1; j += PanelColumns {
			s, first := Stride(min(PanelColumns, n-j)), max(j, j0)
			var add []T
			if bias != nil {
				add = bias[first:]
			}
			f.panel(rows, min(j+PanelColumns, j1)-first, k, a, ars, acs, panel[first-j:], s, c[i*ldc+first-j0:], ldc, acc, add, edge)
			panel = panel[s*k:]
		}
	}
}

// suits reports whether the caches hold rows of op(data), of which k elements
// are read at a time, well where they are: they follow each other closely.
func (f *operand[T]) suits(k int) bool {
	return !f.trans && (f.ld <= k+Lanes || f.ld == Stride(f.ld))
}

// copyRows copies m rows of op(a) to block, whose stride it returns. A
// transposed a is turned, as a tile would use but a few elements of each of its
// lines.
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

// panel multiplies m rows of A with n columns of one packed panel of op(B), whose
// rows lie s apart, and adds bias [n], unless it is nil.
func (f *operand[T]) panel(m, n, k int, a []T, ars, acs int, panel []T, s int, c []T, ldc int, acc bool, bias, edge []T) {
	whole := n &^ (Lanes - 1)
	f.block(m, whole, k, a, ars, acs, panel, s, c, ldc, acc, bias)
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

// block is Block, and adds bias [n], unless it is nil. It asks for the memory ahead,
// where there are tiles that do.
func (f *operand[T]) block(m, n, k int, a []T, ars, acs int, b []T, brs int, c []T, ldc int, acc bool, bias []T) {
	rows, cols := 0, 0
	if f.Tiles != nil && acs == 1 && (bias != nil || len(f.ahead) > 0) {
		rows, cols, f.ahead = f.Tiles(m, n, k, a, ars, b, brs, c, ldc, acc, bias, f.ahead)
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

// addBias adds n numbers of bias from j on, unless it is nil, to the columns of C from j
// on.
func (f *operand[T]) addBias(m, n int, bias, c []T, ldc, j int) {
	if bias != nil {
		f.AddRows(c[j:], ldc, c[j:], ldc, bias[j:], 0, m, n)
	}
}
