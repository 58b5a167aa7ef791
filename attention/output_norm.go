package attention

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// Spec.OutputNorm multiplies the output of a query that sees n keys by √(n/D).
// Every form counts the keys that its queries see; a state counts by the sum of
// the constant feature, which is 1 for every key.

// outputFactor is what the output of a query over n keys is multiplied by.
func (u *headTask[T]) outputFactor(n float64) T { return T(math.Sqrt(n / float64(u.d))) }

// countSeen returns how many keys query i sees.
func (u *headTask[T]) countSeen(i int) int {
	n := u.countVisible(i)
	if u.mask == nil && u.keep == nil {
		return n
	}
	count := 0
	for j := range n {
		if u.hasKey(j) && (u.keep == nil || u.keep[i*u.keepRow+j]) {
			count++
		}
	}
	return count
}

// countClosedKeys returns how many keys the closed chunks had.
func (s *chunkScan[T]) countClosedKeys() float64 {
	if !s.moments.NonEmpty {
		return 0
	}
	n := float64(s.moments.Z[0])
	if s.moments.Residual != nil {
		n += float64(s.moments.Residual.Z[0])
	}
	return n
}

// countOpenKeys returns how many of the first n tokens of the open chunk are keys.
func (s *chunkScan[T]) countOpenKeys(n int) int {
	if !s.hasMasked {
		return n
	}
	count := 0
	for _, exists := range s.valid[:n] {
		if exists {
			count++
		}
	}
	return count
}

// normaliseOver multiplies over, the factors of outputs, by the output norm. Query r
// sees keys up to diag+r of the open chunk.
func (s *chunkScan[T]) normaliseOver(over []T, diag int) {
	closed := s.countClosedKeys()
	n := min(max(diag, 0), s.n)
	count := s.countOpenKeys(n)
	for r := range over {
		for ; n < min(diag+r+1, s.n); n++ {
			if s.valid[n] {
				count++
			}
		}
		over[r] *= s.u.outputFactor(closed + float64(count))
	}
}

// withoutOutputNorm replaces outputs and their gradients by the outputs and gradients
// of the same mechanism without Spec.OutputNorm. before is the number of keys before
// the sequence's own keys.
func (u *headTask[T]) withoutOutputNorm(before float64) {
	factors := arena.Take[T](u.ar, u.n)
	count, j := 0, 0
	for i := range factors {
		if u.keep != nil {
			count = u.countSeen(i)
		}
		for ; u.keep == nil && j < u.countVisible(i); j++ {
			if u.hasKey(j) {
				count++
			}
		}
		factors[i] = u.outputFactor(before + float64(count))
	}
	scaled := func(x tensor.Mat[T], inverse bool) tensor.Mat[T] {
		y := tensor.Mat[T]{Data: u.linear().takeScratch(u.n * u.dv), Rows: u.n, Cols: u.dv, Stride: u.dv}
		for i, f := range factors {
			if inverse && f > 0 {
				f = 1 / f
			}
			u.t.Scale(y.Row(i), f, x.Row(i))
		}
		return y
	}
	for g := range u.q {
		u.do[g], u.o[g] = scaled(u.do[g], false), scaled(u.o[g], true)
	}
}
