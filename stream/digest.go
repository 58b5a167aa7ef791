package stream

import "math/bits"

// CRC-32C of concatenated bytes from two digests: the first digest is advanced by zero
// bytes, one for each byte of the second block. Each bit is a power of x modulo the
// polynomial, with the highest power in the lowest bit.

// castagnoliPoly is the polynomial without its highest power, reversed.
const castagnoliPoly = 0x82f63b78

// multiplyByX multiplies a polynomial by x.
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

// joinDigest returns the CRC-32C of bytes with digest first, followed by n bytes with
// digest second.
func joinDigest(first, second uint32, n int64) uint32 {
	power := uint32(1 << 31)  // x⁰
	square := uint32(1 << 23) // x⁸, squared repeatedly
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiplyPolynomials(power, square)
		}
		square = multiplyPolynomials(square, square)
	}
	return multiplyPolynomials(first, power) ^ second
}

// joinDigests returns the digest of concatenated blocks of n bytes each.
func joinDigests(list []uint32, n int64) uint32 {
	var sum uint32
	for _, d := range list {
		sum = joinDigest(sum, d, n)
	}
	return sum
}
