//go:build (amd64 || arm64) && !purego

package kernel

// wrapTranspose returns Table.Transpose with f for blocks of 8×8. If 8 does not divide rows or columns,
// the last blocks overlap the previous ones and write equal values. Fewer than 8 rows or columns run in
// Go. Columns are processed 128 at a time, so that half-filled cache lines of dst stay in the cache
// until the next strip of rows fills them.
func wrapTranspose(f func(count int, dst *float32, drs int, src *float32, srs int)) func(dst []float32, drs int, src []float32, srs, rows, cols int) {
	return func(dst []float32, drs int, src []float32, srs, rows, cols int) {
		if rows <= 0 || cols <= 0 {
			return
		}
		pointerTo(src, (rows-1)*srs+cols)
		pointerTo(dst, (cols-1)*drs+rows)
		if rows < 8 || cols < 8 {
			transposeGo(dst, drs, src, srs, rows, cols)
			return
		}
		const blockColumns = 128
		for j := 0; j < cols; j += blockColumns {
			width := min(blockColumns, cols-j)
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
