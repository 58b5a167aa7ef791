// Package features computes the packed monomials that are the features of a polynomial kernel,
// sums their products with rows over tokens, and reads the sums. docs/math.md derives the
// formulas. The package works on rows of numbers and knows neither calls nor states.
package features
