// Package attention is the contract that every mechanism keeps, and the engines
// that keep it: the direct form, which computes every weight, and the linear
// form, which never does. It knows no mechanism by name; package mechanism is
// the catalogue.
//
// Shape letters: B batch, H query heads, Hkv key heads, N queries, M keys, D
// query and key width per head, Dv value width, F packed features, C tokens of
// a chunk.
//
// A Call describes one attention: queries of B·H·N rows of D numbers, keys and values
// of B·Hkv·M rows of D and Dv, and which query sees which key. The weights of a query
// add up to 1 unless its mechanism does not divide; decay is a natural logarithm a
// token. A call whose parts do not fit each other is an error that names the field and
// both values, before anything is written. Numbers are not looked at: what no query
// sees changes no bit, NaN neither.
//
// The direct form is that of Dao et al. (2022, arXiv 2205.14135) on a processor; the
// linear one that of Katharopoulos et al. (2020, arXiv 2006.16236) with the packed
// monomials of docs/math.md. Where outputs are rounded, and how far, is derived in
// docs/numerics.md.
package attention
