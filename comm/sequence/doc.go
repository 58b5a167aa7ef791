// Package sequence computes attention over a sequence whose tokens are divided among
// the ranks of a job, and its gradient. No rank sees the tokens of another: what goes
// between them is the total of a state (attention.Total), whose size depends on the
// mechanism and the width of the heads alone.
//
//	causal    each rank begins after the totals of the ranks before it: an exclusive
//	          prefix, and going back an exclusive suffix of their gradients. Decay
//	          goes along as what a rank's tokens leave of the sums before them.
//	unmasked  all ranks read one sum of all totals, and going back one of gradients.
//
// The tokens of a rank are those behind the tokens of the rank before. Parts may
// differ in length, and be empty. Outputs agree with those of one process within the
// bound of the linear form; the bits depend on where the sequence is cut, and are the
// same whenever it is cut there.
//
// The method is that of LASP (Sun et al. 2024, arXiv 2404.02882), with the exchange of
// LASP-2 (Sun et al. 2025, arXiv 2502.07563): one collective operation on states each
// way.
package sequence
