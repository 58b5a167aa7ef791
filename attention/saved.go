package attention

import "github.com/farfield-ml/farfield/tensor"

// Grads receives gradients, except DFinal, which is given. They are
// overwritten; gradients of the mechanism's parameters are added to its Params.
// They overlap neither one another nor anything that Backward reads.
type Grads[T tensor.Float] struct {
	DQ, DK, DV tensor.Heads[T] // shaped as Q, K, V
	DLogG      tensor.Heads[T] // as LogG; empty: not wanted

	// DAux is the gradient of Saved.Aux, given: 0 where that is in no loss.
	DAux T

	// DFinal is the gradient of Call.Final; nil: no call follows. DInit receives the
	// gradient of Call.Init, the DFinal of the call before; nil: not wanted. Init must
	// be unchanged since Forward; the content of Final is not used.
	DFinal, DInit *StateGrad[T]
}

// Saved holds intermediate results of Forward for Backward, and counts of exceptional
// rows.
type Saved[T tensor.Float] struct {
	// Den [B,H,N] holds each query's denominator, for softmax its logarithm, for an
	// unnormalised Spec 1. Headwise mechanisms leave it empty. With packed sequences N
	// is the total. With decay weights, eps and that 1 are relative to the last key
	// that the query sees.
	Den []T

	// Moments holds the sums of all keys, for each key head of each sequence in the
	// linear form without causal masking: for every feature the padded sums of its
	// products with the values, after them the sums of the features.
	Moments [][]T

	// Heads holds for each query head of each sequence what a headwise mechanism
	// keeps.
	Heads [][]T

	// Own is what else the mechanism keeps, in a type of its own.
	Own any

	// Aux is a loss of the mechanism's own, summed over the heads; most have none.
	Aux float64

	// Residual is how far iterations of the mechanism's own were from their end,
	// at the head of the call where they were farthest: of nystrom the largest
	// element of AZA - A, where Z has become the pseudo-inverse of A when it is 0.
	Residual float64

	// ExactShare is the share of the pairs of queries and keys that see each other whose
	// weights a mechanism computed one by one that chooses them by the error of the others
	// (multipole with centres=input), over all heads; 0 for other mechanisms.
	ExactShare float64

	UnseenCount int64 // queries that see no key: their output and gradients are 0
	// WeakCount counts ill-conditioned rows, queries whose denominator nearly cancels. Only
	// kernels with negative weights have them: den < 2⁻¹⁰ × (visible keys) × f̄(max|s|).
	// f̄ has the absolute coefficients of f. max|s| is the bound of the normalisation,
	// otherwise the product of the query's length and the longest key's. Such a row may
	// lose ten of the 24 bits of a float32, or its negative weights outweigh the others.
	// Keys of a state before the call count, with decay by their remaining weight. Sums
	// do not record the lengths of keys in closed chunks, and for single powers not their
	// number. For kernels that are never negative, WeakCount counts queries with output 0
	// whose weights are all 0, or whose reciprocal denominator overflows.
	WeakCount int64
	WeakAt    [3]int // batch row, head and query of the first weak row

	// NonFinite counts rows of the output that hold NaN or infinities: scores,
	// weights or sums of the call left the range of the element type, or a denominator
	// that may cancel is 0.
	NonFinite   int64
	NonFiniteAt [3]int // batch row, head and query of the first
}

// checkApart returns an error if o overlaps what s holds. s may be nil.
func (s *Saved[T]) checkApart(name string, o *tensor.Heads[T]) error {
	if s == nil {
		return nil
	}
	found := overlapsRow(o, s.Den)
	for _, x := range s.Moments {
		found = found || overlapsRow(o, x)
	}
	for _, x := range s.Heads {
		found = found || overlapsRow(o, x)
	}
	if found {
		return overlapError(name, "saved")
	}
	return nil
}

// CheckMemory returns an error if a gradient of g overlaps itself, another gradient, or what
// Backward reads: dout, out, tensors of c and keep. The views have their shapes.
func (g *Grads[T]) CheckMemory(dout, out *tensor.Heads[T], c *Call[T], keep *Saved[T]) error {
	written := [4]struct {
		name string
		x    *tensor.Heads[T]
	}{{"dq", &g.DQ}, {"dk", &g.DK}, {"dv", &g.DV}, {"d_log_g", &g.DLogG}}
	for i, w := range written {
		if err := c.CheckApart(w.name, w.x); err != nil {
			return err
		}
		if w.x.Overlaps(*dout) {
			return overlapError(w.name, "do")
		}
		if w.x.Overlaps(*out) {
			return overlapError(w.name, "o")
		}
		for _, other := range written[:i] {
			if w.x.Overlaps(*other.x) {
				return overlapError(w.name, other.name)
			}
		}
		if err := keep.checkApart(w.name, w.x); err != nil {
			return err
		}
	}
	if g.DInit != nil && g.DInit == g.DFinal {
		return overlapError("dinit", "dfinal")
	}
	return nil
}

// CheckShapes returns an error if dout is not [B,H,N,Dv], or DQ, DK and DV do not have
// the shapes of Q, K and V.
func (g *Grads[T]) CheckShapes(dout *tensor.Heads[T], c *Call[T]) error {
	if g == nil {
		return errNoGrads
	}
	if err := c.CheckOutput("do", dout); err != nil {
		return err
	}
	for _, x := range []struct {
		name  string
		d, of *tensor.Heads[T]
	}{{"dq", &g.DQ, &c.Q}, {"dk", &g.DK, &c.K}, {"dv", &g.DV, &c.V}} {
		if err := CheckShape(x.name, x.d, x.of.B, x.of.H, x.of.N, x.of.D); err != nil {
			return err
		}
	}
	return nil
}
