// Package losses has the losses of numbers and of levels, and the cap of logits.
package losses

import "math"

// The work of an element in operations, and the rows of a piece.
const (
	capWork   = 32
	pieceRows = 32
)

// Softplus returns ln(1 + e^x).
func Softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// Logistic returns 1/(1 + e^-x).
func Logistic(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}
