package attention

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// callCheck holds calls against the contract and the Spec.
type callCheck[T tensor.Float] struct{ *engine[T] }

// check is Call.check with what the mechanism itself cannot do.
func (e callCheck[T]) check(c *Call[T]) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Form == Linear || c.Form == Step {
		if c.AttnKeep != nil {
			return fmt.Errorf("attn_keep: not defined in the %v form", c.Form)
		}
		if err := e.checkMoments(c.Q.D, c.V.D); err != nil {
			return err
		}
	}
	if c.Form == Linear && e.spec.IsPairwise() {
		return fmt.Errorf("form: %s has no linear form", e.spec.Name)
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
	return e.checkHeads(c.Q.H, c.K.H, c.Q.D)
}

func (e callCheck[T]) checkHeads(heads, keyHeads, d int) error {
	if t := e.spec.Tau; t != nil && len(t.Data) != 1 && len(t.Data) != heads {
		return fmt.Errorf("%s: has %d heads, q has %d", t.Name, len(t.Data), heads)
	}
	if e.spec.Features != nil {
		return e.spec.Features.Check(heads, keyHeads, d)
	}
	return nil
}

// checkMoments reports a width and a degree whose features with values of width dv
// have more moments than maxMoments.
func (e callCheck[T]) checkMoments(d, dv int) error {
	f := e.spec.CountFeatures(e.spec.Width(d))
	size := float64(f) * float64(scratch.Stride[T](dv))
	if size <= maxMoments {
		return nil
	}
	more := ""
	if f == math.MaxInt {
		more = " and more"
	}
	return fmt.Errorf("%s: the linear form of degree %d has %d%s features for D = %d, whose sums with Dv = %d are %.0f%s numbers a head, at most %d",
		e.spec.Name, e.spec.Degree(), f, more, d, dv, size, more, maxMoments)
}

// maxMoments is the most numbers that the moments of a head may have: 4 GiB in
// float32, sixteen times the moments of degree 4 at D = Dv = 64. Wider rows or higher
// degrees are a mistake.
const maxMoments = 1 << 30

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

// checkProducts reports a call whose dropout of products the mechanism cannot
// do.
func (e callCheck[T]) checkProducts(c *Call[T]) error {
	if c.Drop == nil || c.Drop.Kind != ProductDrop {
		return nil
	}
	_, mapped := e.spec.Map.(headtask.Products[T])
	switch {
	case !mapped && !e.hasProducts():
		return fmt.Errorf("dropout: %v needs a kernel of degree 2 without a feature map, which %s does not have", c.Drop.Kind, e.spec.Name)
	case c.Form == Step:
		return fmt.Errorf("dropout: %v is not defined in the step form", c.Drop.Kind)
	case c.HasState():
		return fmt.Errorf("dropout: %v is not defined with a state before or after the call", c.Drop.Kind)
	}
	return nil
}

// refuseFading reports a decay where outputs are multiplied by a number of keys:
// with a decay, a state holds what is left of its keys, not how many they were.
func (e callCheck[T]) refuseFading(c *Call[T]) error {
	switch {
	case !c.HasDecay():
		return nil
	case e.spec.Floor > 0:
		return fmt.Errorf("log_g: %s has a least denominator, which does not go with weights that decay", e.spec.Name)
	case !e.spec.OutputNorm:
		return nil
	}
	return fmt.Errorf("log_g: %s with output_norm counts keys, which sums that lose weight do not tell", e.spec.Name)
}

// refuseFuture reports a normalisation over all tokens where later ones must
// not count.
func (e callCheck[T]) refuseFuture(what string) error {
	if !spec.NeedsAllTokens(e.spec.Norm) {
		return nil
	}
	return fmt.Errorf("%s: %s with norm %v is not causal: %s", what, e.spec.Name, e.spec.Norm, overTokens)
}

const overTokens = "its statistics are taken over all tokens, later ones too"

func (e *engine[T]) checks() callCheck[T] { return callCheck[T]{e} }
