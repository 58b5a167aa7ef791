// Package tensor describes matrices, and heads of queries, keys and values, as views of
// slices. It does no arithmetic and copies nothing. The last dimension is always contiguous.
//
// A Mat is Rows × Cols with its rows a stride apart. Heads are B × H matrices of N rows of D
// numbers, in any order of B, H and N. Strides are in elements. Check returns an error, which
// names the field and both values, if dimensions or strides are negative or the view reaches
// beyond its slice. An index out of range panics as it does for a slice.
package tensor
