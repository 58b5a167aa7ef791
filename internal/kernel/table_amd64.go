//go:build !purego

package kernel

import (
	"math"
	"slices"
	"unsafe"

	"github.com/farfield-ml/farfield/internal/cpu"
)

// assembly returns the tables of assembly routines that this machine can run.
func assembly() []*Table[float32] {
	var all []*Table[float32]
	for _, t := range []*Table[float32]{avx512(), avx2()} {
		if slices.Contains(cpu.Available(), t.Name) {
			all = append(all, t)
		}
	}
	return all
}

func avx512() *Table[float32] {
	return &Table[float32]{
		Name: cpu.AVX512,
		Block: tiling{
			tall: []tile{
				{12, 32, tile12x32AVX512}, {8, 32, tile8x32AVX512}, {4, 32, tile4x32AVX512},
				{2, 32, tile2x32AVX512}, {1, 32, tile1x32AVX512},
				{12, 16, tile12x16AVX512}, {8, 16, tile8x16AVX512}, {4, 16, tile4x16AVX512},
				{2, 16, tile2x16AVX512}, {1, 16, tile1x16AVX512},
			},
			flat: []tile{
				{6, 64, tile6x64AVX512}, {4, 64, tile4x64AVX512},
				{2, 64, tile2x64AVX512}, {1, 64, tile1x64AVX512},
			},
		}.block,
		Transpose: transposeAVX2,
		Axpy:      scaled(axpyAVX512), Scale: scaled(scaleAVX512),
		Add: binary(addAVX512), Mul: binary(mulAVX512), MulAdd: binary(mulAddAVX512),
		AddCarry: binary(addCarryAVX512), SwapCarry: binary(swapCarryAVX512),
		Dot: dot(dotAVX512), Sum: reduction(sumAVX512), Max: reduction(maxAVX512),
		Exp: exp(expAVX512), ExpRows: expRows(expRowsAVX512),
		PolyRows: polyRows(polyRowsAVX512), MulRows: mulRows(mulRowsAVX512),
		ScaleRows: scaleRows(scaleRowsAVX512),
		GELU:      unary(geluAVX512), GELUGrad: binary(geluGradAVX512),
		ErfGELU: unary(erfGELUAVX512), ErfGELUGrad: binary(erfGELUGradAVX512),
		EluPlusOne: unary(eluPlusOneAVX512), EluPlusOneGrad: binary(eluPlusOneGradAVX512),
		LayerNorm:     layerNorm(sumAVX512, varianceAVX512, normalizeAVX512, normalizeBiasAVX512),
		LayerNormGrad: layerNormGrad(normSumsAVX512, normGradAVX512, gainGradAVX512, addAVX512),
		AdamW:         adamW(adamWAVX512),
		Products:      products(productsAVX512),
		FeatureSums:   featureSums(featureSumsAVX512), FeatureDots: featureDots(featureDotsAVX512),
		FeatureGrad: featureGrad(featureGradAVX512),
		Dots:        dots(dotsAVX512), Centre: centre(centreAVX512),
		Normalise: normalise(normaliseAVX512), Standardise: standardise(standardiseAVX512),
		NormaliseGrad: normaliseGrad(normaliseGradAVX512),
		Reflect:       reflection(reflectAVX512, reflectGo), ReflectGrad: reflection(reflectGradAVX512, reflectGradGo),
		Rotate: rotate(rotateAVX512),
		Mix: (&mixers{
			plain: [3]func(k, step int, c, a, b *float32, brs int){mix64AVX512, mix32AVX512, mix16AVX512},
			total: [3]func(k, step int, c, a, b *float32, brs int, z *float32, total float32) float32{mixTotal64AVX512, mixTotal32AVX512, mixTotal16AVX512},
		}).mix,
		FeatureRow: featureRow(featureRowAVX512),
		Uniform:    uniform(uniformAVX512),
	}
}

func avx2() *Table[float32] {
	return &Table[float32]{
		Name: cpu.AVX2,
		Block: tiling{
			tall: []tile{
				{6, 16, tile6x16AVX2}, {4, 16, tile4x16AVX2},
				{2, 16, tile2x16AVX2}, {1, 16, tile1x16AVX2},
			},
			flat: []tile{{1, 64, tile1x64AVX2}},
		}.block,
		Transpose: transposeAVX2,
		Axpy:      scaled(axpyAVX2), Scale: scaled(scaleAVX2),
		Add: binary(addAVX2), Mul: binary(mulAVX2), MulAdd: binary(mulAddAVX2),
		AddCarry: binary(addCarryAVX2), SwapCarry: binary(swapCarryAVX2),
		Dot: dot(dotAVX2), Sum: reduction(sumAVX2), Max: reduction(maxAVX2),
		Exp: exp(expAVX2), ExpRows: expRows(expRowsAVX2),
		PolyRows: polyRows(polyRowsAVX2), MulRows: mulRows(mulRowsAVX2),
		ScaleRows: scaleRows(scaleRowsAVX2),
		GELU:      unary(geluAVX2), GELUGrad: binary(geluGradAVX2),
		ErfGELU: unary(erfGELUAVX2), ErfGELUGrad: binary(erfGELUGradAVX2),
		EluPlusOne: unary(eluPlusOneAVX2), EluPlusOneGrad: binary(eluPlusOneGradAVX2),
		LayerNorm:     layerNorm(sumAVX2, varianceAVX2, normalizeAVX2, normalizeBiasAVX2),
		LayerNormGrad: layerNormGrad(normSumsAVX2, normGradAVX2, gainGradAVX2, addAVX2),
		AdamW:         adamW(adamWAVX2),
		Products:      products(productsAVX2),
		FeatureSums:   featureSums(featureSumsAVX2), FeatureDots: featureDots(featureDotsAVX2),
		FeatureGrad: featureGrad(featureGradAVX2),
		Dots:        dots(dotsAVX2), Centre: centre(centreAVX2),
		Normalise: normalise(normaliseAVX2), Standardise: standardise(standardiseAVX2),
		NormaliseGrad: normaliseGrad(normaliseGradAVX2),
		Reflect:       reflection(reflectAVX2, reflectGo), ReflectGrad: reflection(reflectGradAVX2, reflectGradGo),
		Rotate: rotate(rotateAVX2),
		Mix: (&mixers{
			plain: [3]func(k, step int, c, a, b *float32, brs int){mix64AVX2, mix32AVX2, mix16AVX2},
			total: [3]func(k, step int, c, a, b *float32, brs int, z *float32, total float32) float32{mixTotal64AVX2, mixTotal32AVX2, mixTotal16AVX2},
		}).mix,
		FeatureRow: featureRow(featureRowAVX2),
		Uniform:    uniform(uniformAVX2),
	}
}

const (
	errShort = "kernel: slice too short"
	errCoef  = "kernel: no coefficients"
)

// at returns a pointer to the first element of x, which holds at least n.
func at(x []float32, n int) *float32 {
	if len(x) < n {
		panic(errShort)
	}
	return unsafe.SliceData(x)
}

func unary(f func(n int, dst, x *float32)) func(dst, x []float32) {
	return func(dst, x []float32) {
		n := len(dst)
		f(n, at(dst, n), at(x, n))
	}
}

func binary(f func(n int, dst, x, y *float32)) func(dst, x, y []float32) {
	return func(dst, x, y []float32) {
		n := len(dst)
		f(n, at(dst, n), at(x, n), at(y, n))
	}
}

func scaled(f func(n int, dst *float32, a float32, x *float32)) func(dst []float32, a float32, x []float32) {
	return func(dst []float32, a float32, x []float32) {
		n := len(dst)
		f(n, at(dst, n), a, at(x, n))
	}
}

func dot(f func(n int, x, y *float32) float32) func(x, y []float32) float32 {
	return func(x, y []float32) float32 {
		n := len(x)
		return f(n, at(x, n), at(y, n))
	}
}

func reduction(f func(n int, x *float32) float32) func(x []float32) float32 {
	return func(x []float32) float32 {
		return f(len(x), at(x, len(x)))
	}
}

func exp(f func(n int, dst, x *float32, shift float32) float32) func(dst, x []float32, shift float32) float32 {
	return func(dst, x []float32, shift float32) float32 {
		n := len(dst)
		return f(n, at(dst, n), at(x, n), shift)
	}
}

func expRows(f func(rows, n int, x *float32, xrs int, factor float32, shift, sum *float32)) func(x []float32, xrs, n int, factor float32, shift, sum []float32) {
	return func(x []float32, xrs, n int, factor float32, shift, sum []float32) {
		if rows := len(shift); rows > 0 {
			f(rows, n, at(x, (rows-1)*xrs+n), xrs, factor, at(shift, rows), at(sum, rows))
		}
	}
}

func polyRows(f func(rows, n int, dst, x *float32, rs, terms int, coef, sum *float32)) func(dst, x []float32, rs, n int, coef, sum []float32) {
	return func(dst, x []float32, rs, n int, coef, sum []float32) {
		if len(coef) == 0 {
			panic(errCoef)
		}
		if rows := len(sum); rows > 0 {
			all := (rows-1)*rs + n
			f(rows, n, at(dst, all), at(x, all), rs, len(coef), at(coef, len(coef)), at(sum, rows))
		}
	}
}

func mulRows(f func(rows, n int, dst, x *float32, rs int, a *float32)) func(dst, x []float32, rs, n int, a []float32) {
	return func(dst, x []float32, rs, n int, a []float32) {
		if rows := len(a); rows > 0 {
			all := (rows-1)*rs + n
			f(rows, n, at(dst, all), at(x, all), rs, at(a, rows))
		}
	}
}

func scaleRows(f func(rows, n int, dst *float32, drs int, x *float32, xrs int, a *float32)) func(dst []float32, drs int, x []float32, xrs, n int, a []float32) {
	return func(dst []float32, drs int, x []float32, xrs, n int, a []float32) {
		if rows := len(a); rows > 0 {
			f(rows, n, rowsAt(dst, drs, rows, n), drs, rowsAt(x, xrs, rows, n), xrs, at(a, rows))
		}
	}
}

func layerNorm(
	sum func(n int, x *float32) float32,
	variance func(n int, x *float32, mean float32) float32,
	plain func(n int, dst, x, gain *float32, mean, rstd float32),
	biased func(n int, dst, x, gain, bias *float32, mean, rstd float32),
) func(dst, x, gain, bias []float32, eps float32) (mean, rstd float32) {
	return func(dst, x, gain, bias []float32, eps float32) (mean, rstd float32) {
		n := len(dst)
		to, from, by := at(dst, n), at(x, n), at(gain, n)
		mean = sum(n, from) / float32(n)
		spread := variance(n, from, mean) / float32(n)
		rstd = 1 / float32(math.Sqrt(float64(spread+eps)))
		if bias == nil {
			plain(n, to, from, by, mean, rstd)
		} else {
			biased(n, to, from, by, at(bias, n), mean, rstd)
		}
		return mean, rstd
	}
}

func layerNormGrad(
	sums func(n int, dy, x, gain *float32, mean, rstd float32) (s1, s2 float32),
	row func(n int, dx, dy, x, gain *float32, mean, rstd, s1, s2 float32),
	gainGrad func(n int, dgain, dy, x *float32, mean, rstd float32),
	add func(n int, dst, x, y *float32),
) func(dx, dgain, dbias, dy, x, gain []float32, mean, rstd float32) {
	return func(dx, dgain, dbias, dy, x, gain []float32, mean, rstd float32) {
		n := len(dx)
		to, from, in, by := at(dx, n), at(dy, n), at(x, n), at(gain, n)
		if dgain != nil {
			gainGrad(n, at(dgain, n), from, in, mean, rstd)
		}
		if dbias != nil {
			add(n, at(dbias, n), at(dbias, n), from)
		}
		s1, s2 := sums(n, from, in, by, mean, rstd)
		row(n, to, from, in, by, mean, rstd, s1/float32(n), s2/float32(n))
	}
}

func adamW(f func(n int, w, g, m, v, s *float32)) func(w, g, m, v []float32, s *AdamWStep[float32]) {
	return func(w, g, m, v []float32, s *AdamWStep[float32]) {
		n := len(w)
		f(n, at(w, n), at(g, n), at(m, n), at(v, n), &s.Rate)
	}
}

// rounds runs n rounds of multiply-adds and returns how many operations a
// round has.
func rounds(isa string, n int) int {
	const chains = 12
	switch isa {
	case cpu.AVX512:
		peakAVX512(n)
		return 2 * chains * 16
	case cpu.AVX2:
		peakAVX2(n)
		return 2 * chains * 8
	}
	return roundsGo(n)
}
