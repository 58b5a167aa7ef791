//go:build (amd64 || arm64) && !purego

package kernel

// pointerToRows returns a pointer to the first of rows of n numbers, rs apart. It panics if x is too
// short.
func pointerToRows(x []float32, rs, rows, n int) *float32 { return pointerTo(x, (rows-1)*rs+n) }

func wrapProducts(f func(n, rows int, dst *float32, drs int, w, p, x *float32, xrs int)) func(dst []float32, drs int, w, p, x []float32, xrs int) {
	return func(dst []float32, drs int, w, p, x []float32, xrs int) {
		if n, rows := len(p), len(w); n > 0 && rows > 0 {
			f(n, rows, pointerToRows(dst, drs, rows, n), drs, pointerTo(w, rows), pointerTo(p, n), pointerToRows(x, xrs, rows, n), xrs)
		}
	}
}

func wrapFeatureSums(f func(n, count int, runs *int32, dst, p, x *float32, ld int, y, sums *float32)) func(dst []float32, runs []Run, p, x []float32, ld int, y, sums []float32) {
	return func(dst []float32, runs []Run, p, x []float32, ld int, y, sums []float32) {
		if n := len(y); n > 0 && len(runs) > 0 {
			count, np, nx := countFeatures(runs)
			f(n, len(runs), &runs[0].P, pointerToRows(dst, ld, count, n), pointerToRows(p, ld, np, n), pointerToRows(x, ld, nx, n), ld, pointerTo(y, n), pointerTo(sums, count))
		}
	}
}

func wrapFeatureDots(f func(n, count int, runs *int32, dst, p, x *float32, ld int, w, z, sums *float32)) func(dst []float32, runs []Run, p, x []float32, ld int, w, z, sums []float32) {
	return func(dst []float32, runs []Run, p, x []float32, ld int, w, z, sums []float32) {
		if n := len(sums); n > 0 && len(runs) > 0 {
			count, np, nx := countFeatures(runs)
			f(n, len(runs), &runs[0].P, pointerToRows(dst, ld, count, n), pointerToRows(p, ld, np, n), pointerToRows(x, ld, nx, n), ld, pointerTo(w, count), pointerTo(z, count), pointerTo(sums, n))
		}
	}
}

func wrapFeatureGrad(f func(n, count int, runs *int32, dx, dp, d, p, x *float32, ld int, w, z, y *float32)) func(dx, dp, d []float32, runs []Run, p, x []float32, ld int, w, z, y []float32) {
	return func(dx, dp, d []float32, runs []Run, p, x []float32, ld int, w, z, y []float32) {
		if n := len(y); n > 0 && len(runs) > 0 {
			count, np, nx := countFeatures(runs)
			f(n, len(runs), &runs[0].P, pointerToRows(dx, ld, nx, n), pointerToRows(dp, ld, np, n), pointerToRows(d, ld, count, n), pointerToRows(p, ld, np, n), pointerToRows(x, ld, nx, n), ld, pointerTo(w, count), pointerTo(z, count), pointerTo(y, n))
		}
	}
}

func wrapDots(f func(n, rows int, dst, x *float32, xrs int, w *float32)) func(dst, x []float32, xrs int, w []float32) {
	return func(dst, x []float32, xrs int, w []float32) {
		if n, rows := len(w), len(dst); rows > 0 {
			f(n, rows, pointerTo(dst, rows), pointerToRows(x, xrs, rows, n), xrs, pointerTo(w, n))
		}
	}
}

func wrapCentre(f func(n, rows int, x *float32, rs int, each float32)) func(x []float32, rs, rows, n int) {
	return func(x []float32, rs, rows, n int) {
		if n > 0 && rows > 0 {
			f(n, rows, pointerToRows(x, rs, rows, n), rs, 1/float32(rows))
		}
	}
}

func wrapNormalise(f func(n, rows int, x *float32, rs int, length, limit float32)) func(x []float32, rs, rows, n int, length float32) {
	return func(x []float32, rs, rows, n int, length float32) {
		if n > 0 && rows > 0 {
			f(n, rows, pointerToRows(x, rs, rows, n), rs, length, float32(leastNorm(length)))
		}
	}
}

func wrapStandardise(f func(n, rows int, x *float32, rs int, each, length, limit float32)) func(x []float32, rs, rows, n int, length float32) {
	return func(x []float32, rs, rows, n int, length float32) {
		if n > 0 && rows > 0 {
			f(n, rows, pointerToRows(x, rs, rows, n), rs, 1/float32(rows), length, float32(leastNorm(length)))
		}
	}
}

func wrapNormaliseGrad(f func(n, rows int, dx, x *float32, rs int, length, limit float32)) func(dx, x []float32, rs, rows, n int, length float32) {
	return func(dx, x []float32, rs, rows, n int, length float32) {
		if n > 0 && rows > 0 {
			f(n, rows, pointerToRows(dx, rs, rows, n), pointerToRows(x, rs, rows, n), rs, length, float32(leastNorm(length)))
		}
	}
}

// wrapReflection adapts Reflect and ReflectGrad.
func wrapReflection(f func(n, rows int, x *float32, rs int, a float32), one func(x []float32, rs, rows, n int)) func(x []float32, rs, rows, n int) {
	return func(x []float32, rs, rows, n int) {
		switch {
		case rows < 2:
			one(x, rs, rows, n)
		case n > 0:
			f(n, rows-1, pointerToRows(x, rs, rows, n), rs, reflectionFactor[float32](rows))
		}
	}
}

func wrapRotate(f func(n, rows int, x, y *float32, rs int, cos, sin *float32, cs int)) func(x, y []float32, rs int, cos, sin []float32, cs, rows, n int) {
	return func(x, y []float32, rs int, cos, sin []float32, cs, rows, n int) {
		if n > 0 && rows > 0 {
			f(n, rows, pointerToRows(x, rs, rows, n), pointerToRows(y, rs, rows, n), rs, pointerToRows(cos, cs, rows, n), pointerToRows(sin, cs, rows, n), cs)
		}
	}
}
