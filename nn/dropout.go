package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Dropout sets elements to 0 at a rate and divides the other elements by 1 - rate
// (Srivastava et al. 2014). The key alone decides the elements, so nothing is saved for
// Backward.
type Dropout struct {
	Rate float64 // 0 ≤ Rate < 1
	Key  rng.Key
}

const (
	dropWork = 32 // cost of drawing an element, in operations
	dropWord = 4  // elements that one draw of the key decides
)

// DropoutForward sets y [rows,width] to x [rows,width] after dropout, plus base
// [rows,width] if base has rows. y may be x or base.
func DropoutForward(d Dropout, y, base, x tensor.Mat) {
	par.Run(x.Rows, normRows, dropWork*float64(x.Rows)*float64(x.Cols), dropForward{d, y, base, x})
}

type dropForward struct {
	d          Dropout
	y, base, x tensor.Mat
}

func (f *dropForward) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		y, x := f.y.Row(i), f.x.Row(i)
		if f.base.Rows == 0 {
			eachFactor(f.d, i, len(x), func(j int, factor float) { y[j] = factor * x[j] })
			continue
		}
		base := f.base.Row(i)
		eachFactor(f.d, i, len(x), func(j int, factor float) { y[j] = base[j] + factor*x[j] })
	}
}

// DropoutBackward sets dx [rows,width] to the gradient dy [rows,width] times the
// factors of DropoutForward. dx may be dy.
func DropoutBackward(d Dropout, dx, dy tensor.Mat) {
	DropoutForward(d, dx, tensor.Mat{}, dy)
}

// eachFactor calls do with the factor of each element of row i.
func eachFactor(d Dropout, i, width int, do func(j int, factor float)) {
	least := uint32(min(math.Round(d.Rate*0x1p32), math.MaxUint32))
	kept := float(1 / (1 - d.Rate))
	words := (width + dropWord - 1) / dropWord
	for w := range words {
		for n, r := range d.Key.Uint32s(uint64(i)*uint64(words) + uint64(w)) {
			j := w*dropWord + n
			if j == width {
				break
			}
			factor := kept
			if r < least {
				factor = 0
			}
			do(j, factor)
		}
	}
}
