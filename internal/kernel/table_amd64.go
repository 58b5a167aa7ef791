//go:build !purego

package kernel

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/cpu"
)

// assembly returns the tables of assembly routines that this machine can run.
func assembly() []*Table[float32] {
	var all []*Table[float32]
	for _, t := range []*Table[float32]{avx512(), avx2()} {
		if slices.Contains(cpu.InstructionSets(), t.Name) {
			all = append(all, t)
		}
	}
	return all
}

func avx512() *Table[float32] {
	tiles := tiling{
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
		asking: askingTile{12, 32, askingTile12x32AVX512},
	}
	return &Table[float32]{
		Name:  cpu.AVX512,
		Block: tiles.block, Tiles: tiles.tiles,
		Transpose: transpose(transpose8AVX2),
		Axpy:      scaled(axpyAVX512), Scale: scaled(scaleAVX512),
		Add: binary(addAVX512), Mul: binary(mulAVX512), MulAdd: binary(mulAddAVX512),
		AddCarry: binary(addCarryAVX512), SwapCarry: binary(swapCarryAVX512),
		Dot: dot(dotAVX512), Sum: reduction(sumAVX512), Max: reduction(maxAVX512),
		Exp: exp(expAVX512), ExpRows: expRows(expRowsAVX512),
		PolyRows: polyRows(polyRowsAVX512), MulRows: mulRows(mulRowsAVX512),
		ScaleRows: scaleRows(scaleRowsAVX512), AddRows: addRows(addRowsAVX512),
		SumRows: sumRows(sumRowsAVX512), RowDots: rowDots(rowDotsAVX512),
		GELU: unary(geluAVX512), GELUGrad: binary(geluGradAVX512),
		ErfGELU: unary(erfGELUAVX512), ErfGELUGrad: binary(erfGELUGradAVX512),
		EluPlusOne: unary(eluPlusOneAVX512), EluPlusOneGrad: binary(eluPlusOneGradAVX512),
		LayerNorm:     layerNorm(layerNormAVX512),
		LayerNormGrad: layerNormGrad(layerNormGradAVX512),
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
		Renew: (&renewers{
			plain: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w *float32){renew32AVX512, renew16AVX512},
			total: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w, q, z *float32, c0, c1 float32, totals *float32){renewTotal32AVX512, renewTotal16AVX512},
		}).renew,
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
		Transpose: transpose(transpose8AVX2),
		Axpy:      scaled(axpyAVX2), Scale: scaled(scaleAVX2),
		Add: binary(addAVX2), Mul: binary(mulAVX2), MulAdd: binary(mulAddAVX2),
		AddCarry: binary(addCarryAVX2), SwapCarry: binary(swapCarryAVX2),
		Dot: dot(dotAVX2), Sum: reduction(sumAVX2), Max: reduction(maxAVX2),
		Exp: exp(expAVX2), ExpRows: expRows(expRowsAVX2),
		PolyRows: polyRows(polyRowsAVX2), MulRows: mulRows(mulRowsAVX2),
		ScaleRows: scaleRows(scaleRowsAVX2), AddRows: addRows(addRowsAVX2),
		SumRows: sumRows(sumRowsAVX2), RowDots: rowDots(rowDotsAVX2),
		GELU: unary(geluAVX2), GELUGrad: binary(geluGradAVX2),
		ErfGELU: unary(erfGELUAVX2), ErfGELUGrad: binary(erfGELUGradAVX2),
		EluPlusOne: unary(eluPlusOneAVX2), EluPlusOneGrad: binary(eluPlusOneGradAVX2),
		LayerNorm:     layerNorm(layerNormAVX2),
		LayerNormGrad: layerNormGrad(layerNormGradAVX2),
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
		Renew: (&renewers{
			plain: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w *float32){renew32AVX2, renew16AVX2},
			total: [2]func(count, k int, c *float32, crs int, a, x *float32, ars int, y *float32, yrs int, b *float32, brs, next int, w, q, z *float32, c0, c1 float32, totals *float32){renewTotal32AVX2, renewTotal16AVX2},
		}).renew,
		FeatureRow: featureRow(featureRowAVX2),
		Uniform:    uniform(uniformAVX2),
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
