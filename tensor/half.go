package tensor

import "math"

// Numbers of 16 bits are only read. Each of them is exactly a float32.

// BFloat16 returns the number that 16 bits stand for as a bfloat16, the upper
// half of a float32.
func BFloat16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// Float16 returns the number that 16 bits stand for as an IEEE 754 binary16:
// a sign, 5 bits of exponent and 10 of fraction. NaNs keep their bits.
func Float16(bits uint16) float32 {
	sign := uint32(bits>>15) << 31
	exponent, fraction := uint32(bits>>10)&31, uint32(bits)&1023
	switch exponent {
	case 0: // zero or subnormal: a multiple of 2⁻²⁴
		x := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(x) | sign)
	case 31: // infinity or NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// WidenBFloat16 sets dst [n] to the numbers that bits [n] stand for as bfloat16. It
// panics if dst is shorter than bits.
func WidenBFloat16(dst []float32, bits []uint16) {
	dst = dst[:len(bits):len(dst)]
	for i, b := range bits {
		dst[i] = BFloat16(b)
	}
}

// WidenFloat16 sets dst [n] to the numbers that bits [n] stand for as IEEE 754 binary16.
// It panics if dst is shorter than bits.
func WidenFloat16(dst []float32, bits []uint16) {
	dst = dst[:len(bits):len(dst)]
	for i, b := range bits {
		dst[i] = Float16(b)
	}
}
