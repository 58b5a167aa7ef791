package kernel

import "math"

// genericTable returns the pure Go routines: the fallback of every machine and the reference of every
// assembly routine.
func genericTable[T Float]() *Table[T] {
	return &Table[T]{
		Name:  "generic",
		Block: blockGo[T], Transpose: transposeGo[T],
		Axpy: axpyGo[T], Scale: scaleGo[T], Add: addGo[T], Mul: mulGo[T],
		MulAdd: mulAddGo[T], AddCarry: addCarryGo[T], SwapCarry: swapCarryGo[T],
		Dot: dotGo[T], Sum: sumGo[T], Max: maxGo[T], TopTwo: topTwoGo[T],
		Exp: expGo[T], ExpRows: expRowsGo[T], PolyRows: polyRowsGo[T], MulRows: mulRowsGo[T],
		ScaleRows: scaleRowsGo[T], MixRows: mixRowsGo[T], ClearRows: clearRowsGo[T], AddRows: addRowsGo[T], SumRows: sumRowsGo[T], RowDots: rowDotsGo[T],
		GELU: geluGo[T], GELUGrad: geluGradGo[T],
		ErfGELU: erfGELUGo[T], ErfGELUGrad: erfGELUGradGo[T],
		EluPlusOne: eluPlusOneGo[T], EluPlusOneGrad: eluPlusOneGradGo[T],
		LayerNorm: layerNormGo[T], LayerNormGrad: layerNormGradGo[T],
		AdamW:    adamWGo[T],
		Products: productsGo[T], Dots: dotsGo[T],
		FeatureSums: featureSumsGo[T], FeatureDots: featureDotsGo[T], FeatureGrad: featureGradGo[T],
		Centre: centreGo[T], Normalise: normaliseGo[T], Standardise: standardiseGo[T], NormaliseGrad: normaliseGradGo[T],
		Reflect: reflectGo[T], ReflectGrad: reflectGradGo[T], Rotate: rotateGo[T],
		Mix: mixGo[T], Renew: renewGo[T], FeatureRow: featureRowGo[T],
		Uniform: uniformGo[T],
	}
}

// blockGo computes tiles of 3 rows and 2 columns, the most sums that the compiler keeps in registers.
// Conversions of the products prevent fused multiply-adds, so that the bits are equal on all
// processors.
func blockGo[T Float](m, n, k int, a []T, ars, acs int, b []T, brs int, c []T, crs int, acc bool) {
	for i := 0; i < m; i += 3 {
		// The last tile repeats its last row if it has fewer than three.
		i1, i2 := min(i+1, m-1), min(i+2, m-1)
		for j := 0; j < n; j += 2 {
			var s00, s01, s10, s11, s20, s21 T
			x, x1, x2 := i*ars, (i1-i)*ars, (i2-i)*ars
			y := j
			for range k {
				a0, a1, a2 := a[x], a[x+x1], a[x+x2]
				b0, b1 := b[y], b[y+1]
				s00 += T(a0 * b0)
				s01 += T(a0 * b1)
				s10 += T(a1 * b0)
				s11 += T(a1 * b1)
				s20 += T(a2 * b0)
				s21 += T(a2 * b1)
				x += acs
				y += brs
			}
			if acc {
				s00, s01 = s00+c[i*crs+j], s01+c[i*crs+j+1]
				s10, s11 = s10+c[i1*crs+j], s11+c[i1*crs+j+1]
				s20, s21 = s20+c[i2*crs+j], s21+c[i2*crs+j+1]
			}
			c[i*crs+j], c[i*crs+j+1] = s00, s01
			c[i1*crs+j], c[i1*crs+j+1] = s10, s11
			c[i2*crs+j], c[i2*crs+j+1] = s20, s21
		}
	}
}

func transposeGo[T Float](dst []T, drs int, src []T, srs, rows, cols int) {
	if rows <= 0 || cols <= 0 {
		return
	}
	dst, src = checkedRows(dst, drs, cols, rows), checkedRows(src, srs, rows, cols)
	for i := range rows {
		for j, x := range src[i*srs:][:cols] {
			dst[j*drs+i] = x
		}
	}
}

func axpyGo[T Float](dst []T, a T, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += a * x[i]
	}
}

func scaleGo[T Float](dst []T, a T, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = a * x[i]
	}
}

func addGo[T Float](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func mulGo[T Float](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func mulAddGo[T Float](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] += x[i] * y[i]
	}
}

func addCarryGo[T Float](hi, lo, x []T) {
	lo, x = lo[:len(hi)], x[:len(hi)]
	for i, a := range hi {
		hi[i], lo[i] = addCompensated(a, lo[i], x[i])
	}
}

func swapCarryGo[T Float](hi, lo, x []T) {
	lo, x = lo[:len(hi)], x[:len(hi)]
	for i, a := range hi {
		hi[i], lo[i] = addCompensated(a, lo[i], x[i])
		x[i] = a
	}
}

// addCompensated returns hi + lo + x as its rounding and the rounding error.
func addCompensated[T Float](hi, lo, x T) (sum, rest T) {
	s := hi + x
	part := s - hi
	rest = (hi - (s - part)) + (x - part)
	rest += lo
	sum = s + rest
	return sum, rest - (sum - s)
}

func dotGo[T Float](x, y []T) T {
	y = y[:len(x)]
	var s0, s1, s2, s3 T
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func sumGo[T Float](x []T) T {
	var s0, s1, s2, s3 T
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i]
		s1 += x[i+1]
		s2 += x[i+2]
		s3 += x[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func maxGo[T Float](x []T) T {
	m := T(math.Inf(-1))
	for _, v := range x {
		if v > m || v != v {
			m = v
		}
		if m != m {
			return m
		}
	}
	return m
}

func expGo[T Float](dst, x []T, shift T) T {
	x = x[:len(dst)]
	var s float64 // rows may be as long as a vocabulary
	for i := range dst {
		dst[i] = T(math.Exp(float64(x[i] - shift)))
		s += float64(dst[i])
	}
	return T(s)
}

func expRowsGo[T Float](x []T, xrs, n int, factor T, shift, sum []T) {
	if len(shift) == 0 {
		return
	}
	x, sum = x[:(len(shift)-1)*xrs+n], sum[:len(shift)]
	for r, by := range shift {
		row := x[r*xrs:][:n]
		var s float64
		for i, v := range row {
			row[i] = T(math.Exp2(float64(v)*float64(factor) - float64(by)))
			s += float64(row[i])
		}
		sum[r] += T(s)
	}
}

func polyRowsGo[T Float](dst, x []T, rs, n int, coef, sum []T) {
	if len(sum) == 0 {
		return
	}
	top, rest := coef[len(coef)-1], coef[:len(coef)-1]
	dst, x = dst[:(len(sum)-1)*rs+n], x[:(len(sum)-1)*rs+n]
	for r := range sum {
		var s T
		for i := r * rs; i < r*rs+n; i++ {
			v, y := x[i], top
			for l := len(rest) - 1; l >= 0; l-- {
				y = y*v + rest[l]
			}
			dst[i] = y
			s += y
		}
		sum[r] += s
	}
}

func mulRowsGo[T Float](dst, x []T, rs, n int, a []T) {
	if len(a) == 0 {
		return
	}
	dst, x = dst[:(len(a)-1)*rs+n], x[:(len(a)-1)*rs+n]
	for r, v := range a {
		for i := r * rs; i < r*rs+n; i++ {
			dst[i] = (dst[i] + v) * x[i]
		}
	}
}

func scaleRowsGo[T Float](dst []T, drs int, x []T, xrs, n int, a []T) {
	if len(a) == 0 {
		return
	}
	dst, x = checkedRows(dst, drs, len(a), n), checkedRows(x, xrs, len(a), n)
	for r, v := range a {
		scaleGo(dst[r*drs:][:n], v, x[r*xrs:])
	}
}

func mixRowsGo[T Float](dst []T, drs int, x []T, xrs int, a, y []T, yrs int, b []T, n int) {
	if len(a) == 0 {
		return
	}
	dst, x, y, b = checkedRows(dst, drs, len(a), n), checkedRows(x, xrs, len(a), n), checkedRows(y, yrs, len(a), n), b[:len(a)]
	for r, v := range a {
		to, from := dst[r*drs:][:n], y[r*yrs:][:n]
		for i, z := range x[r*xrs:][:n] {
			to[i] = v*z + b[r]*from[i]
		}
	}
}

func clearRowsGo[T Float](x []T, xrs, rows, n int) {
	if rows <= 0 {
		return
	}
	x = checkedRows(x, xrs, rows, n)
	for r := range rows {
		clear(x[r*xrs:][:n])
	}
}

// checkedRows returns x up to the end of the last of rows of n numbers. It panics if x is too short,
// before anything is written.
func checkedRows[T Float](x []T, rs, rows, n int) []T { return x[:(rows-1)*rs+n] }

func addRowsGo[T Float](dst []T, drs int, x []T, xrs int, y []T, yrs, rows, n int) {
	if rows <= 0 {
		return
	}
	dst, x, y = checkedRows(dst, drs, rows, n), checkedRows(x, xrs, rows, n), checkedRows(y, yrs, rows, n)
	for r := range rows {
		addGo(dst[r*drs:][:n], x[r*xrs:], y[r*yrs:])
	}
}

func sumRowsGo[T Float](sum, x []T, xrs, rows int) {
	if rows <= 0 {
		return
	}
	x = checkedRows(x, xrs, rows, len(sum))
	for r := range rows {
		addGo(sum, sum, x[r*xrs:])
	}
}

func topTwoGo[T Float](x []T, xrs, n int, y []T, first int, best, next []T, at []int32) {
	rows := len(best) / Lanes
	if rows == 0 || n == 0 {
		return
	}
	x, y, next, at = checkedRows(x, xrs, rows, n), y[:n], next[:rows*Lanes], at[:rows*Lanes]
	for r := range rows {
		for j, z := range x[r*xrs:][:n] {
			z -= y[j]
			l := r*Lanes + j%Lanes
			if best[l] < z {
				best[l], next[l], at[l] = z, best[l], int32(first+j)
			} else if next[l] < z {
				next[l] = z
			}
		}
	}
}

func rowDotsGo[T Float](dst, x []T, xrs int, y []T, yrs, n int) {
	if len(dst) == 0 {
		return
	}
	x, y = checkedRows(x, xrs, len(dst), n), checkedRows(y, yrs, len(dst), n)
	for r := range dst {
		dst[r] = dotGo(x[r*xrs:][:n], y[r*yrs:])
	}
}

const (
	geluA = 0.7978845608028654 // √(2/π)
	geluB = 0.044715
)

func geluGo[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		v := float64(x[i])
		dst[i] = T(v / (1 + math.Exp(-2*geluA*(v+geluB*v*v*v))))
	}
}

func geluGradGo[T Float](dx, dy, x []T) {
	dy, x = dy[:len(dx)], x[:len(dx)]
	for i := range dx {
		// Beyond ±10 the derivative is 0 or 1 to all digits.
		v := min(max(float64(x[i]), -10), 10)
		s := 1 / (1 + math.Exp(-2*geluA*(v+geluB*v*v*v)))
		dx[i] = T(float64(dy[i]) * (s + v*s*(1-s)*2*geluA*(1+3*geluB*v*v)))
	}
}

// farGELU bounds abs(x): beyond it e^(-x²/2) is 0 in float64 and x·Φ(x) is 0 or x.
const farGELU = 40

func erfGELUGo[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		v := max(float64(x[i]), -farGELU)
		dst[i] = T(v * (math.Erfc(-v/math.Sqrt2) / 2))
	}
}

func erfGELUGradGo[T Float](dx, dy, x []T) {
	dy, x = dy[:len(dx)], x[:len(dx)]
	for i := range dx {
		v := min(max(float64(x[i]), -farGELU), farGELU)
		dx[i] = T(float64(dy[i]) * (math.Erfc(-v/math.Sqrt2)/2 + v*math.Exp(-v*v/2)/math.Sqrt(2*math.Pi)))
	}
}

func eluPlusOneGo[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i, v := range x {
		if v > 0 {
			dst[i] = v + 1
		} else {
			dst[i] = T(math.Exp(float64(v)))
		}
	}
}

func eluPlusOneGradGo[T Float](dx, dy, x []T) {
	dy, x = dy[:len(dx)], x[:len(dx)]
	for i, v := range x {
		if v > 0 {
			dx[i] = dy[i]
		} else {
			dx[i] = dy[i] * T(math.Exp(float64(v)))
		}
	}
}

func layerNormGo[T Float](dst []T, drs int, x []T, xrs, rows, n int, gain, bias, stats []T, eps T) {
	if rows <= 0 {
		return
	}
	dst, x, gain, stats = checkedRows(dst, drs, rows, n), checkedRows(x, xrs, rows, n), gain[:n], stats[:2*rows]
	if bias != nil {
		bias = bias[:n]
	}
	for r := range rows {
		to, from := dst[r*drs:][:n], x[r*xrs:][:n]
		mean := sumGo(from) / T(n)
		var ss T
		for _, v := range from {
			ss += (v - mean) * (v - mean)
		}
		rstd := T(1 / math.Sqrt(float64(ss/T(n)+eps)))
		for i, v := range from {
			y := (v - mean) * rstd * gain[i]
			if bias != nil {
				y += bias[i]
			}
			to[i] = y
		}
		stats[2*r], stats[2*r+1] = mean, rstd
	}
}

func layerNormGradGo[T Float](dx []T, dxrs int, dgain, dbias, dy []T, dyrs int, x []T, xrs, rows, n int, gain, stats []T) {
	if rows <= 0 {
		return
	}
	dx, dy, x = checkedRows(dx, dxrs, rows, n), checkedRows(dy, dyrs, rows, n), checkedRows(x, xrs, rows, n)
	gain, stats = gain[:n], stats[:2*rows]
	if dgain != nil {
		dgain = dgain[:n]
	}
	if dbias != nil {
		dbias = dbias[:n]
	}
	for r := range rows {
		to, dy, x := dx[r*dxrs:][:n], dy[r*dyrs:][:n], x[r*xrs:][:n]
		mean, rstd := stats[2*r], stats[2*r+1]
		var s1, s2 T // Σ dy·gain, Σ dy·gain·x̂
		for i := range to {
			h := (x[i] - mean) * rstd
			d := dy[i] * gain[i]
			s1 += d
			s2 += d * h
		}
		s1, s2 = s1/T(n), s2/T(n)
		for i := range to {
			h := (x[i] - mean) * rstd
			g := dy[i]
			if dgain != nil {
				dgain[i] += g * h
			}
			if dbias != nil {
				dbias[i] += g
			}
			to[i] += T(rstd * (g*gain[i] - s1 - h*s2))
		}
	}
}

func adamWGo[T Float](w, g, m, v []T, s *AdamWStep[T]) {
	g, m, v = g[:len(w)], m[:len(w)], v[:len(w)]
	for i := range w {
		d := s.GradScale * g[i]
		m[i] = s.Beta1*m[i] + (1-s.Beta1)*d
		v[i] = s.Beta2*v[i] + (1-s.Beta2)*d*d
		den := T(math.Sqrt(float64(v[i]*s.Correct2))) + s.Eps
		w[i] -= s.Rate * (m[i]*s.Correct1/den + s.Decay*w[i])
	}
}
