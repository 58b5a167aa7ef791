//go:build (amd64 || arm64) && !purego

package kernel

import "github.com/farfield-ml/farfield/rng"

// wrapUniform draws groups of 16 numbers whose lower counter words have no carry, and the rest in Go.
func wrapUniform(f func(groups int, dst *float32, factor float32, lo, hi, stream, k0, k1 uint32)) func(dst []float32, factor float32, key rng.Key, i uint64) {
	const group = 16
	return func(dst []float32, factor float32, key rng.Key, i uint64) {
		k0, k1, stream := key.PhiloxKey()
		for len(dst) >= group*numberBytes {
			groups := min(uint64(len(dst)/(group*numberBytes)), (1<<32-uint64(uint32(i)))/group)
			n := int(groups) * group
			if groups > 0 {
				f(int(groups), pointerTo(dst, n*numberBytes), factor, uint32(i), uint32(i>>32), stream, k0, k1)
			} else {
				n = group
				uniformGo(dst[:n*numberBytes], factor, key, i)
			}
			dst, i = dst[n*numberBytes:], i+uint64(n)
		}
		uniformGo(dst, factor, key, i)
	}
}
