package engine

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// callCheck holds calls against the contract and the Spec.
type callCheck[T tensor.Float] struct{ *Engine[T] }

// CheckCall is Call.check with what the mechanism itself cannot do.
func (e callCheck[T]) CheckCall(c *contract.Call[T]) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Form == contract.Linear || c.Form == contract.Step {
		if c.AttnKeep != nil {
			return fmt.Errorf("attn_keep: not defined in the %v form", c.Form)
		}
		if err := e.checkMoments(c.Q.D, c.V.D); err != nil {
			return err
		}
	}
	if c.Form == contract.Linear && e.Spec.IsPairwise() {
		return fmt.Errorf("form: %s has no linear form", e.Spec.Name)
	}
	if c.Causal {
		if err := e.refuseFuture("causal"); err != nil {
			return err
		}
	}
	if err := e.refuseFading(c); err != nil {
		return err
	}
	if err := e.checkBuiltinDecay(c); err != nil {
		return err
	}
	if err := e.checkProducts(c); err != nil {
		return err
	}
	return e.CheckHeads(c.Q.H, c.K.H, c.Q.D)
}

func (e callCheck[T]) CheckHeads(heads, keyHeads, d int) error {
	if t := e.Spec.Tau; t != nil && len(t.Data) != 1 && len(t.Data) != heads {
		return fmt.Errorf("%s: has %d heads, q has %d", t.Name, len(t.Data), heads)
	}
	if e.Spec.Features != nil {
		return e.Spec.Features.Check(heads, keyHeads, d)
	}
	return nil
}

// checkMoments reports a width and a degree whose features with values of width dv
// have more moments than maxMoments.
func (e callCheck[T]) checkMoments(d, dv int) error {
	f := e.Spec.CountFeatures(e.Spec.Width(d))
	size := float64(f) * float64(scratch.Stride[T](dv))
	if size <= maxMoments {
		return nil
	}
	more := ""
	if f == math.MaxInt {
		more = " and more"
	}
	return fmt.Errorf("%s: the linear form of degree %d has %d%s features for D = %d, whose sums with Dv = %d are %.0f%s numbers a head, at most %d",
		e.Spec.Name, e.Spec.Degree(), f, more, d, dv, size, more, maxMoments)
}

// maxMoments is the most numbers that the moments of a head may have: 4 GiB in
// float32, sixteen times the moments of degree 4 at D = Dv = 64. Wider rows or higher
// degrees are a mistake.
const maxMoments = 1 << 30

// checkBuiltinDecay reports a call whose keys a decay of the mechanism's own does
// not fit.
func (e callCheck[T]) checkBuiltinDecay(c *contract.Call[T]) error {
	switch f := e.Spec.BuiltinDecay; {
	case f == nil:
		return nil
	case !c.Causal:
		return fmt.Errorf("causal: %s has decay, which needs a causal call, whose queries have a place among the keys", e.Spec.Name)
	default:
		return e.checkBuiltinDecayHeads(c.K.H)
	}
}

func (e callCheck[T]) checkBuiltinDecayHeads(heads int) error {
	if f := e.Spec.BuiltinDecay; f != nil && f.Heads != 0 && f.Heads != heads {
		return fmt.Errorf("%s: has %d numbers, k has %d heads", f.Name, f.Heads, heads)
	}
	return nil
}

// checkProducts reports a call whose dropout of products the mechanism cannot
// do.
func (e callCheck[T]) checkProducts(c *contract.Call[T]) error {
	if c.Drop == nil || c.Drop.Kind != spec.ProductDrop {
		return nil
	}
	_, mapped := e.Spec.Map.(headtask.Products[T])
	switch {
	case !mapped && !e.hasProducts():
		return fmt.Errorf("dropout: %v needs a kernel of degree 2 without a feature map, which %s does not have", c.Drop.Kind, e.Spec.Name)
	case c.Form == contract.Step:
		return fmt.Errorf("dropout: %v is not defined in the step form", c.Drop.Kind)
	case c.HasState():
		return fmt.Errorf("dropout: %v is not defined with a state before or after the call", c.Drop.Kind)
	}
	return nil
}

// refuseFading reports a decay where outputs are multiplied by a number of keys:
// with a decay, a state holds what is left of its keys, not how many they were.
func (e callCheck[T]) refuseFading(c *contract.Call[T]) error {
	switch {
	case !c.HasDecay():
		return nil
	case e.Spec.Floor > 0:
		return fmt.Errorf("log_g: %s has a least denominator, which does not go with weights that decay", e.Spec.Name)
	case !e.Spec.OutputNorm:
		return nil
	}
	return fmt.Errorf("log_g: %s with output_norm counts keys, which sums that lose weight do not tell", e.Spec.Name)
}

// refuseFuture reports a normalisation over all tokens where later ones must
// not count.
func (e callCheck[T]) refuseFuture(what string) error {
	if !spec.NeedsAllTokens(e.Spec.Norm) {
		return nil
	}
	return fmt.Errorf("%s: %s with norm %v is not causal: %s", what, e.Spec.Name, e.Spec.Norm, overTokens)
}

const overTokens = "its statistics are taken over all tokens, later ones too"

// Checks returns the checks of calls.
func (e *Engine[T]) Checks() callCheck[T] { return callCheck[T]{e} }
