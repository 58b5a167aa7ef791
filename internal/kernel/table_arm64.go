//go:build !purego

package kernel

import "github.com/farfield-ml/farfield/internal/cpu"

// assembly returns the tables of assembly routines, which every arm64 machine can
// run.
func assembly() []*Table[float32] { return []*Table[float32]{neon()} }

func neon() *Table[float32] {
	return &Table[float32]{
		Name: cpu.NEON,
		Block: tiling{
			tall: []tile{
				{6, 16, tile6x16NEON}, {4, 16, tile4x16NEON},
				{2, 16, tile2x16NEON}, {1, 16, tile1x16NEON},
			},
			flat: []tile{{1, 64, tile1x64NEON}},
		}.block,
		Transpose: transpose(transpose8NEON),
		Axpy:      scaled(axpyNEON), Scale: scaled(scaleNEON),
		Add: binary(addNEON), Mul: binary(mulNEON), MulAdd: binary(mulAddNEON),
		AddCarry: binary(addCarryNEON), SwapCarry: binary(swapCarryNEON),
		Dot: dot(dotNEON), Sum: reduction(sumNEON), Max: reduction(maxNEON),
		Exp: exp(expNEON), ExpRows: expRows(expRowsNEON),
		PolyRows: polyRows(polyRowsNEON), MulRows: mulRows(mulRowsNEON),
		ScaleRows: scaleRows(scaleRowsNEON), AddRows: addRows(addRowsNEON),
		SumRows: sumRows(sumRowsNEON), RowDots: rowDots(rowDotsNEON),
		GELU: unary(geluNEON), GELUGrad: binary(geluGradNEON),
		ErfGELU: unary(erfGELUNEON), ErfGELUGrad: binary(erfGELUGradNEON),
		EluPlusOne: unary(eluPlusOneNEON), EluPlusOneGrad: binary(eluPlusOneGradNEON),
		LayerNorm:     layerNorm(layerNormNEON),
		LayerNormGrad: layerNormGrad(layerNormGradNEON),
		AdamW:         adamW(adamWNEON),
		Products:      products(productsNEON),
		FeatureSums:   featureSums(featureSumsNEON), FeatureDots: featureDots(featureDotsNEON),
		FeatureGrad: featureGrad(featureGradNEON),
		Dots:        dots(dotsNEON), Centre: centre(centreNEON),
		Normalise: normalise(normaliseNEON), Standardise: standardise(standardiseNEON),
		NormaliseGrad: normaliseGrad(normaliseGradNEON),
		Reflect:       reflection(reflectNEON, reflectGo), ReflectGrad: reflection(reflectGradNEON, reflectGradGo),
		Rotate: rotate(rotateNEON),
		Mix: (&mixers{
			plain: [3]func(k, step int, c, a, b *float32, brs int){mix64NEON, mix32NEON, mix16NEON},
			total: [3]func(k, step int, c, a, b *float32, brs int, z *float32, total float32) float32{mixTotal64NEON, mixTotal32NEON, mixTotal16NEON},
		}).mix,
		Renew: (&renewers{
			plain: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w *float32){renew32NEON, renew16NEON},
			total: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w, q, z *float32, c0, c1 float32, totals *float32){renewTotal32NEON, renewTotal16NEON},
		}).renew,
		FeatureRow: featureRow(featureRowNEON),
		Uniform:    uniform(uniformNEON),
	}
}

// rounds runs n rounds of multiply-adds and returns how many operations a
// round has.
func rounds(isa string, n int) int {
	if isa != cpu.NEON {
		return roundsGo(n)
	}
	const chains = 24
	peakNEON(n)
	return 2 * chains * 4
}
