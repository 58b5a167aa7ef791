package rng

import "math/bits"

// permuteRounds exceeds the four rounds that make a Feistel network of random functions a
// random permutation (Luby and Rackoff 1988).
const permuteRounds = 6

// Permute returns the image of 0 ≤ i < n under a random permutation of the numbers below
// n, without a table. It is a Feistel network over the next power of four, repeated until
// the result is below n (Black and Rogaway 2002, section 3). It panics if i is not below
// n.
func (k Key) Permute(i, n int) int {
	if i < 0 || i >= n {
		panic("rng: Permute of a number that is not below n")
	}
	half := (bits.Len(uint(n-1)) + 1) / 2
	mask := uint64(1)<<half - 1
	x := uint64(i)
	for {
		left, right := x>>half, x&mask
		for round := range uint64(permuteRounds) {
			left, right = right, left^k.Uint64(right*permuteRounds+round)&mask
		}
		if x = left<<half | right; x < uint64(n) {
			return int(x)
		}
	}
}
