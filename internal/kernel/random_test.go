package kernel

import (
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// Numbers equal the bytes of the key, with the same bits in every table, also where a counter carries.
func TestUniform(t *testing.T) { each(t, testUniform) }

func testUniform(t *testing.T, k *Table[float32]) {
	key, factor := rng.New(7).Fold(3), float32(0.0123)
	for _, from := range []uint64{0, 5, 1<<32 - 40, 1<<32 - 16, 1<<63 + 11, 1<<64 - 20} {
		for _, n := range []int{0, 1, 15, 16, 255, 256, 257, 600, 1024, 1500} {
			dst := guard[float32](n, 1)
			k.Uniform(dst.data, factor, key, from)
			dst.intact(t, "Uniform")
			for c, got := range dst.data {
				words := key.Uint32s(from + uint64(c/16))
				x := float32(byte(words[c/4%4] >> (8 * (c % 4))))
				if want := factor * (2*x - 255); got != want {
					t.Fatalf("%d numbers from %d: number %d is %v, want %v", n, from, c, got, want)
				}
			}
		}
	}
}

func BenchmarkUniform(b *testing.B) {
	dst := make([]float32, 1<<13)
	b.SetBytes(int64(4 * len(dst)))
	for b.Loop() {
		Active[float32]().Uniform(dst, 1, rng.New(1), 0)
	}
}
