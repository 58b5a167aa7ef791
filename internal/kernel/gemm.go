package kernel

// A product is cut into blocks that suit the caches. One pass takes at most
// gemmDepth of k. A block of gemmCols columns of B lies in the third-level
// cache and is gone through in panels of gemmPanel columns, which the first
// holds; gemmRows rows of A stay in the second.
const (
	gemmDepth = 384
	gemmRows  = 96
	gemmCols  = 1024
	gemmPanel = 2 * Lanes
	// gemmFew is the number of rows up to which copying A, and a B that needs
	// no transposing, costs more than reading them where they are.
	gemmFew = 24
)

// GemmScratch is the number of elements that Gemm needs as scratch: blocks of
// A, B and C, which do not grow with the matrices beyond a limit. It does for
// any smaller m, n and k too.
func GemmScratch(m, n, k int) int {
	m, n, k = min(m, gemmRows), min(n, gemmCols), min(k, gemmDepth)
	return Pad(n)*k + m*gemmPanel + max(m*stride(k), k*stride(m))
}

// passDepth is how much of k one pass takes, at most: passes are about equal.
func passDepth(k int) int {
	passes := max(1, (k+gemmDepth-1)/gemmDepth)
	return (k + passes - 1) / passes
}

// stride is the least row stride for n elements that is an odd number of
// cache lines, so that the lines of a column spread over all sets of a cache.
func stride(n int) int {
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
	g := gemm[T]{Table: t, ta: ta, tb: tb, lda: lda, ldb: ldb, ldc: ldc}
	rows, cols, most := min(m, gemmRows), min(Pad(n), gemmCols), passDepth(k)
	g.panels, scratch = scratch[:cols*most], scratch[cols*most:]
	g.edge, g.block = scratch[:rows*gemmPanel], scratch[rows*gemmPanel:]
	for p := 0; p < k; p += most {
		depth := min(most, k-p)
		ap, bp := a[p:], b
		if ta {
			ap = a[p*lda:]
		}
		if tb {
			bp = b[p:]
		} else {
			bp = b[p*ldb:]
		}
		if m <= gemmFew {
			g.few(m, n, depth, ap, bp, c, acc || p > 0)
		} else {
			g.many(m, n, depth, ap, bp, c, acc || p > 0)
		}
	}
}

// gemm is what the passes over k of one product share.
type gemm[T Float] struct {
	*Table[T]
	ta, tb        bool
	lda, ldb, ldc int
	panels        []T // columns of op(B), a panel after the other
	edge          []T // a panel of C that ends within Lanes
	block         []T // rows of A
}

// few adds to C, or sets it to, op(A)·op(B) for m of at most gemmFew.
func (g *gemm[T]) few(m, n, k int, a, b, c []T, acc bool) {
	ars, acs := g.lda, 1
	if g.ta {
		ars, acs = 1, g.lda
	}
	j := 0
	if !g.tb {
		j = n &^ (Lanes - 1)
		g.Block(m, j, k, a, ars, acs, b, g.ldb, c, g.ldc, acc)
	}
	for ; j < n; j += gemmPanel {
		cols := min(gemmPanel, n-j)
		g.pack(cols, k, g.columns(b, j))
		g.panel(m, cols, k, a, ars, acs, g.panels, c[j:], acc)
	}
}

// many does the same for any m.
func (g *gemm[T]) many(m, n, k int, a, b, c []T, acc bool) {
	for j := 0; j < n; j += gemmCols {
		cols := min(gemmCols, n-j)
		g.pack(cols, k, g.columns(b, j))
		for i := 0; i < m; i += gemmRows {
			rows := min(gemmRows, m-i)
			ars, acs := g.copyRows(rows, k, a, i)
			for l := 0; l < cols; l += gemmPanel {
				g.panel(rows, min(gemmPanel, cols-l), k, g.block, ars, acs, g.panels[l*k:], c[i*g.ldc+j+l:], acc)
			}
		}
	}
}

// columns is op(B) from column j on, as it is stored.
func (g *gemm[T]) columns(b []T, j int) []T {
	if g.tb {
		return b[j*g.ldb:]
	}
	return b[j:]
}

// pack copies k rows of n columns of op(B) to the panels; the columns that the
// last one has beyond n are zero.
func (g *gemm[T]) pack(n, k int, b []T) {
	last := (n - 1) &^ (gemmPanel - 1)
	width := Pad(n - last)
	if n%Lanes != 0 {
		clear(g.panels[last*k:][:width*k])
	}
	if g.tb {
		for j := 0; j < last; j += gemmPanel {
			g.Transpose(g.panels[j*k:], gemmPanel, b[j*g.ldb:], g.ldb, gemmPanel, k)
		}
		g.Transpose(g.panels[last*k:], width, b[last*g.ldb:], g.ldb, n-last, k)
		return
	}
	for p := range k {
		row := b[p*g.ldb:][:n]
		for j := 0; j < last; j += gemmPanel {
			copy(g.panels[j*k+p*gemmPanel:][:gemmPanel], row[j:])
		}
		copy(g.panels[last*k+p*width:], row[last:])
	}
}

// copyRows copies rows i to i+m of op(A), as they are stored, to the block and
// returns the strides of op(A) there.
func (g *gemm[T]) copyRows(m, k int, a []T, i int) (ars, acs int) {
	rows, cols, from := m, k, i*g.lda
	if g.ta {
		rows, cols, from = k, m, i
	}
	s := stride(cols)
	for r := range rows {
		copy(g.block[r*s:][:cols], a[from+r*g.lda:])
	}
	if g.ta {
		return 1, s
	}
	return s, 1
}

// panel multiplies m rows of op(A) with one packed panel of op(B).
func (g *gemm[T]) panel(m, n, k int, a []T, ars, acs int, panel, c []T, acc bool) {
	width := Pad(n)
	if n == width {
		g.Block(m, n, k, a, ars, acs, panel, n, c, g.ldc, acc)
		return
	}
	g.Block(m, width, k, a, ars, acs, panel, width, g.edge, width, false)
	for i := range m {
		row, edge := c[i*g.ldc:][:n], g.edge[i*width:]
		if acc {
			g.Add(row, row, edge)
		} else {
			copy(row, edge)
		}
	}
}
