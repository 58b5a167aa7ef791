package kernel

import (
	"slices"
	"testing"
)

func TestStrips(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testStrips[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testStrips[float64]) })
}

// A product has the bits of Gemm, for any grouping of strips.
func testStrips[T Float](t *testing.T, k *Table[T]) {
	r := source()
	for _, n := range []int{1, 16, 30, 64, 65, 200} {
		for _, depth := range []int{0, 1, 37, 384, 401} {
			const m = 3
			b := matrix[T](r, n, depth, depth+2).data
			a := matrix[T](r, m, depth, depth+1).data
			c := matrix[T](r, m, n, n+3)
			s := NewStrips(k, n, depth, b, depth+2)
			for _, acc := range []bool{false, true} {
				want := slices.Clone(c.data)
				Gemm(k, false, true, m, n, depth, a, depth+1, b, depth+2, acc, want, n+3, make([]T, GemmScratch(m, n, depth)))
				half := s.Count() / 2
				s.Multiply(k, half, s.Count(), m, a, depth+1, acc, c.data, n+3, make([]T, StripScratch))
				s.Multiply(k, 0, half, m, a, depth+1, acc, c.data, n+3, make([]T, StripScratch))
				c.intact(t, "Multiply")
				for i := range want {
					if c.data[i] != want[i] && want[i] == want[i] {
						t.Fatalf("n=%d k=%d acc=%t: [%d] is %v, Gemm has %v", n, depth, acc, i, c.data[i], want[i])
					}
				}
			}
		}
	}
}
