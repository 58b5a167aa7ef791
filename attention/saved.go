package attention

import "github.com/farfield-ml/farfield/tensor"

// Grads holds the gradients of a call. Backward overwrites all fields except DFinal and DAux,
// which are inputs, and adds gradients of parameters to the mechanism's Params. The gradients
// must overlap neither one another nor anything that Backward reads.
type Grads struct {
	DQ, DK, DV tensor.Heads // shapes of Q, K and V
	DLogG      tensor.Heads // shape of LogG; empty: not wanted

	// DAux is an input, the gradient of Saved.Aux; 0 if no loss contains Aux.
	DAux tensor.Float

	// DFinal is an input, the gradient of Call.Final; nil if no call continues from it. DInit
	// receives the gradient of Call.Init, which is the DFinal of the previous call; nil if it
	// is not wanted. Call.Init must be unchanged since Forward. The content of Call.Final is
	// not used.
	DFinal, DInit *StateGrad
}

// Saved holds intermediate results of Forward for Backward, and counts of exceptional
// rows.
type Saved struct {
	// Den [B,H,N] holds the denominator of each query: for softmax its logarithm, for an
	// unnormalised Spec 1. Headwise mechanisms leave it empty. With packed sequences N is the
	// total number of queries. With decay the weights, eps and the 1 are relative to the last
	// key that the query sees.
	Den []tensor.Float

	// Moments holds the sums over all keys, for each key head of each sequence, in the linear
	// form without causal masking: first the padded sums of feature times value, for every
	// feature, then the sums of the features.
	Moments [][]tensor.Float

	// Heads holds what a headwise mechanism saves for each query head of each sequence.
	Heads [][]tensor.Float

	// Own holds what else the mechanism saves, in a type that only the mechanism knows.
	Own any

	// Aux is the auxiliary loss of the mechanism, summed over heads; 0 for most mechanisms.
	Aux float64

	// Residual is the distance of an iterative mechanism from convergence, the largest of all
	// heads. For nystrom it is the largest absolute element of AZA - A, which is 0 if Z is the
	// pseudo-inverse of A.
	Residual float64

	// ExactShare is the share of visible pairs of query and key whose weights were computed
	// exactly, over all heads. Only a mechanism that chooses these pairs by an error estimate
	// sets it (multipole with centres=input); otherwise it is 0.
	ExactShare float64

	UnseenCount int64 // queries that see no key: their output and gradients are 0
	// WeakCount counts ill-conditioned rows: queries whose denominator nearly cancels. Only
	// kernels with negative weights have them, and a row counts if
	//
	//	den < 2⁻¹⁰ × (visible keys) × f̄(max|s|),
	//
	// where f̄ has the absolute values of the coefficients of f, and max|s| is the bound of the
	// normalisation or, without one, the product of the lengths of the query and the longest
	// key. Such a row can lose ten of the 24 bits of a float32, or its negative weights
	// outweigh the others. Keys of a state before the call count too, with decay by their
	// remaining weight; but sums do not record the lengths of keys in closed chunks, and sums
	// of a single power not even their number.
	//
	// For kernels that are never negative, WeakCount counts queries with output 0 because all
	// their weights are 0 or the reciprocal of the denominator overflows.
	WeakCount int64
	WeakAt    [3]int // batch row, head and query of the first weak row

	// NonFinite counts rows of the output that hold NaN or infinities: scores, weights or sums
	// left the range of the element type, or a denominator that can cancel is 0.
	NonFinite   int64
	NonFiniteAt [3]int // batch row, head and query of the first
}

// checkApart returns an error if o overlaps what s holds. s may be nil.
func (s *Saved) checkApart(name string, o *tensor.Heads) error {
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
// Backward reads: dout, out, tensors of c and keep. Shapes must have been checked before.
func (g *Grads) CheckMemory(dout, out *tensor.Heads, c *Call, keep *Saved) error {
	written := [4]struct {
		name string
		x    *tensor.Heads
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
func (g *Grads) CheckShapes(dout *tensor.Heads, c *Call) error {
	if g == nil {
		return errNoGrads
	}
	if err := c.CheckOutput("do", dout); err != nil {
		return err
	}
	for _, x := range []struct {
		name  string
		d, of *tensor.Heads
	}{{"dq", &g.DQ, &c.Q}, {"dk", &g.DK, &c.K}, {"dv", &g.DV, &c.V}} {
		if err := CheckShape(x.name, x.d, x.of.B, x.of.H, x.of.N, x.of.D); err != nil {
			return err
		}
	}
	return nil
}
