// Package attention is the contract that every mechanism keeps: the types of calls, gradients,
// states and plans, and the Spec of a mechanism that weighs pairs of rows. Package factorised
// makes the mechanism of a Spec, package headwise mechanisms of whole heads, and package
// mechanism is the catalogue of both.
//
// Shape letters: B batch, H query heads, Hkv key heads, N queries, M keys, D query and
// key width per head, Dv value width, F packed features, C tokens of a chunk.
//
// A Call describes one attention: queries of B·H·N rows of D numbers, keys and values
// of B·Hkv·M rows of D and Dv, and the mask. The weights of a query add up to 1 unless
// its mechanism does not divide. Decay is a natural logarithm per token. A call whose
// parts do not fit each other gives an error that names the field and both values,
// before anything is written. Numbers are not checked: masked elements change no bit,
// not even NaN.
//
// Outputs and gradients need memory of their own. A call whose output overlaps an input,
// and gradients that overlap one another, are refused; views that only interleave do not
// overlap. Nothing is computed in place.
package attention
