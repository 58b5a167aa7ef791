package rng

import "math/bits"

// permuteRounds is more than the four that make a Feistel network of random
// functions a random permutation (Luby and Rackoff 1988).
const permuteRounds = 6

// Permute returns where 0 ≤ i < n comes in a random order of the numbers below n:
// another number for every i, without a list of them. It is a Feistel network over
// the next power of four, walked until it is below n (Black and Rogaway 2002,
// section 3). It panics if i is not below n.
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
