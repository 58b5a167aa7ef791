package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// A norm takes the size from a row, whatever it is: squares of x·2^80 leave the range of float32,
// and of x·2^126 their sum, too. Outputs stay, and gradients are smaller by the factor.
func TestNormsOfLargeRows(t *testing.T) {
	t.Run(check.Precision, func(t *testing.T) { normsOfLargeRows(t, []int{80, check.Pick(110, 600), check.Pick(122, 1010)}) })
}

func normsOfLargeRows(t *testing.T, exponents []int) {
	const rows, width = 3, 24
	r := rand.New(rand.NewPCG(5, 6))
	weights := func(name string) *param.Param {
		p := &param.Param{Name: name, Shape: []int{width}, Data: make([]float, width), Grad: make([]float, width)}
		for i := range p.Data {
			p.Data[i] = float(1 + r.NormFloat64()/4)
		}
		return p
	}
	row := make([]float64, rows*width)
	dy := tensor.NewMat(rows, width)
	for i := range row {
		row[i], dy.Data[i] = r.NormFloat64(), float(r.NormFloat64())
	}
	copy(row[width:], make([]float64, width)) // equal numbers
	for i := range width {
		row[width+i] = 1.5
	}
	for name, n := range map[string]Norm{
		"layer":  &layerNorm{Gain: weights("g"), Bias: weights("b"), Eps: 1e-5},
		"rms":    &RMSNorm{Gain: weights("g"), Eps: 1e-5},
		"offset": &RMSNorm{Gain: weights("g"), Eps: 1e-5, Offset: true},
	} {
		run := func(exponent int, inPlace bool) (y, dx tensor.Mat) {
			x, stats := tensor.NewMat(rows, width), make([]float, 2*rows)
			for i, v := range row {
				x.Data[i] = float(math.Ldexp(v, exponent))
			}
			y, dx = tensor.NewMat(rows, width), tensor.NewMat(rows, width)
			if inPlace {
				copy(y.Data, x.Data)
				n.Forward(y, y, stats)
			} else {
				n.Forward(y, x, stats)
			}
			n.Backward(dx, dy, x, stats)
			return y, dx
		}
		y, dx := run(40, false) // eps is nothing beside 2^80
		tolerance := 40 * width * float64(epsilonOf())
		for _, e := range exponents {
			for _, inPlace := range []bool{false, true} {
				ye, dxe := run(e, inPlace)
				for i := range y.Data {
					if d := math.Abs(float64(ye.Data[i] - y.Data[i])); !(d <= tolerance) {
						t.Fatalf("%s, 2^%d, in place %t: output %d is %v, want %v", name, e, inPlace, i, ye.Data[i], y.Data[i])
					}
					if i/width == 1 && name == "layer" {
						continue // a row of equal numbers divides by √eps alone
					}
					want := float64(dx.Data[i]) * math.Ldexp(1, 40)
					got := float64(dxe.Data[i]) * math.Ldexp(1, e)
					// Numbers below the normal range lose digits.
					if d := math.Abs(got - want); !(d <= tolerance+math.Ldexp(float64(leastOf()), e)*8) {
						t.Fatalf("%s, 2^%d, in place %t: gradient %d is %v, want %v", name, e, inPlace, i, got, want)
					}
				}
			}
		}
	}
}

// epsilonOf is the distance from 1 to the next number.
func epsilonOf() float {
	e := float(1)
	for 1+e/2 != 1 {
		e /= 2
	}
	return e
}

// leastOf is the smallest number above 0.
func leastOf() float {
	if x := float(math.SmallestNonzeroFloat64); x > 0 {
		return x
	}
	return float(math.SmallestNonzeroFloat32)
}
