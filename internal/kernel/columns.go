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

func featureSumsGo[T Float](dst []T, runs []Run, p, x []T, ld int, y, sums []T) {
	f := 0
	for _, r := range runs {
		for i := range r.N {
			row := dst[f*ld:][:len(y)]
			mulGo(row, p[int(r.P)*ld:], x[int(r.X+i)*ld:])
			sums[f] = dotGo(row, y)
			f++
		}
	}
}

func featureDotsGo[T Float](dst []T, runs []Run, p, x []T, ld int, w, z, sums []T) {
	f := 0
	for _, r := range runs {
		shared := p[int(r.P)*ld:][:len(sums)]
		for k := range r.N {
			row, other := dst[f*ld:][:len(sums)], x[int(r.X+k)*ld:][:len(sums)]
			a, b := w[f], z[f]
			for i := range sums {
				d := a * (shared[i] * other[i])
				row[i] = d
				sums[i] += T(b * d)
			}
			f++
		}
	}
}

func featureGradGo[T Float](dx, dp, d []T, runs []Run, p, x []T, ld int, w, z, y []T) {
	n, f := len(y), 0
	for _, r := range runs {
		at := int(r.P) * ld
		for i := range r.N {
			row, from := d[f*ld:][:n], int(r.X+i)*ld
			a, b := w[f], z[f]
			dx, dp, p, x := dx[from:][:n], dp[at:][:n], p[at:][:n], x[from:][:n]
			for c, v := range row {
				e := a * (v + b*y[c])
				dx[c] += e * p[c]
				dp[c] += e * x[c]
			}
			f++
		}
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

// leastNorm returns the norm below which a column to be given length becomes zero: 2⁻¹²⁶, in
// float32 also 2⁻¹²⁷·|length|, so that the quotient of both is a number.
func leastNorm[T Float](length T) float64 {
	half := math.Abs(float64(length)) / 2
	if _, single := any(length).(float32); single && half > 1 && half <= math.MaxFloat32 {
		return tiny * half
	}
	return tiny
}

// ColumnNorm returns the 2-norm of the rows numbers x[0], x[rs], x[2·rs], …, in float64. Squares
// that leave its range are taken of the numbers over the largest.
func ColumnNorm[T Float](x []T, rs, rows int) float64 {
	ss := innerGo(x, x, rs, rows)
	if ss >= 0x1p-960 && ss <= math.MaxFloat64 {
		return math.Sqrt(ss)
	}
	largest := 0.0
	for r := range rows {
		largest = max(largest, math.Abs(float64(x[r*rs])))
	}
	if !(largest > 0 && largest <= math.MaxFloat64) {
		return math.Sqrt(ss)
	}
	ss = 0
	for r := range rows {
		y := float64(x[r*rs]) / largest
		ss += y * y
	}
	return largest * math.Sqrt(ss)
}

func normaliseGo[T Float](x []T, rs, rows, n int, length T) {
	limit := leastNorm(length)
	for i := range n {
		size := ColumnNorm(x[i:], rs, rows)
		factor := float64(length) / size
		switch {
		case size < limit:
			factor = 0
		case math.IsInf(size, 1):
			factor = math.NaN()
		}
		for r := range rows {
			x[r*rs+i] = T(float64(x[r*rs+i]) * factor)
		}
	}
}

func standardiseGo[T Float](x []T, rs, rows, n int, length T) {
	centreGo(x, rs, rows, n)
	normaliseGo(x, rs, rows, n, length)
}

func normaliseGradGo[T Float](dx, x []T, rs, rows, n int, length T) {
	limit := leastNorm(length)
	for i := range n {
		ss := innerGo(x[i:], x[i:], rs, rows)
		if math.IsInf(ss, 1) {
			normaliseLargeGradGo(dx[i:], x[i:], rs, rows, length)
			continue
		}
		size := math.Sqrt(ss)
		factor, slope := float64(length)/size, innerGo(x[i:], dx[i:], rs, rows)/ss
		if size < limit {
			factor, slope = 0, 0
		}
		for r := range rows {
			dx[r*rs+i] = T(factor * (float64(dx[r*rs+i]) - slope*float64(x[r*rs+i])))
		}
	}
}

// normaliseLargeGradGo is normaliseGradGo for a column whose squares leave the range of float64.
func normaliseLargeGradGo[T Float](dx, x []T, rs, rows int, length T) {
	size, along := ColumnNorm(x, rs, rows), 0.0
	for r := range rows {
		along += float64(x[r*rs]) / size * float64(dx[r*rs])
	}
	for r := range rows {
		dx[r*rs] = T(float64(length) / size * (float64(dx[r*rs]) - along*(float64(x[r*rs])/size)))
	}
}

// innerGo returns Σ x·y down a column.
func innerGo[T Float](x, y []T, rs, rows int) float64 {
	var s float64
	for r := range rows {
		s += float64(x[r*rs]) * float64(y[r*rs])
	}
	return s
}

// reflectionFactor returns the factor by which the reflection of rows numbers of mean 0 adds the last
// number to the others: x - 2w(w·x)/|w|² with w = (1, …, 1)/√rows - e_last.
func reflectionFactor[T Float](rows int) T { return T(1 / (math.Sqrt(float64(rows)) - 1)) }

func reflectGo[T Float](x []T, rs, rows, n int) {
	if rows < 2 {
		clear(x[:rows*n])
		return
	}
	last := x[(rows-1)*rs:][:n]
	scaleGo(last, reflectionFactor[T](rows), last)
	for r := range rows - 1 {
		row := x[r*rs:][:n]
		addGo(row, row, last)
	}
	clear(last)
}

func reflectGradGo[T Float](dx []T, rs, rows, n int) {
	if rows < 2 {
		return
	}
	last := dx[(rows-1)*rs:][:n]
	clear(last)
	for r := range rows - 1 {
		addGo(last, last, dx[r*rs:])
	}
	scaleGo(last, reflectionFactor[T](rows), last)
}

func rotateGo[T Float](x, y []T, rs int, cos, sin []T, cs, rows, n int) {
	for r := range rows {
		x, y, c, s := x[r*rs:][:n], y[r*rs:][:n], cos[r*cs:][:n], sin[r*cs:][:n]
		for i, a := range x {
			x[i], y[i] = a*c[i]-y[i]*s[i], y[i]*c[i]+a*s[i]
		}
	}
}
