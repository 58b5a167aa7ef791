// Package sequence computes attention, and its gradient, over a sequence whose tokens are
// divided among the ranks of a job. The tokens of a rank follow the tokens of the rank before.
// Parts may differ in length, and may be empty. Ranks do not exchange tokens but the total of a
// state (states.Total), whose size depends on the mechanism and the width of the heads, not
// on the number of tokens.
//
//	causal    each rank begins after the totals of the ranks before it: an exclusive
//	          scan, and in the backward pass a reverse scan of their gradients. Decay
//	          joins as a factor of the sums before a rank's tokens.
//	unmasked  all ranks read one sum of all totals, and backward one sum of gradients.
//
// States of mechanisms with Traits.Segments cannot be added up. In causal calls such a state is
// passed from rank to rank, and in unmasked calls the mechanism divides the work itself
// (headwise.Divided).
//
// Outputs agree with those of one process within the bound of the linear form. Their bits
// depend on where the sequence is divided, and are the same whenever it is divided there.
//
// The method is LASP (Sun et al. 2024, arXiv 2404.02882), with the exchange of LASP-2 (Sun et
// al. 2025, arXiv 2502.07563): one collective operation on states each way.
package sequence
