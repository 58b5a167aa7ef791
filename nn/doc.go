// Package nn holds the layers of a transformer, each with its Forward beside
// its Backward, and the loss.
//
// A layer is its weights. What Forward leaves for Backward lies in a trace that
// the caller owns, so that one layer can serve several calls. Matrices have one
// row for each token: row b·N+n is token n of batch row b. Forward sets its
// output unless it says that it adds; Backward adds to the gradients of weights.
//
// Kept for Backward, in elements a token, with W the width of the model, H
// heads of width D, Hkv key heads and U hidden units:
//
//	Embedding   nothing but the token ids
//	LayerNorm   2 (mean and reciprocal deviation), and the caller's input, W
//	RMSNorm     as LayerNorm
//	Linear      the caller's input
//	Attention   2·H·D + 2·Hkv·D + H (queries, keys, values, outputs, denominators)
//	MLP         2·U (before and after the activation)
//	GatedMLP    3·U (gate, up, and their product)
//	Conv        the caller's input
//	Mamba2      7·H·P + 6·G·S + 4·H (projections, their convolution before and after
//	            SiLU, steps, decays, values, outputs, what is projected, denominators)
//	MSR         2·W + 4·H·P + H (queries, keys, values, gates, outputs, what is
//	            projected, denominators), and 2·⌊D/2⌋ rotations
//	            for each place of a sequence
//	Hyena       W·(4·K+2) of K gates, each after a long convolution, and filters for
//	            each place of a sequence, whatever the batch
//	MSSA        2·H·D + H (projections, outputs, denominators)
//	ISTA        2·W (what the dictionary leaves of the input, and the output)
//	loss        nothing: logits are computed again
//
// A residual block x + f(norm(x)) thus keeps x, norm(x), 2 numbers and what f
// keeps. With Hkv = H and U = 4·W a layer of attention and MLP keeps
// 4·W + 4·W + 8·W + H + 4 elements a token, whatever the context.
//
// Products with more than 128 rows pack the weights of a layer first, once for
// all rows, which takes as much memory again during the call.
//
// Results do not depend on the number of threads: products are cut into tiles
// by their sizes alone, no sum is shared between tiles, and a row's output
// depends on no other row.
package nn
