// Package tensor holds views: descriptions of matrices and of heads of queries,
// keys and values over a slice of the caller. There is no arithmetic
// here and nothing is copied. The last dimension is always contiguous.
//
// A Mat is Rows × Cols with its rows a stride apart; Heads are B × H matrices of N rows
// of D numbers, in any order of B, H and N. Strides are in elements. A view whose
// dimensions or strides are negative, or that reaches beyond its slice, is an error of
// Check that names the field and both values; an index out of range panics as it does for
// a slice.
package tensor
