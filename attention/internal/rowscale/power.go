// Package rowscale keeps rows of an exponential relative to a power of 2, so that scores of
// any size neither overflow nor vanish.
package rowscale

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// farPower is the power of 2 from which on rows of an exponential are taken
// relative to a score of theirs. A power is rounded, as are the logarithms of
// denominators: in float32 weights of a gradient are off by 2^-24 of their power, and
// beyond 2^31 outputs are, too.
const farPower = 1 << 14

// Power is the power of 2 that the weights of a row are over, which are 2 to the
// power of factor·(score - base) - top.
type Power[T tensor.Float] struct {
	Base T // a score of the row, 0 where its power is below farPower
	Top  T
}

// PowerOf returns the power of score x times factor, from which decay has taken
// since, rounded up.
func PowerOf[T tensor.Float](x, factor T, since float64) Power[T] {
	y := float64(x) * float64(factor)
	if math.Abs(y) >= farPower {
		return Power[T]{x, T(math.Ceil(since))}
	}
	return Power[T]{0, T(math.Ceil(y + since))}
}

// Exceed returns the power of 2 by which p is above q.
func (p Power[T]) Exceed(q Power[T], factor T) float64 {
	return (float64(p.Base)-float64(q.Base))*float64(factor) + (float64(p.Top) - float64(q.Top))
}

// Log returns the logarithm of a sum of weights over the power p.
func (p Power[T]) Log(sum, factor T) T {
	return T(float64(p.Base)*float64(factor)*math.Ln2 + float64(p.Top)*math.Ln2 + math.Log(float64(sum)))
}

// Lower subtracts from the scores of a row its base.
func Lower[T tensor.Float](row []T, base T) {
	if base == 0 {
		return
	}
	for c := range row {
		row[c] -= base
	}
}

// FarRows are rows of a gradient whose denominators are at farPower or beyond: their
// powers are found anew from the scores that the gradient itself computes, since
// rounding moves both by more than weights bear.
type FarRows[T tensor.Float] struct {
	Base, Top []T
	Sum       []T // over the power of each; below 0 where a row is not far
}

// FarRowsOf returns the rows of which the logarithms of denominators to base 2, top, are
// far, nil where none is. It takes top.
func FarRowsOf[T tensor.Float](ar *arena.Arena, top []T) *FarRows[T] {
	far := func(x T) bool { return math.Abs(float64(x)) >= farPower && !math.IsInf(float64(x), 0) }
	if !slices.ContainsFunc(top, far) {
		return nil
	}
	f := &FarRows[T]{Base: arena.TakeZeros[T](ar, len(top)), Top: top, Sum: arena.TakeZeros[T](ar, len(top))}
	for r, x := range top {
		if !far(x) {
			f.Sum[r] = -1
		}
	}
	return f
}

// Add adds to row r, if it is far, the weights of scores times factor, from which
// decay has taken since. It uses the scores up.
func (f *FarRows[T]) Add(t *kernel.Table[T], r int, scores []T, factor T, since float64) {
	if f.Sum[r] < 0 || len(scores) == 0 {
		return
	}
	x := t.Max(scores)
	if math.IsInf(float64(x), -1) {
		return
	}
	now := Power[T]{x, T(since)}
	before := Power[T]{f.Base[r], f.Top[r]}
	if by := now.Exceed(before, factor); f.Sum[r] == 0 || by > 0 {
		f.Sum[r] *= T(math.Exp2(-max(by, 0)))
		f.Base[r], f.Top[r] = now.Base, now.Top
	}
	Lower(scores, f.Base[r])
	shift := [1]T{f.Top[r] - T(since)}
	t.ExpRows(scores, len(scores), len(scores), factor, shift[:], f.Sum[r:r+1])
}

// Finish puts the sums into the powers.
func (f *FarRows[T]) Finish() {
	for r, sum := range f.Sum {
		if sum > 0 {
			f.Top[r] += T(math.Log2(float64(sum)))
		}
	}
}
