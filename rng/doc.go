// Package rng is counter-based randomness: the i-th number of a key is a pure
// function of both, so results do not depend on the order, the threads or the
// chunks in which numbers are asked for.
//
// A Key is 96 bits and has 2⁶⁴ numbers; Fold gives keys of keys. The function is
// Philox 4×32 of ten rounds (Salmon et al. 2011, Parallel random numbers: as easy as
// 1, 2, 3, SC11). Nothing here fails.
package rng
