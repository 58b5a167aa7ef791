//go:build (amd64 || arm64) && !purego

package kernel

// transpose is Table.Transpose: f does 8×8 blocks. The last ones of a number of
// rows or columns that 8 does not divide overlap those before and write the same
// again; Go does what has fewer than 8. Columns are taken 128 at a time, so that
// the lines of dst that one strip of rows fills in half are still in the cache
// when the next strip does the rest.
func transpose(f func(count int, dst *float32, drs int, src *float32, srs int)) func(dst []float32, drs int, src []float32, srs, rows, cols int) {
	return func(dst []float32, drs int, src []float32, srs, rows, cols int) {
		if rows <= 0 || cols <= 0 {
			return
		}
		at(src, (rows-1)*srs+cols)
		at(dst, (cols-1)*drs+rows)
		if rows < 8 || cols < 8 {
			transposeGo(dst, drs, src, srs, rows, cols)
			return
		}
		const wide = 128
		for j := 0; j < cols; j += wide {
			width := min(wide, cols-j)
			for i := 0; i < rows; i += 8 {
				i := min(i, rows-8)
				if width >= 8 {
					f(width/8, &dst[j*drs+i], drs, &src[i*srs+j], srs)
				}
				if width%8 > 0 {
					j := cols - 8
					f(1, &dst[j*drs+i], drs, &src[i*srs+j], srs)
				}
			}
		}
	}
}
