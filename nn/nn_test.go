package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
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

// A row's output does not depend on the rows around it.
func TestRowsDoNotMeet(t *testing.T) {
	s := &source{key: rng.New(5)}
	l := Linear{W: weight(s, 67, 300), B: weight(s, 67)}
	m := mlp{UpProj: Linear{W: weight(s, 45, 67)}, DownProj: Linear{W: weight(s, 67, 45)}}
	n := layerNorm{Gain: weight(s, 67), Eps: 1e-5}
	run := func(x tensor.Mat) tensor.Mat {
		y, z := tensor.NewMat(x.Rows, 67), tensor.NewMat(x.Rows, 67)
		l.Forward(y, x, false)
		n.Forward(y, y, make([]float, 2*x.Rows))
		m.Forward(z, z, y, Scope{}, new(mlpTrace), false)
		return z
	}
	x := matrix(s, 211, 300)
	all := run(x)
	for _, i := range []int{0, 1, 97, 210} {
		if !slices.Equal(run(x.Slice(i, i+1)).Row(0), all.Row(i)) {
			t.Errorf("row %d depends on the rows around it", i)
		}
	}
}

func TestThreadsDoNotChangeBits(t *testing.T) {
	defer par.SetThreads(0)
	run := func(threads int) [][]float {
		par.SetThreads(threads)
		s := &source{key: rng.New(6)}
		m := mlp{
			UpProj:   Linear{W: weight(s, 260, 97), B: weight(s, 260)},
			DownProj: Linear{W: weight(s, 97, 260), B: weight(s, 97)},
		}
		n := layerNorm{Gain: weight(s, 97), Bias: weight(s, 97), Eps: 1e-5}
		x, dy := matrix(s, 1500, 97), matrix(s, 1500, 97)
		y, z := tensor.NewMat(1500, 97), tensor.NewMat(1500, 97)
		dx, dz := tensor.NewMat(1500, 97), tensor.NewMat(1500, 97)
		stats := make([]float, 3000)
		var trace mlpTrace
		n.Forward(y, x, stats)
		m.Forward(z, z, y, Scope{}, &trace, true)
		m.Backward(dz, dy, y, &trace, nil)
		n.Backward(dx, dz, x, stats)
		return [][]float{z.Data, dx.Data, m.UpProj.W.Grad, m.UpProj.B.Grad, m.DownProj.W.Grad, m.DownProj.B.Grad, n.Gain.Grad, n.Bias.Grad}
	}
	one, three := run(1), run(3)
	for i := range one {
		if !slices.Equal(one[i], three[i]) {
			t.Errorf("result %d differs between one and three threads", i)
		}
	}
}

// Logits that overflow every exponential, and one that is certain.
func TestCrossEntropyOfLargeLogits(t *testing.T) {
	x := viewMatrix([]float{1e30, -1e30, 0, 300, 300, 299, 0, 0, 200}, 3, 3)
	losses := make([]float64, 3)
	CrossEntropy(losses, x, []int32{0, 1, 2})
	for i, want := range []float64{0, math.Log(2 + math.Exp(-1)), 0} {
		if d := math.Abs(losses[i] - want); !(d <= 4*0x1p-24) {
			t.Errorf("loss %d is %v, want %v", i, losses[i], want)
		}
	}
	g := viewMatrix([]float{1e30, -1e30, 0}, 1, 3)
	CrossEntropyGrad(g, []int32{0}, 1)
	if !slices.Equal(g.Row(0), []float{0, 0, 0}) {
		t.Errorf("gradient of a certain target is %v", g.Row(0))
	}
}
