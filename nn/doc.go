// Package nn implements the layers of a transformer, each with Forward and Backward, and
// cross-entropy.
//
// A layer holds its weights only. Forward saves what Backward needs in a trace that the
// caller owns, so that one layer can serve several calls. Matrices have one row for each
// token: row b·N+n is token n of batch row b. Forward sets its output unless its comment
// says that it adds; Backward adds to the gradients of weights.
//
// A layer saves this many elements a token for Backward, where W is the width of the model,
// with H heads of width D, Hkv key heads and U hidden units:
//
//	Embedding   nothing but the token ids
//	LayerNorm   2 (mean and reciprocal deviation), and the caller's input, W
//	RMSNorm     as LayerNorm
//	Linear      the caller's input
//	Attention   2·H·D + 2·Hkv·D + H (queries, keys, values, outputs, denominators)
//	MLP         2·U (before and after the activation)
//	GatedMLP    3·U (gate, up, and their product)
//	Conv        the caller's input
//	mamba-2     7·H·P + 6·G·S + 4·H for values of width P and G groups with a state of S:
//	            projections, their convolution before and after SiLU, steps, decays,
//	            values, outputs, the input of the last projection, denominators
//	retnet      2·W + 4·H·P + H for values of width P: queries, keys, values, gates,
//	            outputs, the input of the last projection, denominators; and 2·⌊D/2⌋
//	            rotations for each position of a sequence
//	hyena       W·(4·K+2) with K gates, each after a long convolution; and filters for
//	            each position of a sequence, shared by the batch
//	crate       2·H·D + H (projections, outputs, denominators)
//	ISTA        2·W (the input minus its reconstruction by the dictionary, and the output)
//	loss        nothing: logits are recomputed
//
// A residual block x + f(norm(x)) therefore keeps x, norm(x), 2 numbers and what f saves.
// With Hkv = H and U = 4·W a layer of attention and MLP keeps 4·W + 4·W + 8·W + H + 4
// elements a token, whatever the context.
//
// Products with more than 128 rows first pack the weights of a layer, once for all rows.
// This doubles the memory of the weights during the call.
//
// Results do not depend on the number of threads: products are cut into tiles by their sizes
// alone, no sum is shared between tiles, and the output of a row depends on no other row.
package nn
