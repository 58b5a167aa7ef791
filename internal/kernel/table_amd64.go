//go:build !purego

package kernel

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/cpu"
)

// assemblyTables returns the tables of assembly routines that this machine can run.
func assemblyTables() []*Table[float32] {
	var all []*Table[float32]
	for _, t := range []*Table[float32]{avx512Table(), avx2Table()} {
		if slices.Contains(cpu.InstructionSets(), t.Name) {
			all = append(all, t)
		}
	}
	return all
}

// avx512Table returns the routines of AVX-512.
func avx512Table() *Table[float32] {
	tiles := tiling{
		tallTiles: []tile{
			{12, 32, tile12x32AVX512}, {8, 32, tile8x32AVX512}, {4, 32, tile4x32AVX512},
			{2, 32, tile2x32AVX512}, {1, 32, tile1x32AVX512},
			{12, 16, tile12x16AVX512}, {8, 16, tile8x16AVX512}, {4, 16, tile4x16AVX512},
			{2, 16, tile2x16AVX512}, {1, 16, tile1x16AVX512},
		},
		flatTiles: []tile{
			{6, 64, tile6x64AVX512}, {4, 64, tile4x64AVX512},
			{2, 64, tile2x64AVX512}, {1, 64, tile1x64AVX512},
		},
		prefetching: prefetchTile{rows: 12, cols: 32, asksAhead: true, run: askingTile12x32AVX512},
	}
	return &Table[float32]{
		Name:  cpu.AVX512,
		Block: tiles.runBlock, Tiles: tiles.runTiles,
		Transpose: wrapTranspose(transpose8AVX2),
		Axpy:      wrapScaled(axpyAVX512), Scale: wrapScaled(scaleAVX512),
		Add: wrapBinary(addAVX512), Mul: wrapBinary(mulAVX512), MulAdd: wrapBinary(mulAddAVX512),
		AddCarry: wrapBinary(addCarryAVX512), SwapCarry: wrapBinary(swapCarryAVX512),
		Dot: wrapDot(dotAVX512), Sum: wrapReduction(sumAVX512), Max: wrapReduction(maxAVX512), TopTwo: wrapTopTwo(topTwoAVX512),
		Exp: wrapExp(expAVX512), ExpRows: wrapExpRows(expRowsAVX512),
		PolyRows: wrapPolyRows(polyRowsAVX512), MulRows: wrapMulRows(mulRowsAVX512),
		MixRows: wrapMixRows(mixRowsAVX512), ClearRows: wrapClearRows(clearRowsAVX512),
		ScaleRows: wrapScaleRows(scaleRowsAVX512), AddRows: wrapAddRows(addRowsAVX512),
		SumRows: wrapSumRows(sumRowsAVX512), RowDots: wrapRowDots(rowDotsAVX512),
		GELU: wrapUnary(geluAVX512), GELUGrad: wrapBinary(geluGradAVX512),
		ErfGELU: wrapUnary(erfGELUAVX512), ErfGELUGrad: wrapBinary(erfGELUGradAVX512),
		EluPlusOne: wrapUnary(eluPlusOneAVX512), EluPlusOneGrad: wrapBinary(eluPlusOneGradAVX512),
		LayerNorm:     wrapLayerNorm(layerNormAVX512),
		LayerNormGrad: wrapLayerNormGrad(layerNormGradAVX512),
		AdamW:         wrapAdamW(adamWAVX512),
		Products:      wrapProducts(productsAVX512),
		FeatureSums:   wrapFeatureSums(featureSumsAVX512), FeatureDots: wrapFeatureDots(featureDotsAVX512),
		FeatureGrad: wrapFeatureGrad(featureGradAVX512),
		Dots:        wrapDots(dotsAVX512), Centre: wrapCentre(centreAVX512),
		Normalise: wrapNormalise(normaliseAVX512), Standardise: wrapStandardise(standardiseAVX512),
		NormaliseGrad: wrapNormaliseGrad(normaliseGradAVX512),
		Reflect:       wrapReflection(reflectAVX512, reflectGo), ReflectGrad: wrapReflection(reflectGradAVX512, reflectGradGo),
		Rotate: wrapRotate(rotateAVX512),
		Mix: (&mixers{
			withoutTotal: [3]func(k, step int, c, a, b *float32, brs int){mix64AVX512, mix32AVX512, mix16AVX512},
			total:        [3]func(k, step int, c, a, b *float32, brs int, z *float32, total float32) float32{mixTotal64AVX512, mixTotal32AVX512, mixTotal16AVX512},
		}).runMix,
		Renew: (&renewers{
			withoutTotal: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w *float32){renew32AVX512, renew16AVX512},
			total:        [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w, q, z *float32, c0, c1 float32, totals *float32){renewTotal32AVX512, renewTotal16AVX512},
		}).runRenew,
		FeatureRow: wrapFeatureRow(featureRowAVX512),
		Uniform:    wrapUniform(uniformAVX512),
		search:     searchAVX512(),
	}
}

// avx2Table returns the routines of AVX2.
func avx2Table() *Table[float32] {
	tiles := tiling{
		tallTiles: []tile{
			{6, 16, tile6x16AVX2}, {4, 16, tile4x16AVX2},
			{2, 16, tile2x16AVX2}, {1, 16, tile1x16AVX2},
		},
		flatTiles:   []tile{{1, 64, tile1x64AVX2}},
		prefetching: prefetchTile{rows: 6, cols: 16, lower: 4, run: panelTile6x16AVX2},
	}
	return &Table[float32]{
		Name:  cpu.AVX2,
		Block: tiles.runBlock, Tiles: tiles.runTiles, PanelWidth: Lanes,
		Transpose: wrapTranspose(transpose8AVX2),
		Axpy:      wrapScaled(axpyAVX2), Scale: wrapScaled(scaleAVX2),
		Add: wrapBinary(addAVX2), Mul: wrapBinary(mulAVX2), MulAdd: wrapBinary(mulAddAVX2),
		AddCarry: wrapBinary(addCarryAVX2), SwapCarry: wrapBinary(swapCarryAVX2),
		Dot: wrapDot(dotAVX2), Sum: wrapReduction(sumAVX2), Max: wrapReduction(maxAVX2), TopTwo: wrapTopTwo(topTwoAVX2),
		Exp: wrapExp(expAVX2), ExpRows: wrapExpRows(expRowsAVX2),
		PolyRows: wrapPolyRows(polyRowsAVX2), MulRows: wrapMulRows(mulRowsAVX2),
		MixRows: wrapMixRows(mixRowsAVX2), ClearRows: wrapClearRows(clearRowsAVX2),
		ScaleRows: wrapScaleRows(scaleRowsAVX2), AddRows: wrapAddRows(addRowsAVX2),
		SumRows: wrapSumRows(sumRowsAVX2), RowDots: wrapRowDots(rowDotsAVX2),
		GELU: wrapUnary(geluAVX2), GELUGrad: wrapBinary(geluGradAVX2),
		ErfGELU: wrapUnary(erfGELUAVX2), ErfGELUGrad: wrapBinary(erfGELUGradAVX2),
		EluPlusOne: wrapUnary(eluPlusOneAVX2), EluPlusOneGrad: wrapBinary(eluPlusOneGradAVX2),
		LayerNorm:     wrapLayerNorm(layerNormAVX2),
		LayerNormGrad: wrapLayerNormGrad(layerNormGradAVX2),
		AdamW:         wrapAdamW(adamWAVX2),
		Products:      wrapProducts(productsAVX2),
		FeatureSums:   wrapFeatureSums(featureSumsAVX2), FeatureDots: wrapFeatureDots(featureDotsAVX2),
		FeatureGrad: wrapFeatureGrad(featureGradAVX2),
		Dots:        wrapDots(dotsAVX2), Centre: wrapCentre(centreAVX2),
		Normalise: wrapNormalise(normaliseAVX2), Standardise: wrapStandardise(standardiseAVX2),
		NormaliseGrad: wrapNormaliseGrad(normaliseGradAVX2),
		Reflect:       wrapReflection(reflectAVX2, reflectGo), ReflectGrad: wrapReflection(reflectGradAVX2, reflectGradGo),
		Rotate: wrapRotate(rotateAVX2),
		Mix: (&mixers{
			withoutTotal: [3]func(k, step int, c, a, b *float32, brs int){mix64AVX2, mix32AVX2, mix16AVX2},
			total:        [3]func(k, step int, c, a, b *float32, brs int, z *float32, total float32) float32{mixTotal64AVX2, mixTotal32AVX2, mixTotal16AVX2},
		}).runMix,
		Renew: (&renewers{
			withoutTotal: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w *float32){renew32AVX2, renew16AVX2},
			total:        [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w, q, z *float32, c0, c1 float32, totals *float32){renewTotal32AVX2, renewTotal16AVX2},
		}).runRenew,
		FeatureRow: wrapFeatureRow(featureRowAVX2),
		Uniform:    wrapUniform(uniformAVX2),
	}
}

// runRounds runs n rounds of multiply-adds and returns the operations of a round.
func runRounds(isa string, n int) int {
	const chains = 12
	switch isa {
	case cpu.AVX512:
		peakAVX512(n)
		return 2 * chains * 16
	case cpu.AVX2:
		peakAVX2(n)
		return 2 * chains * 8
	}
	return runRoundsGo(n)
}
