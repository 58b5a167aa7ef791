// Package rowscale divides the weights in a row of an exponential by a power of 2, so that
// scores of any size neither overflow nor vanish. It works on rows of numbers and knows neither
// calls nor states.
package rowscale

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// farPower is the exponent of 2 from which on a row of an exponential is scaled relative to one
// of its scores. Exponents and logarithms of denominators are rounded. In float32 that changes
// the weights of a gradient by up to 2^-24 of their exponent, and beyond 2^31 it also changes
// outputs.
const farPower = 1 << 14

// Power is the power of 2 that the weights of a row are divided by: a weight is 2 to the power
// of factor·(score - Base) - Top.
type Power struct {
	Base float // a score of the row, or 0 if its power is below farPower
	Top  float
}

// PowerOf returns the power of score x times factor, rounded up. since is the log-decay after
// the key, to base 2.
func PowerOf(x, factor float, since float64) Power {
	y := float64(x) * float64(factor)
	if math.Abs(y) >= farPower {
		return Power{x, float(math.Ceil(since))}
	}
	return Power{0, float(math.Ceil(y + since))}
}

// Exceed returns the exponent of 2 by which p exceeds q.
func (p Power) Exceed(q Power, factor float) float64 {
	return (float64(p.Base)-float64(q.Base))*float64(factor) + (float64(p.Top) - float64(q.Top))
}

// Log returns the natural logarithm of sum, a sum of weights that are divided by power p.
func (p Power) Log(sum, factor float) float {
	return float(float64(p.Base)*float64(factor)*math.Ln2 + float64(p.Top)*math.Ln2 + math.Log(float64(sum)))
}

// Sums holds the sums of weights of n rows, each divided by its own power of 2.
type Sums struct{ Base, Top, Sum []float } // [n]

// TakeSums returns sums of n rows in scratch memory, with undefined contents.
func TakeSums(ar *arena.Arena, n int) Sums {
	return Sums{arena.Take[float](ar, n), arena.Take[float](ar, n), arena.Take[float](ar, n)}
}

// Slice returns the sums of rows i ≤ r < j.
func (s Sums) Slice(i, j int) Sums { return Sums{s.Base[i:j], s.Top[i:j], s.Sum[i:j]} }

// Clear sets all sums to 0.
func (s Sums) Clear() {
	clear(s.Base)
	clear(s.Top)
	clear(s.Sum)
}

// Log returns the natural logarithm of the sum of row r, whose scores are multiplied by factor.
// It is -Inf if the row has no weight.
func (s Sums) Log(r int, factor float) float {
	return Power{s.Base[r], s.Top[r]}.Log(s.Sum[r], factor)
}

// Lower subtracts base from the scores row [n].
func Lower(row []float, base float) {
	if base == 0 {
		return
	}
	for c := range row {
		row[c] -= base
	}
}

// FarRows holds the rows of a gradient whose denominators are 2^±farPower or farther from 1.
// Their powers are computed again from the scores of the gradient, because rounding changes
// saved powers by more than the weights tolerate.
type FarRows struct {
	Base, Top []float
	Sum       []float // divided by the power of each row; negative if a row is not far
}

// FarRowsOf returns the far rows among rows with the given logarithms of denominators to base
// 2, top [rows], or nil if none is far. It keeps top.
func FarRowsOf(ar *arena.Arena, top []float) *FarRows {
	far := func(x float) bool { return math.Abs(float64(x)) >= farPower && !math.IsInf(float64(x), 0) }
	if !slices.ContainsFunc(top, far) {
		return nil
	}
	f := &FarRows{Base: arena.TakeZeros[float](ar, len(top)), Top: top, Sum: arena.TakeZeros[float](ar, len(top))}
	for r, x := range top {
		if !far(x) {
			f.Sum[r] = -1
		}
	}
	return f
}

// Add adds the weights of scores [n] times factor to row r, if the row is far. since is the
// log-decay after the keys, to base 2. It overwrites scores.
func (f *FarRows) Add(t *kernel.Table[float], r int, scores []float, factor float, since float64) {
	if f.Sum[r] < 0 || len(scores) == 0 {
		return
	}
	x := t.Max(scores)
	if math.IsInf(float64(x), -1) || math.IsInf(since, -1) {
		return // the weights are 0
	}
	now := Power{x, float(since)}
	before := Power{f.Base[r], f.Top[r]}
	if by := now.Exceed(before, factor); f.Sum[r] == 0 || by > 0 {
		f.Sum[r] *= float(math.Exp2(-max(by, 0)))
		f.Base[r], f.Top[r] = now.Base, now.Top
	}
	Lower(scores, f.Base[r])
	shift := [1]float{f.Top[r] - float(since)}
	t.ExpRows(scores, len(scores), len(scores), factor, shift[:], f.Sum[r:r+1])
}

// Finish replaces the powers of far rows by the logarithms of their sums.
func (f *FarRows) Finish() {
	for r, sum := range f.Sum {
		if sum > 0 {
			f.Top[r] += float(math.Log2(float64(sum)))
		}
	}
}
