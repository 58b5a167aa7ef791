//go:build (amd64 || arm64) && !purego

package kernel

// mixers holds the routines of Mix for panels of 64, 32 and 16 columns, without and with the total.
type mixers struct {
	withoutTotal [3]func(k, step int, c, a, b *float32, brs int)
	total        [3]func(k, step int, c, a, b *float32, brs int, z *float32, total float32) float32
}

// runMix is Table.Mix. The first panel also computes the total.
func (s *mixers) runMix(c, a []float32, step int, b []float32, brs int, z []float32, total float32) float32 {
	n, k := len(c), len(a)
	if n%Lanes != 0 || step <= 0 {
		panic("kernel: n is not a multiple of Lanes, or no step")
	}
	if n == 0 || k == 0 {
		return total
	}
	pointerTo(b, (k-1)*brs+n)
	summed := z == nil
	if !summed {
		pointerTo(z, k)
	}
	for i, cols := 0, 4*Lanes; cols >= Lanes; i, cols = i+1, cols/2 {
		for ; len(c) >= cols; c, b = c[cols:], b[cols:] {
			if summed {
				s.withoutTotal[i](k, step, &c[0], &a[0], &b[0], brs)
			} else {
				total = s.total[i](k, step, &c[0], &a[0], &b[0], brs, &z[0], total)
				summed = true
			}
		}
	}
	return total
}

// renewers holds the routines of Renew for panels of 32 and 16 columns, without and with the total.
type renewers struct {
	withoutTotal [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w *float32)
	total        [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w, q, z *float32, c0, c1 float32, totals *float32)
}

// runRenew is Table.Renew. The first panel also computes weights and totals.
func (s *renewers) runRenew(count, n, k int, c []float32, crs int, a, q, x []float32, ars int, y []float32, yrs int, b []float32, brs int, z []float32, next int, c0, c1 float32, totals, w []float32) {
	if n%Lanes != 0 {
		panic(errWhole)
	}
	if count <= 0 || n <= 0 || k <= 0 {
		return
	}
	last := count - 1
	pointerTo(c, last*crs+n)
	pointerTo(b, last*next+(k-1)*brs+n)
	pointerTo(z, last*next+k)
	pointerTo(a, last*ars+k)
	pointerTo(q, last*ars+k)
	pointerTo(x, last*ars+k)
	pointerTo(y, last*yrs+n)
	pointerTo(totals, count)
	pointerTo(w, count)
	first := true
	for i, j, cols := 0, 0, 2*Lanes; cols >= Lanes; i, cols = i+1, cols/2 {
		for ; n-j >= cols; j += cols {
			if first {
				s.total[i](count, k, &c[j], crs, &a[0], &x[0], ars, &y[j], yrs, &b[j], brs, next, &w[0], &q[0], &z[0], c0, c1, &totals[0])
				first = false
			} else {
				s.withoutTotal[i](count, k, &c[j], crs, &a[0], &x[0], ars, &y[j], yrs, &b[j], brs, next, &w[0])
			}
		}
	}
}

func wrapFeatureRow(f func(rows, n int, dst, w *float32, s float32, x *float32)) func(dst, w []float32, s float32, x []float32, rows int) {
	return func(dst, w []float32, s float32, x []float32, rows int) {
		if rows <= 0 {
			return
		}
		n := len(x)
		pointerTo(x, rows)
		most := rowFeatures(n, rows) + Lanes - 1
		f(rows, n, pointerTo(dst, most), pointerTo(w, most), s, pointerTo(x[:cap(x)], n+Lanes-1))
	}
}
