package stream

import "math/bits"

// CRC-32C of one stretch of bytes after another, from the two: that of the first
// goes on by as many zero bytes as the second has. Each bit is a power of x modulo
// the polynomial, whose highest power is the lowest bit.

// castagnoliPoly is the polynomial without its highest power, reversed.
const castagnoliPoly = 0x82f63b78

// multiplyByX multiplies by x.
func multiplyByX(a uint32) uint32 {
	if a&1 != 0 {
		return a>>1 ^ castagnoliPoly
	}
	return a >> 1
}

// multiplyPolynomials multiplies two polynomials.
func multiplyPolynomials(a, b uint32) uint32 {
	var p uint32
	for ; a != 0; a <<= 1 {
		if bits.LeadingZeros32(a) == 0 {
			p ^= b
		}
		b = multiplyByX(b)
	}
	return p
}

// joinDigest returns the CRC-32C of bytes whose digest is first, followed by n bytes
// whose digest is second.
func joinDigest(first, second uint32, n int64) uint32 {
	power := uint32(1 << 31)  // x⁰
	square := uint32(1 << 23) // x⁸, squared again and again
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiplyPolynomials(power, square)
		}
		square = multiplyPolynomials(square, square)
	}
	return multiplyPolynomials(first, power) ^ second
}

// joinDigests returns the digest of stretches of n bytes each, one behind the other.
func joinDigests(list []uint32, n int64) uint32 {
	var sum uint32
	for _, d := range list {
		sum = joinDigest(sum, d, n)
	}
	return sum
}
