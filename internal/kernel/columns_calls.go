//go:build (amd64 || arm64) && !purego

package kernel

// rowsAt returns a pointer to the first of rows of n numbers.
func rowsAt(x []float32, rs, rows, n int) *float32 { return at(x, (rows-1)*rs+n) }

func products(f func(n, rows int, dst *float32, drs int, w, p, x *float32, xrs int)) func(dst []float32, drs int, w, p, x []float32, xrs int) {
	return func(dst []float32, drs int, w, p, x []float32, xrs int) {
		if n, rows := len(p), len(w); n > 0 && rows > 0 {
			f(n, rows, rowsAt(dst, drs, rows, n), drs, at(w, rows), at(p, n), rowsAt(x, xrs, rows, n), xrs)
		}
	}
}

func featureSums(f func(n, count int, runs *int32, dst, p, x *float32, ld int, y, sums *float32)) func(dst []float32, runs []Run, p, x []float32, ld int, y, sums []float32) {
	return func(dst []float32, runs []Run, p, x []float32, ld int, y, sums []float32) {
		if n := len(y); n > 0 && len(runs) > 0 {
			count, np, nx := features(runs)
			f(n, len(runs), &runs[0].P, rowsAt(dst, ld, count, n), rowsAt(p, ld, np, n), rowsAt(x, ld, nx, n), ld, at(y, n), at(sums, count))
		}
	}
}

func featureDots(f func(n, count int, runs *int32, dst, p, x *float32, ld int, w, z, sums *float32)) func(dst []float32, runs []Run, p, x []float32, ld int, w, z, sums []float32) {
	return func(dst []float32, runs []Run, p, x []float32, ld int, w, z, sums []float32) {
		if n := len(sums); n > 0 && len(runs) > 0 {
			count, np, nx := features(runs)
			f(n, len(runs), &runs[0].P, rowsAt(dst, ld, count, n), rowsAt(p, ld, np, n), rowsAt(x, ld, nx, n), ld, at(w, count), at(z, count), at(sums, n))
		}
	}
}

func featureGrad(f func(n, count int, runs *int32, dx, dp, d, p, x *float32, ld int, w, z, y *float32)) func(dx, dp, d []float32, runs []Run, p, x []float32, ld int, w, z, y []float32) {
	return func(dx, dp, d []float32, runs []Run, p, x []float32, ld int, w, z, y []float32) {
		if n := len(y); n > 0 && len(runs) > 0 {
			count, np, nx := features(runs)
			f(n, len(runs), &runs[0].P, rowsAt(dx, ld, nx, n), rowsAt(dp, ld, np, n), rowsAt(d, ld, count, n), rowsAt(p, ld, np, n), rowsAt(x, ld, nx, n), ld, at(w, count), at(z, count), at(y, n))
		}
	}
}

func dots(f func(n, rows int, dst, x *float32, xrs int, w *float32)) func(dst, x []float32, xrs int, w []float32) {
	return func(dst, x []float32, xrs int, w []float32) {
		if n, rows := len(w), len(dst); rows > 0 {
			f(n, rows, at(dst, rows), rowsAt(x, xrs, rows, n), xrs, at(w, n))
		}
	}
}

func centre(f func(n, rows int, x *float32, rs int, each float32)) func(x []float32, rs, rows, n int) {
	return func(x []float32, rs, rows, n int) {
		if n > 0 && rows > 0 {
			f(n, rows, rowsAt(x, rs, rows, n), rs, 1/float32(rows))
		}
	}
}

func normalise(f func(n, rows int, x *float32, rs int, length float32)) func(x []float32, rs, rows, n int, length float32) {
	return func(x []float32, rs, rows, n int, length float32) {
		if n > 0 && rows > 0 {
			f(n, rows, rowsAt(x, rs, rows, n), rs, length)
		}
	}
}

func standardise(f func(n, rows int, x *float32, rs int, each, length float32)) func(x []float32, rs, rows, n int, length float32) {
	return func(x []float32, rs, rows, n int, length float32) {
		if n > 0 && rows > 0 {
			f(n, rows, rowsAt(x, rs, rows, n), rs, 1/float32(rows), length)
		}
	}
}

func normaliseGrad(f func(n, rows int, dx, x *float32, rs int, length float32)) func(dx, x []float32, rs, rows, n int, length float32) {
	return func(dx, x []float32, rs, rows, n int, length float32) {
		if n > 0 && rows > 0 {
			f(n, rows, rowsAt(dx, rs, rows, n), rowsAt(x, rs, rows, n), rs, length)
		}
	}
}

// reflection wraps both Reflect and ReflectGrad.
func reflection(f func(n, rows int, x *float32, rs int, a float32), one func(x []float32, rs, rows, n int)) func(x []float32, rs, rows, n int) {
	return func(x []float32, rs, rows, n int) {
		switch {
		case rows < 2:
			one(x, rs, rows, n)
		case n > 0:
			f(n, rows-1, rowsAt(x, rs, rows, n), rs, tilt[float32](rows))
		}
	}
}

func rotate(f func(n, rows int, x, y *float32, rs int, cos, sin *float32, cs int)) func(x, y []float32, rs int, cos, sin []float32, cs, rows, n int) {
	return func(x, y []float32, rs int, cos, sin []float32, cs, rows, n int) {
		if n > 0 && rows > 0 {
			f(n, rows, rowsAt(x, rs, rows, n), rowsAt(y, rs, rows, n), rs, rowsAt(cos, cs, rows, n), rowsAt(sin, cs, rows, n), cs)
		}
	}
}
