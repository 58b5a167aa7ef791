package headtask

import (
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// Raw mechanisms have sums for outputs. What stands in place of a denominator is
// 1, on the scale of weights relative to the last key that a query sees: what
// their eps alone would be if it were 1.

// denominator returns the denominator from the sum of the weights and eps. With
// Spec.FloorSize it may be negative, though what divides is its size.
func (s *Spec[T]) denominator(sum, eps T) T {
	switch {
	case s.Unnormalized:
		return eps
	case sum-sum != 0:
		return sum - sum // NaN: an average over what has overflowed is no number
	case s.Floor > 0:
		return T(s.ApplyFloor(float64(sum)))
	}
	return sum + eps
}

// ApplyFloor is total where there is a floor.
func (s *Spec[T]) ApplyFloor(sum float64) float64 {
	floor := float64(T(s.Floor))
	if s.FloorSize && sum < -floor {
		return sum
	}
	return max(sum, floor)
}

// maskDenGrad replaces w, the gradients of denominators den, by the gradients of the sums
// of weights. They are 0 where there is no denominator or where it is at its floor.
func (s *Spec[T]) maskDenGrad(w, den []T) {
	switch {
	case s.Unnormalized:
		clear(w)
	case s.Floor > 0:
		for r, x := range den[:len(w)] {
			switch {
			case x == T(s.Floor):
				w[r] = 0
			case x < 0:
				w[r] = -w[r]
			}
		}
	}
}

// invertDen returns 1/den. It returns 0 if weights that are never negative, or that gates
// scale, sum to 0 or to so little that 1/den overflows. Such a query gets the output of
// a query without visible keys and is counted (Saved.WeakCount). The largest weight of an
// exponential is near 1: if there is none, all scores have overflowed.
func (u *Task[T]) invertDen(den T) T {
	if u.Spec.GivesNumerators {
		return 1
	}
	if u.Spec.FloorSize && den < 0 {
		den = -den
	}
	if !u.Spec.Exp && (u.Spec.Positive || u.Spec.Gated) && hasInfiniteReciprocal(den) {
		if u.Noticed != nil {
			u.Noticed.Vanish.Store(true)
		}
		return 0
	}
	return 1 / den
}

// hasInfiniteReciprocal reports that 1/den is beyond the largest number: den is 0, or below a
// quarter of the smallest normal number in size and has lost digits.
func hasInfiniteReciprocal[T tensor.Float](den T) bool {
	x := 1 / den
	return x-x != 0 && den == den
}

// IsIllConditioned reports that the denominator den of seen keys, decay included, nearly cancels;
// see Saved.WeakCount. most bounds the weights. Weights that are never negative cannot
// cancel, but may all be 0. A polynomial with a constant has small weights where other
// terms cancel the constant. A denominator of at most 0 means that negative weights
// dominate.
func IsIllConditioned[T tensor.Float](den T, seen, most float64) bool {
	if most < 0 {
		return hasInfiniteReciprocal(den)
	}
	return den <= 0 || float64(den) < most*seen/1024
}

// noteNonFinite notices whether outputs i0 ≤ i < i1 of head g are finite. A product with
// zeros is 0 of finite numbers alone.
func (u *Task[T]) noteNonFinite(g, i0, i1 int) {
	if u.Noticed == nil || i0 >= i1 {
		return
	}
	mark := u.Arena.Mark()
	x, out := u.Linear().TakeScratch(i1-i0), &u.O[g]
	u.Table.RowDots(x, out.Data[i0*out.Stride:], out.Stride, arena.TakeZeros[T](u.Arena, u.Dv), 0, u.Dv)
	for _, y := range x {
		if y != 0 {
			u.Noticed.Overflow.Store(true)
			break
		}
	}
	u.Arena.Reset(mark)
}

// RowNotices are what the tasks of a call, or of a state, have noticed in their rows.
type RowNotices struct {
	Overflow atomic.Bool // an output may not be finite
	Vanish   atomic.Bool // a denominator counted as 0
}
