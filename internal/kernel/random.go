package kernel

import "github.com/farfield-ml/farfield/rng"

// numberBytes is the bytes that a number of a key has for Uniform.
const numberBytes = 16

func uniformGo[T Float](dst []T, factor T, key rng.Key, i uint64) {
	for ; len(dst) > 0; i++ {
		part := dst[:min(len(dst), numberBytes)]
		words := key.Uint32s(i)
		for c := range part {
			x := words[c/4] >> (c % 4 * 8) & 0xff
			part[c] = factor * T(2*int(x)-255)
		}
		dst = dst[len(part):]
	}
}
