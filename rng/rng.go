package rng

import (
	"math"
	"math/bits"
)

// Key selects one stream of 2⁶⁴ numbers.
type Key struct{ k0, k1, stream uint32 }

// New returns the key of a seed.
func New(seed uint64) Key { return Key{k0: uint32(seed), k1: uint32(seed >> 32)} }

// Fold returns a key derived from k and i, with an independent stream.
func (k Key) Fold(i uint64) Key {
	x := philox4x32([4]uint32{uint32(i), uint32(i >> 32), k.stream, 1}, k.k0, k.k1)
	return Key{x[0], x[1], x[2]}
}

// Uint64 returns number i: 64 uniform bits.
func (k Key) Uint64(i uint64) uint64 {
	x := philox4x32([4]uint32{uint32(i), uint32(i >> 32), k.stream, 0}, k.k0, k.k1)
	return uint64(x[1])<<32 | uint64(x[0])
}

// Uint32s returns four words of 32 uniform bits at the cost of one number. The first two
// are the words of Uint64(i).
func (k Key) Uint32s(i uint64) [4]uint32 {
	return philox4x32([4]uint32{uint32(i), uint32(i >> 32), k.stream, 0}, k.k0, k.k1)
}

// PhiloxKey returns the Philox key and stream of k. Number i uses the counter (i mod 2³²,
// i/2³², stream, 0).
func (k Key) PhiloxKey() (k0, k1, stream uint32) { return k.k0, k.k1, k.stream }

// Float64 returns number i, uniform in [0, 1).
func (k Key) Float64(i uint64) float64 { return float64(k.Uint64(i)>>11) * 0x1p-53 }

// Intn returns number i, uniform in 0 ≤ x < n up to a bias of n/2⁶⁴. It panics if n is
// not positive.
func (k Key) Intn(i uint64, n int) int {
	if n <= 0 {
		panic("rng: Intn of a number that is not positive")
	}
	hi, _ := bits.Mul64(k.Uint64(i), uint64(n))
	return int(hi)
}

// Normal returns number i of the standard normal distribution (Box and Muller 1958,
// cosine branch).
func (k Key) Normal(i uint64) float64 {
	x := philox4x32([4]uint32{uint32(i), uint32(i >> 32), k.stream, 2}, k.k0, k.k1)
	u := (float64(uint64(x[1])<<32|uint64(x[0])) + 1) * 0x1p-64 // (0, 1]
	v := float64(uint64(x[3])<<32|uint64(x[2])) * 0x1p-64
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// philox4x32 applies ten rounds of Philox4x32 to the counter c (Salmon et al. 2011,
// section 4).
func philox4x32(c [4]uint32, k0, k1 uint32) [4]uint32 {
	for range 10 {
		h0, l0 := bits.Mul32(0xD2511F53, c[0])
		h1, l1 := bits.Mul32(0xCD9E8D57, c[2])
		c = [4]uint32{h1 ^ c[1] ^ k0, l1, h0 ^ c[3] ^ k1, l0}
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return c
}
