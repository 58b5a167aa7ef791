// Package array reads and writes named arrays in numpy's formats .npy and .npz. Files are
// untrusted: every size is checked before use, and memory grows only with the bytes that arrive.
//
// An array of shape [a, b, c] is one slice in C order, element (i, j, k) at (i·b + j)·c + k. Fortran
// order of two or more dimensions is refused. Shapes count elements; sizes and limits count bytes.
// Malformed files give an error that names the value found, and no array.
//
// The formats are numpy's: NEP 1, and numpy.lib.format.
package array
