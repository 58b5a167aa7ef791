package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/kernel"
)

func (l *Linear) clone() Linear {
	w := *l.W
	w.Data = slices.Clone(w.Data)
	return Linear{W: &w, B: l.B}
}

// rounded rounds weights to 16 bits.
func (l *Linear) rounded() Linear {
	c := l.clone()
	for i, x := range c.W.Data {
		c.W.Data[i] = float(kernel.WidenHalf(kernel.Half(float32(x))))
	}
	return c
}
