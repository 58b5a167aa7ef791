//go:build (amd64 || arm64) && !purego

package kernel

// tile is one routine's part of C: count tiles below one another.
type tile struct {
	rows, cols int
	run        func(count, k int, a *float32, ars, acs int, b *float32, brs int, c *float32, crs int, acc bool)
}

// askingTile is a tile that adds bias, unless it is nil, and asks for memory with each
// step of k, where acs is 1.
type askingTile struct {
	rows, cols int
	run        func(count, k int, a *float32, ars, acs int, b *float32, brs int, c *float32, crs int, acc bool, bias, ahead *float32)
}

// tiling is an instruction set's tiles, the widest and then the tallest first.
// Flat tiles are for products of few rows, where they have more sums in flight
// and read more of a row of B at once.
type tiling struct {
	tall, flat []tile
	asking     askingTile // in the place of the first of the tall ones
}

// block is Table.Block. It goes down a panel of columns, so that the panel of
// B stays in the first-level cache and A comes from the second.
func (s tiling) block(m, n, k int, a []float32, ars, acs int, b []float32, brs int, c []float32, crs int, acc bool) {
	if m <= 0 || n <= 0 {
		return
	}
	if n%Lanes != 0 || k < 0 {
		panic("kernel: n is not a multiple of Lanes, or k negative")
	}
	if k > 0 {
		at(a, (m-1)*ars+(k-1)*acs+1)
		at(b, (k-1)*brs+n)
	}
	at(c, (m-1)*crs+n)
	j := 0
	if m <= s.flat[0].rows {
		j = s.panels(s.flat, 0, m, n, k, a, ars, acs, b, brs, c, crs, acc)
	}
	s.panels(s.tall, j, m, n, k, a, ars, acs, b, brs, c, crs, acc)
}

// tiles is Table.Tiles.
func (s tiling) tiles(m, n, k int, a []float32, ars int, b []float32, brs int, c []float32, crs int, acc bool, bias, ahead []float32) (rows, cols int, rest []float32) {
	t := &s.asking
	count := m / t.rows
	rows, cols = count*t.rows, n/t.cols*t.cols
	if rows == 0 || cols == 0 || k <= 0 {
		return 0, 0, ahead
	}
	at(a, (rows-1)*ars+k)
	at(b, (k-1)*brs+cols)
	at(c, (rows-1)*crs+cols)
	if bias != nil {
		at(bias, cols)
	}
	for j := 0; j < cols; j += t.cols {
		var row *float32
		if bias != nil {
			row = &bias[j]
		}
		next := &b[j] // which is there
		if len(ahead) > 0 {
			next = &ahead[0]
		}
		t.run(count, k, &a[0], ars, 1, &b[j], brs, &c[j], crs, acc, row, next)
		ahead = ahead[min(len(ahead), count*k*Lanes):]
	}
	return rows, cols, ahead
}

// panels computes the panels of C from column j on that tiles are wide enough
// for, and returns the column after them.
func (s tiling) panels(tiles []tile, j, m, n, k int, a []float32, ars, acs int, b []float32, brs int, c []float32, crs int, acc bool) int {
	for len(tiles) > 0 {
		cols := tiles[0].cols
		for ; n-j >= cols; j += cols {
			i := 0
			for next, t := range tiles {
				if t.cols != cols || i == m {
					break
				}
				count := (m - i) / t.rows
				if next++; next < len(tiles) && count > 0 && (m-i)%t.rows > 0 && (count-1)*t.rows+2*tiles[next].rows == m-i {
					count-- // two of the next are faster than one and a low one
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
