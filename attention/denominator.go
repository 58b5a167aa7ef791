package attention

import (
	"fmt"
	"math"

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
		return T(s.applyFloor(float64(sum)))
	}
	return sum + eps
}

// applyFloor is total where there is a floor.
func (s *Spec[T]) applyFloor(sum float64) float64 {
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

// BuiltinDecay is a fixed decay of the mechanism, equal for all tokens of a key head. It
// is added to the decay of the call.
type BuiltinDecay struct {
	Name  string                 // for errors
	Log   func(head int) float64 // finite and 0 or less
	Heads int                    // key heads that Log knows; 0: any
}

// checkBuiltinDecay reports a call whose keys a decay of the mechanism's own does
// not fit.
func (e callCheck[T]) checkBuiltinDecay(c *Call[T]) error {
	switch f := e.spec.BuiltinDecay; {
	case f == nil:
		return nil
	case !c.Causal:
		return fmt.Errorf("causal: %s has decay, which needs a causal call, whose queries have a place among the keys", e.spec.Name)
	default:
		return e.checkBuiltinDecayHeads(c.K.H)
	}
}

func (e callCheck[T]) checkBuiltinDecayHeads(heads int) error {
	if f := e.spec.BuiltinDecay; f != nil && f.Heads != 0 && f.Heads != heads {
		return fmt.Errorf("%s: has %d numbers, k has %d heads", f.Name, f.Heads, heads)
	}
	return nil
}

// withBuiltinDecay returns c with the mechanism's decay added to the call's decay, in scratch
// memory.
func (e *engine[T]) withBuiltinDecay(ar *arena.Arena, c *Call[T]) *Call[T] {
	x := *c
	k := &c.K
	x.LogG = tensor.Heads[T]{Data: arena.Take[T](ar, k.B*k.H*k.N), B: k.B, H: k.H, N: k.N, D: 1, SB: k.H * k.N, SH: k.N, SN: 1}
	for i := range k.B * k.H {
		b, h := i/k.H, i%k.H
		own, to := e.spec.BuiltinDecay.Log(h), x.LogG.At(b, h)
		for j := range k.N {
			g := own
			if c.HasDecay() {
				g += float64(c.LogG.At(b, h).Row(j)[0])
			}
			to.Row(j)[0] = T(max(g, -math.MaxFloat32))
		}
	}
	return &x
}
