//go:build !purego

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

func productsGrad(f func(n, rows int, dx, dp, d, p, x *float32, rs int)) func(dx, dp, d, p, x []float32, rs, rows int) {
	return func(dx, dp, d, p, x []float32, rs, rows int) {
		if n := len(p); n > 0 && rows > 0 {
			f(n, rows, rowsAt(dx, rs, rows, n), at(dp, n), rowsAt(d, rs, rows, n), at(p, n), rowsAt(x, rs, rows, n), rs)
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

func normaliseGrad(f func(n, rows int, dx, x *float32, rs int, length float32)) func(dx, x []float32, rs, rows, n int, length float32) {
	return func(dx, x []float32, rs, rows, n int, length float32) {
		if n > 0 && rows > 0 {
			f(n, rows, rowsAt(dx, rs, rows, n), rowsAt(x, rs, rows, n), rs, length)
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
