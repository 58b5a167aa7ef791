// Package stream computes attention over inputs that need not fit in memory:
// files that are read in windows, pipes, and tokens made from a seed. A state of
// constant size goes along, and outputs are written at their places as they come.
//
// Causal attention takes one pass; where there are more keys than queries, those
// before the first query are absorbed in a pass of their own. Unmasked attention
// takes two, over the keys and then over the queries. Sums of states are always
// compensated (attention.Compensated), so that their error does not grow with the
// tokens.
//
// A run that was cut off at any moment goes on from its last checkpoint, to the
// bits of a run that was not. Bits do not depend on threads, on the size of
// windows or on interruptions.
//
// Shape letters are those of package attention; N and M may be beyond memory.
package stream
