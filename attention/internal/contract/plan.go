package contract

// Plan describes what Forward and Backward do for a shape, and their cost.
type Plan struct {
	Form       Form    // of Forward
	Chunk      int     // tokens of a chunk, of a state's in the step form; 0 in the direct form
	F          int     // packed features of a row; 0 where there is no linear form
	WidthError error   // features are more than the linear form and states may have; nil: they are not
	FLOPs      float64 // of Forward, all heads
	Bytes      float64 // of scratch that one worker's key head takes
	Reason     string  // of this form

	// Window is the number of elements that a state keeps of a key head's window,
	// and WindowFLOPs what a token of a query head takes with it.
	Window, WindowFLOPs float64

	// State is what a state of the shape holds without tokens, in bytes, with the
	// shape's Chunk and Carry, whatever the form; 0 if it grows with the tokens
	// or is unknown.
	State float64

	// Renews reports that a state of the shape whose chunks have one token (Chunk 1)
	// answers a token and takes it in while it reads its sums once: the way to step
	// of kernels of degree 1, whose states are half as large then.
	Renews bool

	Back    Form // of Backward
	BackWhy string

	// Cost is what Forward is expected to take, and BackCost Backward, all
	// heads: in operations at the peak of multiply-adds of one core, so that
	// over that peak it is seconds. 0 where the table has no such mechanism.
	Cost, BackCost float64

	// Bound is rigorous. Where no number overflows or underflows, an output o_i of
	// Forward differs from the exact output by no more than
	//
	//	Bound · κ_i · (max|v| + max|o_i|),  κ_i = (Σ_j f̄(|a_i|·|b_j|) + eps) / |g_i|
	//
	// as long as Bound·κ_i ≤ 1/6, with the 2-norms of prepared rows, f̄ the kernel
	// with absolute coefficients, j over the keys that i sees and the denominator
	// g_i. Where rows are normalised |a_i|·|b_j| may be max|s|. For the exponential
	// κ_i is 1 + max_j |a_i|·|b_j|; the one for windows is in docs/numerics.md. It is 0
	// where nothing is derived: for normalisations over all tokens, feature maps without
	// a BoundedRounding, outputs with a factor of their own and a Similarity. It does
	// not hold for calls with decay or dropout, and gradients have none.
	Bound float64
}
