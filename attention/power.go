package attention

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

// rowPower is the power of 2 that the weights of a row are over, which are 2 to the
// power of factor·(score - base) - top.
type rowPower[T tensor.Float] struct {
	base T // a score of the row, 0 where its power is below farPower
	top  T
}

// powerOf returns the power of score x times factor, from which decay has taken
// since, rounded up.
func powerOf[T tensor.Float](x, factor T, since float64) rowPower[T] {
	y := float64(x) * float64(factor)
	if math.Abs(y) >= farPower {
		return rowPower[T]{x, T(math.Ceil(since))}
	}
	return rowPower[T]{0, T(math.Ceil(y + since))}
}

// above returns the power of 2 by which p is above q.
func (p rowPower[T]) above(q rowPower[T], factor T) float64 {
	return (float64(p.base)-float64(q.base))*float64(factor) + (float64(p.top) - float64(q.top))
}

// log returns the logarithm of a sum of weights over the power p.
func (p rowPower[T]) log(sum, factor T) T {
	return T(float64(p.base)*float64(factor)*math.Ln2 + float64(p.top)*math.Ln2 + math.Log(float64(sum)))
}

// lower subtracts from the scores of a row its base.
func lower[T tensor.Float](row []T, base T) {
	if base == 0 {
		return
	}
	for c := range row {
		row[c] -= base
	}
}

// farRows are rows of a gradient whose denominators are at farPower or beyond: their
// powers are found anew from the scores that the gradient itself computes, since
// rounding moves both by more than weights bear.
type farRows[T tensor.Float] struct {
	base, top []T
	sum       []T // over the power of each; below 0 where a row is not far
}

// farRowsOf returns the rows of which the logarithms of denominators to base 2, top, are
// far, nil where none is. It takes top.
func farRowsOf[T tensor.Float](ar *arena.Arena, top []T) *farRows[T] {
	far := func(x T) bool { return math.Abs(float64(x)) >= farPower && !math.IsInf(float64(x), 0) }
	if !slices.ContainsFunc(top, far) {
		return nil
	}
	f := &farRows[T]{base: arena.Zeros[T](ar, len(top)), top: top, sum: arena.Zeros[T](ar, len(top))}
	for r, x := range top {
		if !far(x) {
			f.sum[r] = -1
		}
	}
	return f
}

// meet adds to row r, if it is far, the weights of scores times factor, from which
// decay has taken since. It uses the scores up.
func (f *farRows[T]) meet(t *kernel.Table[T], r int, scores []T, factor T, since float64) {
	if f.sum[r] < 0 || len(scores) == 0 {
		return
	}
	x := t.Max(scores)
	if math.IsInf(float64(x), -1) {
		return
	}
	now := rowPower[T]{x, T(since)}
	before := rowPower[T]{f.base[r], f.top[r]}
	if by := now.above(before, factor); f.sum[r] == 0 || by > 0 {
		f.sum[r] *= T(math.Exp2(-max(by, 0)))
		f.base[r], f.top[r] = now.base, now.top
	}
	lower(scores, f.base[r])
	shift := [1]T{f.top[r] - T(since)}
	t.ExpRows(scores, len(scores), len(scores), factor, shift[:], f.sum[r:r+1])
}

// done puts the sums into the powers.
func (f *farRows[T]) done() {
	for r, sum := range f.sum {
		if sum > 0 {
			f.top[r] += T(math.Log2(float64(sum)))
		}
	}
}
