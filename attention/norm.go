package attention

import "math"

// Norm is a normalisation of the queries and keys of a head. Standard, Unit and Bounded
// normalise each token by itself; the kinds from MaxNorm on use statistics over all tokens.
//
// The mean is subtracted twice, the second time to remove what rounding left of it. Squares are
// summed in float64, or in float64 after adding a few of them in the element type. A token that
// cannot be normalised becomes exactly zero and has zero gradient: one whose channels are all
// equal, or whose length is below 2⁻¹²⁶ or, in float32, below 2⁻¹²⁷ times its new length.
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

	// The programs of FAST's authors use the following normalisations. M is the largest 2-norm
	// over all tokens of a sequence and head, after subtraction of the mean. Calls with them
	// are never causal and have no state.

	// MaxNorm divides by M (example.py of armingerami/fastmax).
	MaxNorm
	// TokenCentred subtracts from each channel its mean over the tokens, and divides by M
	// (score_function.py of armingerami/reproducing_fastmax_results).
	TokenCentred
	// ChannelCentred subtracts from each token the mean of its channels, and divides by M
	// (score_function_2.py there).
	ChannelCentred
	// GlobalCentred subtracts one mean over all tokens, channels and heads of a sequence, and
	// divides by the M of each head (score_function_JAX.py there). It is the only normalisation
	// in which a head depends on other heads.
	GlobalCentred
	// MaxSquared divides by max(0.1, M²), as the kernels of armingerami/Fastmax intend.
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

// MaxLen returns the largest 2-norm of a normalised row of width d.
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

// NeedsAllTokens reports whether n needs statistics over all tokens of a sequence.
func (n Norm) NeedsAllTokens() bool { return n >= MaxNorm }

// leastSquare is the least that MaxSquared divides by.
const leastSquare = 0.1

// InvertLength returns the factor that normalises centred rows whose largest 2-norm is length,
// 0 if they cannot be normalised. The factor is proportional to length to the power -power.
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
