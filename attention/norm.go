package attention

import "math"

// Norm normalises one token's query or key over its channels. The mean is
// subtracted in two rounds, the second for what rounding left of the first;
// squares are summed in float64, or sums of a few of them. A token that cannot
// be normalised (all channels equal, or a length below 2⁻¹²⁶, or in float32 below
// 2⁻¹²⁷ times the new one) becomes exactly zero and has zero gradient.
type Norm int

const (
	// NoNorm leaves rows as they are.
	NoNorm Norm = iota
	// Standard subtracts the mean and divides by the population standard
	// deviation (FAST, eq. 5-6, epsilon 0): |x̂|² = D.
	Standard
	// Unit divides by the 2-norm (TaylorShift, normalisation 1).
	Unit
	// Bounded subtracts the mean and divides by the 2-norm, so that scores
	// stay in [-1, 1].
	Bounded

	// What the programs of FAST's authors divide by is the greatest 2-norm over
	// all tokens of a sequence and head, M; what some subtract first is a mean.
	// A call with one of these is never causal, and has no state.

	// MaxNorm divides by M (example.py of armingerami/fastmax).
	MaxNorm
	// TokenCentred subtracts of each channel the mean over the tokens, and
	// divides by M (score_function.py of armingerami/reproducing_fastmax_results).
	TokenCentred
	// ChannelCentred subtracts of each token the mean over its channels, and
	// divides by M (score_function_2.py there).
	ChannelCentred
	// GlobalCentred subtracts one mean over the tokens, channels and heads of a
	// sequence, and divides by the M of each head (score_function_JAX.py there):
	// the only one by which a head depends on others.
	GlobalCentred
	// MaxSquared divides by M², but by no less than 0.1 (armingerami/Fastmax, as
	// its kernels are meant).
	MaxSquared
)

var normNames = [...]string{
	NoNorm: "none", Standard: "standard", Unit: "unit", Bounded: "bounded",
	MaxNorm: "max", TokenCentred: "token-centred", ChannelCentred: "channel-centred", GlobalCentred: "global-centred", MaxSquared: "max-squared",
}

// Norms returns all kinds of normalisation.
func Norms() []Norm {
	list := make([]Norm, len(normNames))
	for i := range list {
		list[i] = Norm(i)
	}
	return list
}

// String returns the name of the normalisation.
func (n Norm) String() string { return normNames[n] }

// MaxLen is the largest 2-norm of a normalised row of width d.
func (n Norm) MaxLen(d int) float64 {
	switch n {
	case Standard:
		return math.Sqrt(float64(d))
	case NoNorm:
		return math.Inf(1)
	case MaxSquared: // M/M² where M² is least
		return 1 / math.Sqrt(leastSquare)
	}
	return 1
}

// IsCentred reports whether the mean of a token's channels is subtracted.
func (n Norm) IsCentred() bool { return n == Standard || n == Bounded || n == ChannelCentred }

// NeedsAllTokens reports whether the statistics of n are taken over all tokens.
func (n Norm) NeedsAllTokens() bool { return n >= MaxNorm }

// leastSquare is the least that MaxSquared divides by.
const leastSquare = 0.1

// InvertLength returns the factor of centred rows whose greatest norm is length, 0 if they cannot be normalised. power is the
// exponent of the greatest norm in the denominator.
func (n Norm) InvertLength(length float64) (factor float64, power int) {
	const smallest = 0x1p-126
	switch {
	case n == MaxSquared && length*length < leastSquare:
		return 1 / leastSquare, 0
	case n == MaxSquared:
		return 1 / (length * length), 2
	case length < smallest:
		return 0, 0
	}
	return 1 / length, 1
}
