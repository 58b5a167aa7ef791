package attention

import "github.com/farfield-ml/farfield/internal/kernel"

// Carry is how a state adds the sums of a chunk to those of the chunks before.
// The sums of a chunk are taken from zero in the element type either way.
type Carry int

const (
	// Rounded adds in the element type. Each chunk is a rounding of the whole
	// sum, and those of a token that repeats itself all go one way.
	Rounded Carry = iota
	// Compensated keeps beside each sum what its roundings left out, twice the
	// memory, so that a stream of any length has the error of a chunk. What is
	// read is the rounding of the whole: reading costs no more.
	Compensated
)

func (c Carry) String() string {
	if c == Compensated {
		return "compensated"
	}
	return "rounded"
}

// low is the lower half of compensated moments, laid out as the moments are.
type low[T kernel.Float] struct{ s, z []T }

// halves returns the moments and, where they have one, their lower half.
func (s *moments[T]) halves() []low[T] {
	upper := low[T]{s.s, s.z}
	if s.low == nil {
		return []low[T]{upper}
	}
	return []low[T]{upper, *s.low}
}

// compensate gives moments a lower half, in memory from take.
func (s *moments[T]) compensate(take func(n int) []T) {
	s.low = &low[T]{take(len(s.s)), take(len(s.z))}
}

// carry adds rows [k, s.ld] and sums [k] to the moments of k features from f
// on, which have a lower half.
func (s *moments[T]) carry(t *kernel.Table[T], f int, rows, sums []T) {
	k := len(sums)
	hi, lo := s.s[f*s.ld:][:k*s.ld], s.low.s[f*s.ld:][:k*s.ld]
	hiz, loz := s.z[f:][:k], s.low.z[f:][:k]
	if !s.some {
		copy(hi, rows)
		copy(hiz, sums)
		clear(lo)
		clear(loz)
		return
	}
	t.AddCarry(hi, lo, rows)
	t.AddCarry(hiz, loz, sums)
}

// set makes the moments those of from, which have the same shape.
func (s *moments[T]) set(from *moments[T]) {
	if s.some = from.some; !s.some {
		return
	}
	copy(s.s, from.s)
	copy(s.z, from.z)
	if s.low == nil {
		return
	}
	if from.low == nil {
		clear(s.low.s)
		clear(s.low.z)
		return
	}
	copy(s.low.s, from.low.s)
	copy(s.low.z, from.low.z)
}
