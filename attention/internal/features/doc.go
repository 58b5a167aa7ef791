// Package features makes the packed monomials of the linear form of a polynomial kernel, sums their
// products with rows over tokens, and reads the sums. docs/math.md derives both. It knows neither
// calls nor states, only rows of numbers.
package features
