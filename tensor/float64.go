//go:build float64

package tensor

// Float is the element type of all arrays, here float64: attention, mechanism, nn, model and what
// they need are built with -tags float64, which serves to check formulas and nothing else.
type Float = float64
