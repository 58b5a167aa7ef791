//go:build !purego

package kernel

// transposeAVX2 is Table.Transpose: 8×8 blocks in assembly, the edges in Go.
// Columns are taken 128 at a time, so that the lines of dst that one strip of
// rows fills in half are still in the cache when the next strip does the rest.
func transposeAVX2(dst []float32, drs int, src []float32, srs, rows, cols int) {
	if rows <= 0 || cols <= 0 {
		return
	}
	at(src, (rows-1)*srs+cols)
	at(dst, (cols-1)*drs+rows)
	const wide = 128
	down, across := rows&^7, cols&^7
	for j := 0; j < across; j += wide {
		count := min(wide, across-j) / 8
		for i := 0; i < down; i += 8 {
			transpose8AVX2(count, &dst[j*drs+i], drs, &src[i*srs+j], srs)
		}
	}
	if across < cols {
		transposeGo(dst[across*drs:], drs, src[across:], srs, down, cols-across)
	}
	if down < rows {
		transposeGo(dst[down:], drs, src[down*srs:], srs, rows-down, cols)
	}
}
