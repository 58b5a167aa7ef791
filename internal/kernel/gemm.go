package kernel

// A product is cut into blocks that suit the caches: depth is how much of k
// one pass takes, rows how many rows of A are held (in the second-level
// cache) and cols how many columns of B (in the first).
const (
	gemmDepth = 256
	gemmRows  = 384
	gemmCols  = 2 * Lanes
	// gemmFew is the number of rows up to which copying A and B costs more
	// than reading them where they are.
	gemmFew = 24
)

// stride is the least row stride for n elements that is an odd number of
// cache lines, so that the lines of a column spread over all sets of a cache.
func stride(n int) int {
	if n = Pad(n); n/Lanes%2 == 0 {
		n += Lanes
	}
	return n
}

// GemmScratch is the number of elements that Gemm needs as scratch: blocks of
// A, B and C, whatever the size of the matrices.
func GemmScratch(m, n, k int) int {
	m, k = min(m, gemmRows), min(k, gemmDepth)
	a := max(m*stride(k), k*stride(m))
	return a + k*gemmCols + m*Lanes
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
	g := gemm[T]{Table: t, ta: ta, tb: tb, n: n, b: b, ldb: ldb, ldc: ldc}
	depth, rows := min(k, gemmDepth), min(m, gemmRows)
	g.panel, scratch = scratch[:depth*gemmCols], scratch[depth*gemmCols:]
	g.edge, scratch = scratch[:rows*Lanes], scratch[rows*Lanes:]
	for p := 0; p < k; p += gemmDepth {
		depth := min(k-p, gemmDepth)
		for i := 0; i < m; i += gemmRows {
			rows := min(m-i, gemmRows)
			x, ars, acs := a, lda, 1
			if ta {
				x, ars, acs = x[p*lda+i:], 1, lda
			} else {
				x = x[i*lda+p:]
			}
			if m > gemmFew {
				x, ars, acs = copyA(scratch, ta, rows, depth, x, lda)
			}
			g.strip(rows, p, depth, x, ars, acs, c[i*ldc:], acc || p > 0)
		}
	}
}

// copyA copies a block of A, as it is stored, to rows of an odd stride. It
// returns the block with the strides of op(A).
func copyA[T Float](dst []T, ta bool, m, k int, a []T, lda int) (block []T, ars, acs int) {
	rows, cols := m, k
	if ta {
		rows, cols = k, m
	}
	s := stride(cols)
	for i := range rows {
		copy(dst[i*s:][:cols], a[i*lda:])
	}
	if ta {
		return dst, 1, s
	}
	return dst, s, 1
}

// gemm is what all strips of rows of one product share.
type gemm[T Float] struct {
	*Table[T]
	ta, tb      bool
	n, ldb, ldc int
	b           []T
	panel, edge []T // scratch: columns of B, and columns of C beyond the last full Lanes
}

// strip adds to m rows of C their product with rows p to p+k of op(B), or sets
// them.
func (g *gemm[T]) strip(m, p, k int, a []T, ars, acs int, c []T, acc bool) {
	j, full := 0, g.n&^(Lanes-1)
	if m <= gemmFew && !g.tb && full > 0 {
		g.Block(m, full, k, a, ars, acs, g.b[p*g.ldb:], g.ldb, c, g.ldc, acc)
		j = full
	}
	for ; j < full; j += gemmCols {
		cols := min(gemmCols, full-j)
		g.columns(cols, cols, p, k, j)
		g.Block(m, cols, k, a, ars, acs, g.panel, cols, c[j:], g.ldc, acc)
	}
	rest := g.n - full
	if rest == 0 {
		return
	}
	g.columns(rest, Lanes, p, k, full)
	g.Block(m, Lanes, k, a, ars, acs, g.panel, Lanes, g.edge, Lanes, false)
	for i := range m {
		row, edge := c[i*g.ldc+full:][:rest], g.edge[i*Lanes:][:rest]
		if acc {
			g.Add(row, row, edge)
		} else {
			copy(row, edge)
		}
	}
}

// columns copies columns j to j+cols of rows p to p+k of op(B) to the panel,
// whose rows are width long; the rest of them is set to zero.
func (g *gemm[T]) columns(cols, width, p, k, j int) {
	if cols < width {
		clear(g.panel[:k*width])
	}
	if g.tb {
		g.Transpose(g.panel, width, g.b[j*g.ldb+p:], g.ldb, cols, k)
		return
	}
	for i := range k {
		copy(g.panel[i*width:][:cols], g.b[(p+i)*g.ldb+j:])
	}
}
