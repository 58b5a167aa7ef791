//go:build float64

package tensor

// Float is the element type of all arrays, here float64: the library is built with
// -tags float64, which serves to check formulas and nothing else.
type Float = float64
