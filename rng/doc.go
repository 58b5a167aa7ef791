// Package rng provides counter-based random numbers. Number i of a key is a pure function
// of both, so results do not depend on the order, threads or chunks of the calls.
//
// A Key has 96 bits and 2⁶⁴ numbers; Fold derives further keys. The generator is Philox
// 4×32 with ten rounds (Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3,
// SC11). No function returns an error.
package rng
