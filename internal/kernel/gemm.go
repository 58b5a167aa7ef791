package kernel

// GemmScratch is the number of elements that Gemm needs as scratch.
func GemmScratch(m, n, k int) int { return k*Pad(n) + m*Pad(n) }

// Gemm computes C = op(A)·op(B), or C += op(A)·op(B) when acc is set, for
// C [m,n], op(A) [m,k], op(B) [k,n], where op transposes when ta or tb is set:
// A is stored [m,k] with row stride lda, or [k,m] when ta is set; likewise B.
// scratch holds at least GemmScratch(m,n,k) elements and overlaps nothing.
// A row's bits do not depend on m, a column's not on n.
func Gemm[T Float](t *Table[T], ta, tb bool, m, n, k int, a []T, lda int, b []T, ldb int, acc bool, c []T, ldc int, scratch []T) {
	np := Pad(n)
	bp, cp := scratch[:k*np], scratch[k*np:][:m*np]
	clear(bp)
	if tb {
		t.Transpose(bp, np, b, ldb, n, k)
	} else {
		for p := range k {
			copy(bp[p*np:][:n], b[p*ldb:])
		}
	}
	ars, acs := lda, 1
	if ta {
		ars, acs = 1, lda
	}
	t.Block(m, np, k, a, ars, acs, bp, np, cp, np, false)
	for i := range m {
		row := c[i*ldc:][:n]
		if acc {
			t.Add(row, row, cp[i*np:])
		} else {
			copy(row, cp[i*np:])
		}
	}
}
