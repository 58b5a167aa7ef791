package kernel

import "math"

// tiny is the smallest normal number of float32.
const tiny = 0x1p-126

func productsGo[T Float](dst []T, drs int, w, p, x []T, xrs int) {
	for r, a := range w {
		row := dst[r*drs:][:len(p)]
		other := x[r*xrs:][:len(p)]
		for i := range row {
			row[i] = a * (p[i] * other[i])
		}
	}
}

func productsGradGo[T Float](dx, dp, d, p, x []T, rs, rows int) {
	for r := range rows {
		mulAddGo(dx[r*rs:][:len(p)], d[r*rs:], p)
		mulAddGo(dp[:len(p)], d[r*rs:], x[r*rs:])
	}
}

func dotsGo[T Float](dst, x []T, xrs int, w []T) {
	for r := range dst {
		dst[r] = dotGo(w, x[r*xrs:])
	}
}

func centreGo[T Float](x []T, rs, rows, n int) {
	for i := range n {
		first := x[i]
		var sum, rest T
		for r := range rows {
			sum += x[r*rs+i] - first
		}
		mean := sum / T(rows)
		for r := range rows {
			d := x[r*rs+i] - first - mean
			rest += d
			x[r*rs+i] = d
		}
		rest /= T(rows)
		for r := range rows {
			x[r*rs+i] -= rest
		}
	}
}

func normaliseGo[T Float](x []T, rs, rows, n int, length T) {
	for i := range n {
		size := math.Sqrt(innerGo(x[i:], x[i:], rs, rows))
		factor := float64(length) / size
		if size < tiny {
			factor = 0
		}
		for r := range rows {
			x[r*rs+i] = T(float64(x[r*rs+i]) * factor)
		}
	}
}

func normaliseGradGo[T Float](dx, x []T, rs, rows, n int, length T) {
	for i := range n {
		ss := innerGo(x[i:], x[i:], rs, rows)
		size := math.Sqrt(ss)
		factor, slope := float64(length)/size, innerGo(x[i:], dx[i:], rs, rows)/ss
		if size < tiny {
			factor, slope = 0, 0
		}
		for r := range rows {
			dx[r*rs+i] = T(factor * (float64(dx[r*rs+i]) - slope*float64(x[r*rs+i])))
		}
	}
}

// innerGo is Σ x·y down a column.
func innerGo[T Float](x, y []T, rs, rows int) float64 {
	var s float64
	for r := range rows {
		s += float64(x[r*rs]) * float64(y[r*rs])
	}
	return s
}

func rotateGo[T Float](x, y []T, rs int, cos, sin []T, cs, rows, n int) {
	for r := range rows {
		x, y, c, s := x[r*rs:][:n], y[r*rs:][:n], cos[r*cs:][:n], sin[r*cs:][:n]
		for i, a := range x {
			x[i], y[i] = a*c[i]-y[i]*s[i], y[i]*c[i]+a*s[i]
		}
	}
}
