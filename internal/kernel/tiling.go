//go:build (amd64 || arm64) && !purego

package kernel

// tile is a micro-kernel. run computes count tiles of C below one another.
type tile struct {
	rows, cols int
	run        func(count, k int, a *float32, ars, acs int, b *float32, brs int, c *float32, crs int, acc bool)
}

// prefetchTile is a tile for acs = 1 that adds bias, unless bias is nil, and prefetches a cache line with
// each step of k: of what is ahead, or unless asksAhead of the rest of B, and of what is ahead in the last tile.
type prefetchTile struct {
	rows, cols int
	asksAhead  bool
	// lower is the number of rows of the tile of which two replace a last tile and its remainder; 0: none.
	lower int
	run   func(count, k int, a *float32, ars, acs int, b *float32, brs int, c *float32, crs int, acc bool, bias, ahead *float32)
}

// tiling holds the tiles of an instruction set, the widest first, then the tallest. Flat tiles are for
// products of few rows: they have more sums in flight and read more of a row of B at a time.
type tiling struct {
	tallTiles, flatTiles []tile
	prefetching          prefetchTile // replaces the first tall tile
}

// runBlock is Table.Block. It processes C panel by panel, so that the panel of B stays in the
// first-level cache and A is read from the second-level cache.
func (s tiling) runBlock(m, n, k int, a []float32, ars, acs int, b []float32, brs int, c []float32, crs int, acc bool) {
	if m <= 0 || n <= 0 {
		return
	}
	if n%Lanes != 0 || k < 0 {
		panic("kernel: n is not a multiple of Lanes, or k negative")
	}
	if k > 0 {
		pointerTo(a, (m-1)*ars+(k-1)*acs+1)
		pointerTo(b, (k-1)*brs+n)
	}
	pointerTo(c, (m-1)*crs+n)
	j := 0
	if m <= s.flatTiles[0].rows {
		j = s.runPanels(s.flatTiles, 0, m, n, k, a, ars, acs, b, brs, c, crs, acc)
	}
	s.runPanels(s.tallTiles, j, m, n, k, a, ars, acs, b, brs, c, crs, acc)
}

// runTiles is Table.Tiles.
func (s tiling) runTiles(m, n, k int, a []float32, ars int, b []float32, brs int, c []float32, crs int, acc bool, bias, ahead []float32) (rows, cols int, rest []float32) {
	t := &s.prefetching
	count := m / t.rows
	if count > 0 && (count-1)*t.rows+2*t.lower == m {
		count--
	}
	rows, cols = count*t.rows, n/t.cols*t.cols
	if rows == 0 || cols == 0 || k <= 0 {
		return 0, 0, ahead
	}
	pointerTo(a, (rows-1)*ars+k)
	pointerTo(b, (k-1)*brs+cols)
	pointerTo(c, (rows-1)*crs+cols)
	if bias != nil {
		pointerTo(bias, cols)
	}
	for j := 0; j < cols; j += t.cols {
		var row *float32
		if bias != nil {
			row = &bias[j]
		}
		var next *float32
		if len(ahead) > 0 {
			next = &ahead[0]
		} else if t.asksAhead {
			next = &b[j] // any valid memory
		}
		t.run(count, k, &a[0], ars, 1, &b[j], brs, &c[j], crs, acc, row, next)
		if t.asksAhead {
			ahead = ahead[min(len(ahead), count*k*Lanes):]
		}
	}
	return rows, cols, ahead
}

// Lines of memory whose distance is a multiple of setStride elements share a set of the first-level cache,
// which holds at most setLines of C beside A and B.
const (
	setStride = 1024
	setLines  = 8
)

// runPanels computes the panels of C from column j that fit the widths of tiles, and returns the next
// column.
func (s tiling) runPanels(tiles []tile, j, m, n, k int, a []float32, ars, acs int, b []float32, brs int, c []float32, crs int, acc bool) int {
	for len(tiles) > 0 {
		cols := tiles[0].cols
		for ; n-j >= cols; j += cols {
			i := 0
			for next, t := range tiles {
				if t.cols != cols || i == m {
					break
				}
				if t.rows > setLines && crs%setStride == 0 {
					continue
				}
				count := (m - i) / t.rows
				if next++; next < len(tiles) && count > 0 && (m-i)%t.rows > 0 && (count-1)*t.rows+2*tiles[next].rows == m-i {
					count-- // two lower tiles are faster than this one and a remainder
				}
				if count > 0 {
					var ap, bp *float32
					if k > 0 {
						ap, bp = &a[i*ars], &b[j]
					}
					t.run(count, k, ap, ars, acs, bp, brs, &c[i*crs+j], crs, acc)
					i += count * t.rows
				}
			}
		}
		for len(tiles) > 0 && tiles[0].cols == cols {
			tiles = tiles[1:]
		}
	}
	return j
}
