//go:build !purego

package kernel

import "github.com/farfield-ml/farfield/internal/cpu"

// assemblyTables returns the tables of assembly routines, which every arm64 machine can
// run.
func assemblyTables() []*Table[float32] { return []*Table[float32]{neonTable()} }

// neonTable returns the routines of NEON.
func neonTable() *Table[float32] {
	return &Table[float32]{
		Name: cpu.NEON,
		Block: tiling{
			tallTiles: []tile{
				{6, 16, tile6x16NEON}, {4, 16, tile4x16NEON},
				{2, 16, tile2x16NEON}, {1, 16, tile1x16NEON},
			},
			flatTiles: []tile{{1, 64, tile1x64NEON}},
		}.runBlock,
		Transpose: wrapTranspose(transpose8NEON),
		Axpy:      wrapScaled(axpyNEON), Scale: wrapScaled(scaleNEON),
		Add: wrapBinary(addNEON), Mul: wrapBinary(mulNEON), MulAdd: wrapBinary(mulAddNEON),
		AddCarry: wrapBinary(addCarryNEON), SwapCarry: wrapBinary(swapCarryNEON),
		Dot: wrapDot(dotNEON), Sum: wrapReduction(sumNEON), Max: wrapReduction(maxNEON), TopTwo: wrapTopTwo(topTwoNEON),
		Exp: wrapExp(expNEON), ExpRows: wrapExpRows(expRowsNEON),
		PolyRows: wrapPolyRows(polyRowsNEON), MulRows: wrapMulRows(mulRowsNEON),
		MixRows: wrapMixRows(mixRowsNEON), ClearRows: wrapClearRows(clearRowsNEON),
		ScaleRows: wrapScaleRows(scaleRowsNEON), AddRows: wrapAddRows(addRowsNEON),
		SumRows: wrapSumRows(sumRowsNEON), RowDots: wrapRowDots(rowDotsNEON),
		GELU: wrapUnary(geluNEON), GELUGrad: wrapBinary(geluGradNEON),
		ErfGELU: wrapUnary(erfGELUNEON), ErfGELUGrad: wrapBinary(erfGELUGradNEON),
		EluPlusOne: wrapUnary(eluPlusOneNEON), EluPlusOneGrad: wrapBinary(eluPlusOneGradNEON),
		LayerNorm:     wrapLayerNorm(layerNormNEON),
		LayerNormGrad: wrapLayerNormGrad(layerNormGradNEON),
		AdamW:         wrapAdamW(adamWNEON),
		Products:      wrapProducts(productsNEON),
		FeatureSums:   wrapFeatureSums(featureSumsNEON), FeatureDots: wrapFeatureDots(featureDotsNEON),
		FeatureGrad: wrapFeatureGrad(featureGradNEON),
		Dots:        wrapDots(dotsNEON), Centre: wrapCentre(centreNEON),
		Normalise: wrapNormalise(normaliseNEON), Standardise: wrapStandardise(standardiseNEON),
		NormaliseGrad: wrapNormaliseGrad(normaliseGradNEON),
		Reflect:       wrapReflection(reflectNEON, reflectGo), ReflectGrad: wrapReflection(reflectGradNEON, reflectGradGo),
		Rotate: wrapRotate(rotateNEON),
		Mix: (&mixers{
			withoutTotal: [3]func(k, step int, c, a, b *float32, brs int){mix64NEON, mix32NEON, mix16NEON},
			total:        [3]func(k, step int, c, a, b *float32, brs int, z *float32, total float32) float32{mixTotal64NEON, mixTotal32NEON, mixTotal16NEON},
		}).runMix,
		Renew: (&renewers{
			withoutTotal: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w *float32){renew32NEON, renew16NEON},
			total:        [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w, q, z *float32, c0, c1 float32, totals *float32){renewTotal32NEON, renewTotal16NEON},
		}).runRenew,
		FeatureRow: wrapFeatureRow(featureRowNEON),
		Uniform:    wrapUniform(uniformNEON),
	}
}

// runRounds runs n rounds of multiply-adds and returns the operations of a round.
func runRounds(isa string, n int) int {
	if isa != cpu.NEON {
		return runRoundsGo(n)
	}
	const chains = 24
	peakNEON(n)
	return 2 * chains * 4
}
