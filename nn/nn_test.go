package nn

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// source draws the numbers of a test.
type source struct {
	key  rng.Key
	next uint64
}

func (s *source) normal() float64 {
	s.next++
	return s.key.Normal(s.next)
}

// matrix returns random elements within a wider matrix, so that strides differ
// from columns.
func matrix(s *source, rows, cols int) tensor.Mat {
	m := tensor.NewMat(rows, cols+3)
	for i := range m.Data {
		m.Data[i] = float(s.normal())
	}
	return viewColumns(m, 2, 2+cols)
}

// weight returns a random weight, with a gradient that is not 0 from before.
func weight(s *source, shape ...int) *param.Param {
	var set param.Set
	p := set.New("w", true, shape...)
	for i := range p.Data {
		p.Data[i], p.Grad[i] = float(s.normal()), 1
	}
	return p
}

// flat returns the elements of m without those between its rows.
func flat(m tensor.Mat) []float {
	var x []float
	for i := range m.Rows {
		x = append(x, m.Row(i)...)
	}
	return x
}

// Element by element, and in single precision within the roundings of a sum.
func TestLinearIsItsDefinition(t *testing.T) {
	for _, c := range []struct{ rows, out, in int }{{1, 1, 1}, {3, 5, 7}, {1, 67, 33}, {197, 65, 3}, {7, 259, 300}} {
		s := &source{key: rng.New(3)}
		l := Linear{W: weight(s, c.out, c.in), B: weight(s, c.out)}
		x, y := matrix(s, c.rows, c.in), matrix(s, c.rows, c.out)
		for _, acc := range []bool{false, true} {
			before := flat(y)
			l.Forward(y, x, acc)
			for i, got := range flat(y) {
				r, o := i/c.out, i%c.out
				want, size := float64(l.B.Data[o]), math.Abs(float64(l.B.Data[o]))
				if acc {
					want, size = want+float64(before[i]), size+math.Abs(float64(before[i]))
				}
				for j, v := range x.Row(r) {
					term := float64(v) * float64(l.W.Data[o*c.in+j])
					want, size = want+term, size+math.Abs(term)
				}
				// n roundings of a sum err by at most n·u·Σ|terms|.
				if d := math.Abs(float64(got) - want); !(d <= float64(c.in+3)*0x1p-24*size) {
					t.Fatalf("%v acc=%t: y[%d,%d] is %v, want %v", c, acc, r, o, got, want)
				}
			}
		}
	}
}
