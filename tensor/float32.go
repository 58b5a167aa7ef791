//go:build !float64

package tensor

// Float is the element type of the arrays of attention, mechanism, nn, model and what they need:
// float32. With -tags float64 it is float64, for tests of formulas only.
type Float = float32
