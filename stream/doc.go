// Package stream computes attention over inputs larger than memory: files read in
// windows, pipes, and tokens generated from a seed. A recurrent state of constant size
// absorbs the windows, and outputs are written at their places.
//
// Causal attention takes one pass. Keys before the first query take a pass of their own.
// Unmasked attention takes two passes, over the keys and then over the queries. Sums of
// states are always compensated (attention.Compensated), so their error does not grow
// with the tokens.
//
// A run that was cut off continues from its last checkpoint, to the same bits. Bits do
// not depend on threads, on the size of windows or on interruptions.
//
// Shape letters are defined in package attention; N and M may exceed memory.
package stream
