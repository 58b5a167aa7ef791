package attention

import (
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// Rope holds rotations of channel pairs (j, j+Half) by position (Su et al.
// 2021, RoFormer, eq. 34; pairs as the halves of a row). Row j of the tables
// rotates key j of a sequence, row i+off its query i, where off is M-N in a
// causal call and 0 otherwise. Positions beyond the first are the caller's: a
// table for tokens that continue a state starts at their absolute position.
type Rope[T tensor.Float] struct {
	Half     int // pairs per row: D/2; the last channel of an odd D stays
	Cos, Sin []T // [rows·Half]
}

// NewRope returns the rotations of positions start ≤ t < start+rows for width
// d, with angles t·theta^(-2j/d). Angles are computed in float64.
func NewRope[T tensor.Float](d int, theta float64, start int64, rows int) *Rope[T] {
	r := &Rope[T]{Half: d / 2}
	r.Cos = make([]T, rows*r.Half)
	r.Sin = make([]T, rows*r.Half)
	r.Fill(d, theta, start)
	return r
}

// Fill sets the rotations of a table to positions from start on.
func (r *Rope[T]) Fill(d int, theta float64, start int64) {
	for j := range r.Half {
		freq := math.Pow(theta, -2*float64(j)/float64(d))
		for i := range r.Rows() {
			s, c := math.Sincos(float64(start+int64(i)) * freq)
			r.Cos[i*r.Half+j], r.Sin[i*r.Half+j] = T(c), T(s)
		}
	}
}

// Rows returns the number of positions in the table.
func (r *Rope[T]) Rows() int {
	if r.Half == 0 {
		return math.MaxInt
	}
	return len(r.Cos) / r.Half
}

// Slice returns the view of rows from i on.
func (r *Rope[T]) Slice(i int) *Rope[T] {
	return &Rope[T]{r.Half, r.Cos[i*r.Half:], r.Sin[i*r.Half:]}
}

// turn rotates x in place by row i, or back with sign -1.
func (r *Rope[T]) turn(x []T, i int, sign T) {
	h := r.Half
	c, s := r.Cos[i*h:][:h], r.Sin[i*h:][:h]
	lo, hi := x[:h], x[h:][:h]
	for j := range lo {
		a, b := lo[j], hi[j]
		sn := sign * s[j]
		lo[j] = a*c[j] - b*sn
		hi[j] = b*c[j] + a*sn
	}
}
