//go:build (amd64 || arm64) && !purego

package kernel

// transpose is Table.Transpose: f does 8×8 blocks, Go the edges. Columns are
// taken 128 at a time, so that the lines of dst that one strip of rows fills in
// half are still in the cache when the next strip does the rest.
func transpose(f func(count int, dst *float32, drs int, src *float32, srs int)) func(dst []float32, drs int, src []float32, srs, rows, cols int) {
	return func(dst []float32, drs int, src []float32, srs, rows, cols int) {
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
				f(count, &dst[j*drs+i], drs, &src[i*srs+j], srs)
			}
		}
		if across < cols {
			transposeGo(dst[across*drs:], drs, src[across:], srs, down, cols-across)
		}
		if down < rows {
			transposeGo(dst[down:], drs, src[down*srs:], srs, rows-down, cols)
		}
	}
}
