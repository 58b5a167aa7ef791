// Package array holds named arrays as files carry them, and reads and writes
// numpy's .npy and .npz. Files come from strangers: every size is checked before
// it is believed and memory grows only with the bytes that arrive.
//
// An array of shape [a, b, c] is one slice in C order, element (i, j, k) at
// (i·b + j)·c + k; Fortran order of two and more dimensions is refused. Shapes count
// elements, sizes and limits bytes. What is not as its header says (a shape beyond any
// memory, a type that is not known, bytes that are missing) is an error that says what
// was found, and no array comes with it.
//
// The formats are numpy's: NEP 1, and numpy.lib.format.
package array
