// Package attention defines what every attention mechanism implements: the types of calls,
// gradients, states and plans, and the Spec of a mechanism whose weights are a function of one
// query row and one key row. Package factorised makes a mechanism from a Spec, package headwise
// makes mechanisms from functions of whole heads, and package mechanism is the catalogue of
// both.
//
// Shape letters: B batch, H query heads, Hkv key heads, N queries, M keys, D query and key
// width per head, Dv value width, F packed features, C tokens of a chunk.
//
// A Call describes one attention: queries [B,H,N,D], keys [B,Hkv,M,D], values [B,Hkv,M,Dv] and
// the mask. The weights of a query add up to 1 unless its mechanism is unnormalised. Decay is
// given as a natural logarithm per token. If parts of a call do not fit each other, the error
// names the field and both values, and nothing is written. The numbers themselves are not
// checked: a masked element has no effect on any bit of the result, even if it is NaN.
//
// Outputs and gradients need memory of their own. A call whose output overlaps an input is
// refused, and so are gradients that overlap one another. Interleaved views that share no
// element do not overlap. Nothing is computed in place.
package attention
