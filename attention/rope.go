package attention

import (
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Rope is a table of rotations of channel pairs by position (Su et al. 2021, RoFormer, eq. 34).
// Channels j and j+Half make a pair, so the pairs are the two halves of the first 2·Half
// channels; other channels of a row are not changed. Row j of the table rotates key j of a
// sequence, and row i+off rotates query i, where off is M-N in a causal call and 0 otherwise.
// The caller chooses the position of row 0: if tokens continue a state, their table starts at
// their absolute position.
type Rope struct {
	Half     int            // pairs per row, at most D/2
	Cos, Sin []tensor.Float // [rows·Half]
}

// Frequencies holds the angles by which one position rotates each pair of channels.
type Frequencies struct {
	Pairs  []float64 // angle of each pair
	Factor float64   // multiplies sines and cosines; 0: 1
}

// NewFrequencies returns the frequencies theta^(-2j/d) of the pairs j < d/2 of width d.
func NewFrequencies(d int, theta float64) Frequencies {
	f := Frequencies{Pairs: make([]float64, d/2)}
	for j := range f.Pairs {
		f.Pairs[j] = math.Pow(theta, -2*float64(j)/float64(d))
	}
	return f
}

// NewRope returns the rotations of positions start ≤ t < start+rows for width d, with angles
// t·theta^(-2j/d). Frequencies are float64. Sines and cosines are computed from the exact
// product with t, because its rounding error would exceed a float32's at positions of 2^30 and
// beyond.
func NewRope(d int, theta float64, start int64, rows int) *Rope {
	f := NewFrequencies(d, theta)
	r := new(Rope)
	r.Fill(&f, start, rows)
	return r
}

// Fill overwrites the table with rotations of positions start ≤ t < start+rows. It reuses the
// memory of the table if it suffices, and runs on all threads.
func (r *Rope) Fill(f *Frequencies, start int64, rows int) {
	r.Half = len(f.Pairs)
	size := rows * r.Half
	r.Cos, r.Sin = slices.Grow(r.Cos[:0], size)[:size], slices.Grow(r.Sin[:0], size)[:size]
	if r.Half == 0 {
		return
	}
	const sincos = 400 // multiply-adds that take as long as an angle
	factor := f.Factor
	if factor == 0 {
		factor = 1
	}
	par.Run(rows, 128, sincos*float64(size), ropeFill{r, f.Pairs, factor, start})
}

// ropeFill is a table to be filled.
type ropeFill struct {
	rope   *Rope
	pairs  []float64
	factor float64
	start  int64
}

// RunRange computes rows i0 ≤ i < i1.
func (f *ropeFill) RunRange(i0, i1 int) {
	r := f.rope
	for j, freq := range f.pairs {
		for i := i0; i < i1; i++ {
			t := float64(f.start + int64(i))
			angle := t * freq
			s, c := math.Sincos(angle)
			// The rounding error of the angle is less than 2^-12 at positions up to
			// 2^40. The next terms of its sine and cosine vanish.
			x := math.FMA(t, freq, -angle)
			ds, dc := x-float64(x*x*x)/6, 1-float64(x*x)/2
			r.Cos[i*r.Half+j] = tensor.Float(f.factor * (float64(c*dc) - float64(s*ds)))
			r.Sin[i*r.Half+j] = tensor.Float(f.factor * (float64(s*dc) + float64(c*ds)))
		}
	}
}

// checkRope returns an error if the table does not rotate rows of width d, or if sines and
// cosines do not belong together. r may be nil.
func checkRope(r *Rope, d int) error {
	switch {
	case r == nil:
		return nil
	case r.Half > d/2:
		return fmt.Errorf("rope: rotates %d pairs of channels, D is %d", r.Half, d)
	case len(r.Sin) != len(r.Cos):
		return fmt.Errorf("rope: has %d sines, and %d cosines", len(r.Sin), len(r.Cos))
	}
	return nil
}

// Rows returns the number of positions in the table.
func (r *Rope) Rows() int {
	if r.Half == 0 {
		return math.MaxInt
	}
	return len(r.Cos) / r.Half
}

// Slice returns a view of the table from row i on.
func (r *Rope) Slice(i int) *Rope {
	return &Rope{r.Half, r.Cos[i*r.Half:], r.Sin[i*r.Half:]}
}

// RotateRows rotates row i of x [rows,D] by row at+i of the table. With back set it
// rotates in the opposite direction.
func (r *Rope) RotateRows(x tensor.Mat, at int, back bool) {
	for i := range x.Rows {
		lo, hi := x.Row(i)[:r.Half], x.Row(i)[r.Half:]
		cos, sin := r.Cos[(at+i)*r.Half:][:r.Half], r.Sin[(at+i)*r.Half:][:r.Half]
		for j, c := range cos {
			s := sin[j]
			if back {
				s = -s
			}
			a, b := lo[j], hi[j]
			lo[j] = tensor.Float(a*c) - tensor.Float(b*s)
			hi[j] = tensor.Float(a*s) + tensor.Float(b*c)
		}
	}
}
