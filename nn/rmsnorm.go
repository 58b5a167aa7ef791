package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// RMSNorm divides every row by its root mean square √(Σ x²/width + Eps) and multiplies it
// by the gain, or with Offset by 1 plus the gain (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4).
type RMSNorm struct {
	Gain   *param.Param // [width]
	Eps    tensor.Float
	Offset bool
	// Residual adds the row itself: y = x + gain∘x·factor.
	Residual bool
}

// Affine returns the gain, or with Offset a new slice of 1 plus the gain, and no bias. The mean
// of a row is not subtracted.
func (n *RMSNorm) Affine() (gain, bias []tensor.Float, centred bool) {
	return n.appliedGain(make([]float, len(n.Gain.Data))), nil, false
}

// appliedGain returns the factors of channels. It may write them to room [width].
func (n *RMSNorm) appliedGain(room []float) []float {
	if !n.Offset {
		return n.Gain.Data
	}
	for j, g := range n.Gain.Data {
		room[j] = 1 + g
	}
	return room
}

// Forward sets y [rows,width] from x [rows,width], which may be y. It sets stats
// [2·rows]: 0 and the factor 1/√(mean square + Eps) for each row.
func (n *RMSNorm) Forward(y, x tensor.Mat, stats []tensor.Float) {
	if f := (rmsForward{n, y, x, stats}); x.Rows <= rowsForward {
		f.RunRange(0, x.Rows)
	} else {
		par.Run(x.Rows, rowsForward, normWork*float64(x.Rows)*float64(x.Cols), f)
	}
}

type rmsForward struct {
	n     *RMSNorm
	y, x  tensor.Mat
	stats []float
}

func (f *rmsForward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	t, gain := kernel.Active[float](), f.n.appliedGain(arena.Take[float](ar, f.x.Cols))
	var scaled []float
	if f.n.Residual {
		scaled = arena.Take[float](ar, f.x.Cols)
	}
	for i := i0; i < i1; i++ {
		y, x := f.y.Row(i), f.x.Row(i)
		factor := rmsFactor(t, x, float64(f.n.Eps))
		f.stats[2*i], f.stats[2*i+1] = 0, factor
		if f.n.Residual {
			t.Scale(scaled, factor, x)
			t.Mul(scaled, scaled, gain)
			t.Add(y, x, scaled)
			continue
		}
		t.Scale(y, factor, x)
		t.Mul(y, y, gain)
	}
}

// rmsFactor returns 1/√(mean square + eps) of x [width].
func rmsFactor(t *kernel.Table[float], x []float, eps float64) float {
	square := float64(t.Dot(x, x))
	if square-square == 0 {
		return float(1 / math.Sqrt(square/float64(len(x))+eps))
	}
	// The squares leave the range of the element type.
	largest := 0.0
	for _, v := range x {
		largest = max(largest, math.Abs(float64(v)))
	}
	square = 0
	for _, v := range x {
		square += float64(v) / largest * (float64(v) / largest)
	}
	return float(1 / math.Sqrt(square/float64(len(x))+eps/largest/largest) / largest)
}

// Backward adds to dx [rows,width] and to the gradient of the gain, from dy [rows,width].
// x and stats are the arguments of Forward. dx overlaps no other. With r the factor of a row,
//
//	dx = r·(dy∘gain) - x·r³·Σ(dy∘gain∘x)/width, with Residual + dy
func (n *RMSNorm) Backward(dx, dy, x tensor.Mat, stats []tensor.Float) {
	ar := arena.Acquire()
	defer ar.Release()
	pieces := (x.Rows + normRows - 1) / normRows
	parts := viewMatrix(arena.TakeZeros[float](ar, pieces*x.Cols), pieces, x.Cols) // of the gain's gradient
	par.Run(x.Rows, normRows, 2*normWork*float64(x.Rows)*float64(x.Cols), rmsBackward{n, dx, dy, x, parts, stats})
	addRows(n.Gain.Grad, parts)
}

type rmsBackward struct {
	n                *RMSNorm
	dx, dy, x, parts tensor.Mat
	stats            []float
}

func (f *rmsBackward) RunRange(i0, i1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	t, w := kernel.Active[float](), f.x.Cols
	d, dgain := arena.Take[float](ar, w), f.parts.Row(i0/normRows)
	gain := f.n.appliedGain(arena.Take[float](ar, w))
	for i := i0; i < i1; i++ {
		dx, dy, x, factor := f.dx.Row(i), f.dy.Row(i), f.x.Row(i), f.stats[2*i+1]
		t.Mul(d, dy, x)
		t.Axpy(dgain, factor, d)
		t.Mul(d, dy, gain)
		if factor < smallFactor {
			subtractAlong(d, x, float64(factor))
		} else {
			cubed := float64(factor) * float64(factor) * float64(factor)
			along := float64(t.Dot(d, x)) * cubed / float64(w)
			t.Scale(d, factor, d)
			t.Axpy(d, float(-along), x)
		}
		t.Add(dx, dx, d)
		if f.n.Residual {
			t.Add(dx, dx, dy)
		}
	}
}

// smallFactor is the factor below which a row is so large that r³·Σ(dy∘gain∘x) may leave the range
// of float32.
const smallFactor = 0x1p-40

// subtractAlong sets d [width] to r·(d - x̂·mean(d∘x̂)), with x̂ = r·x of a row x [width].
func subtractAlong(d, x []float, r float64) {
	sum := 0.0
	for j, v := range x {
		sum += float64(d[j]) * (r * float64(v))
	}
	mean := sum / float64(len(x))
	for j, v := range x {
		d[j] = float(r * (float64(d[j]) - r*float64(v)*mean))
	}
}
