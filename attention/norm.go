package attention

import (
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// Norm normalises one token's query or key over its channels. The mean is
// subtracted in two rounds, the second for what rounding left of the first;
// squares are summed in float64, or sums of a few of them. A token that cannot
// be normalised (all channels equal, or a length below 2⁻¹²⁶) becomes exactly
// zero and has zero gradient.
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
)

var normNames = [...]string{NoNorm: "none", Standard: "standard", Unit: "unit", Bounded: "bounded"}

// Norms lists them all.
func Norms() []Norm {
	list := make([]Norm, len(normNames))
	for i := range list {
		list[i] = Norm(i)
	}
	return list
}

func (n Norm) String() string { return normNames[n] }

// MaxLen is the largest 2-norm of a normalised row of width d.
func (n Norm) MaxLen(d int) float64 {
	switch n {
	case Standard:
		return math.Sqrt(float64(d))
	case Unit, Bounded:
		return 1
	}
	return math.Inf(1)
}

// centred reports whether the mean is subtracted.
func (n Norm) centred() bool { return n == Standard || n == Bounded }

// normalise normalises the columns of x [d, ld] and multiplies them by scale.
func normalise[T tensor.Float](t *kernel.Table[T], norm Norm, x []T, ld, d, n int, scale T) {
	if norm == NoNorm {
		scaleColumns(t, x, ld, d, n, scale)
		return
	}
	length := scale * T(norm.MaxLen(d))
	if norm.centred() {
		t.Standardise(x, ld, d, n, length)
	} else {
		t.Normalise(x, ld, d, n, length)
	}
}

// normaliseGrad turns dy, the gradient of what normalise makes of the columns
// of x, into that of x, and uses x up.
func normaliseGrad[T tensor.Float](t *kernel.Table[T], norm Norm, dy, x []T, ld, d, n int, scale T) {
	if norm == NoNorm {
		scaleColumns(t, dy, ld, d, n, scale)
		return
	}
	if norm.centred() {
		t.Centre(x, ld, d, n)
		t.Centre(dy, ld, d, n)
	}
	t.NormaliseGrad(dy, x, ld, d, n, scale*T(norm.MaxLen(d)))
}

func scaleColumns[T tensor.Float](t *kernel.Table[T], x []T, ld, d, n int, scale T) {
	if scale == 1 {
		return
	}
	for c := range d {
		row := x[c*ld:][:n]
		t.Scale(row, scale, row)
	}
}
