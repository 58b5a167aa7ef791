//go:build !float64

package tensor

// Float is the element type of all arrays: float32. Built with -tags float64, attention,
// mechanism, nn, model and what they need compute in double precision, which serves to check formulas
// and nothing else.
type Float = float32
