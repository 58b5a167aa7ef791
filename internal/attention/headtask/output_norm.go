package headtask

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// Spec.OutputNorm multiplies the output of a query that sees n keys by √(n/D).
// Every form counts the keys that its queries see; a state counts by the sum of
// the constant feature, which is 1 for every key.

// outputFactor is what the output of a query over n keys is multiplied by.
func (u *Geometry) outputFactor(n float64) float { return float(math.Sqrt(n / float64(u.D))) }

// countSeen returns how many keys query i sees.
func (u *Geometry) countSeen(i int) int {
	n := u.CountVisible(i)
	if u.Mask == nil && u.Keep == nil {
		return n
	}
	count := 0
	for j := range n {
		if u.HasKey(j) && (u.Keep == nil || u.Keep[i*u.KeepRow+j]) {
			count++
		}
	}
	return count
}

// CountClosedKeys returns the number of keys in closed chunks.
func (s *Scan) CountClosedKeys() float64 {
	if !s.Moments.NonEmpty {
		return 0
	}
	n := float64(s.Moments.Z[0])
	if s.Moments.Residual != nil {
		n += float64(s.Moments.Residual.Z[0])
	}
	return n
}

// CountOpenKeys returns the number of unmasked keys among the first n tokens of the open chunk.
func (s *Scan) CountOpenKeys(n int) int {
	if !s.hasMasked {
		return n
	}
	count := 0
	for _, exists := range s.Valid[:n] {
		if exists {
			count++
		}
	}
	return count
}

// normaliseOver multiplies over, the factors of outputs, by the output norm. Query r
// sees keys up to diag+r of the open chunk.
func (s *Scan) normaliseOver(over []float, diag int) {
	closed := s.CountClosedKeys()
	n := min(max(diag, 0), s.Count)
	count := s.CountOpenKeys(n)
	for r := range over {
		for ; n < min(diag+r+1, s.Count); n++ {
			if s.Valid[n] {
				count++
			}
		}
		over[r] *= s.Task.outputFactor(closed + float64(count))
	}
}

// WithoutOutputNorm replaces the outputs and their gradients by those of the same mechanism
// without Spec.OutputNorm. before is the number of keys before the sequence's own keys.
func (u *Task) WithoutOutputNorm(before float64) {
	factors := arena.Take[float](u.Arena, u.N)
	count, j := 0, 0
	for i := range factors {
		if u.Keep != nil {
			count = u.countSeen(i)
		}
		for ; u.Keep == nil && j < u.CountVisible(i); j++ {
			if u.HasKey(j) {
				count++
			}
		}
		factors[i] = u.outputFactor(before + float64(count))
	}
	scaled := func(x tensor.Mat, inverse bool) tensor.Mat {
		y := tensor.Mat{Data: u.TakeScratch(u.N * u.Dv), Rows: u.N, Cols: u.Dv, Stride: u.Dv}
		for i, f := range factors {
			if inverse && f > 0 {
				f = 1 / f
			}
			u.Table.Scale(y.Row(i), f, x.Row(i))
		}
		return y
	}
	for g := range u.Q {
		u.DO[g], u.O[g] = scaled(u.DO[g], false), scaled(u.O[g], true)
	}
}
