//go:build float64

package tensor

// Float is the element type of the arrays of attention, mechanism, nn, model and what they need,
// here float64: the build has -tags float64, for tests of formulas only.
type Float = float64
