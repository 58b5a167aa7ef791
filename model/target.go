package model

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/losses"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/tensor"
)

// Loss is the loss of an output, of which Forward returns the mean. The zero value is
// CrossEntropy.
type Loss string

// The losses.
const (
	CrossEntropy Loss = ""          // -log of the probability of a class in the softmax of the outputs
	Squared      Loss = "squared"   // mean of squared differences from numbers
	Logistics    Loss = "logistics" // -log of the probability of a level in a mixture of logistics
)

// targets holds the targets of output rows.
type targets struct {
	loss    Loss
	classes []int32   // [rows], -1 where not counted
	numbers []float32 // [rows,each], NaN where not counted
	each    int
	counted int // rows with at least one counted target
}

// slice returns the targets of rows i0 ≤ i < i1.
func (t *targets) slice(i0, i1 int) targets {
	s := *t
	if t.loss == CrossEntropy {
		s.classes = t.classes[i0:i1]
	} else {
		s.numbers = t.numbers[i0*t.each : i1*t.each]
	}
	return s
}

// hasCounted reports whether a target is counted.
func (t *targets) hasCounted() bool {
	if t.loss == CrossEntropy {
		return slices.ContainsFunc(t.classes, func(y int32) bool { return y >= 0 })
	}
	return slices.ContainsFunc(t.numbers, func(y float32) bool { return y == y })
}

// lossesOf sets dst [rows] to the losses of outputs and overwrites outputs.
func lossesOf(t targets, dst []float64, outputs tensor.Mat) {
	switch t.loss {
	case Squared:
		losses.Squared(dst, outputs, t.numbers)
	case Logistics:
		losses.Logistics(dst, outputs, t.numbers)
	default:
		nn.CrossEntropy(dst, outputs, t.classes)
	}
}

// lossGrad overwrites outputs with scale times the gradient of the sum of their losses.
func lossGrad(t targets, outputs tensor.Mat, scale float) {
	switch t.loss {
	case Squared:
		losses.SquaredGrad(outputs, t.numbers, scale)
	case Logistics:
		losses.LogisticsGrad(outputs, t.numbers, scale)
	default:
		nn.CrossEntropyGrad(outputs, t.classes, scale)
	}
}

// setTargets sets t to the targets of b. Targets of padded positions are not counted.
func (t *targets) setTargets(c *Config, b *Batch) error {
	rows := c.Rows(b.B, b.N)
	t.loss, t.each, t.counted = c.Loss, c.Numbers(), 0
	padded := func(i int) bool {
		return c.Pool == "" && (b.Lens != nil && int64(i%b.N) >= b.Lens[i/b.N] || b.KeyMask != nil && !b.KeyMask[i])
	}
	if t.loss == CrossEntropy {
		if b.Numbers != nil {
			return fault.Fieldf[Batch]("{Numbers}: there are %d, but the targets of this model are classes", len(b.Numbers))
		}
		if err := c.checkClasses(b, rows); err != nil {
			return err
		}
		t.classes = append(t.classes[:0], b.Targets...)
		for i, y := range t.classes {
			if padded(i) {
				t.classes[i] = -1
			} else if y >= 0 {
				t.counted++
			}
		}
		return nil
	}
	if b.Targets != nil {
		return fault.Fieldf[Batch]("{Targets}: there are %d, but the targets of this model are numbers", len(b.Targets))
	}
	if len(b.Numbers) != rows*t.each {
		return fault.Fieldf[Batch]("{Numbers}: has %d elements, %d rows of %d are needed", len(b.Numbers), rows, t.each)
	}
	t.numbers = append(t.numbers[:0], b.Numbers...)
	for i := range rows {
		row, any := t.numbers[i*t.each:][:t.each], false
		for j, x := range row {
			switch {
			case x != x:
			case padded(i):
				row[j] = float32(math.NaN())
			case x-x != 0:
				return fault.Fieldf[Batch]("{Numbers}: row %d has %v", i, x)
			case t.loss == Logistics && !(x >= 0 && x < losses.Levels && x == float32(int(x))):
				return fault.Fieldf[Batch]("{Numbers}: row %d is %v, levels are whole numbers from 0 to %d", i, x, losses.Levels-1)
			default:
				any = true
			}
		}
		if any {
			t.counted++
		}
	}
	return nil
}

// checkClasses returns an error for a class that does not exist.
func (c *Config) checkClasses(b *Batch, rows int) error {
	if c.Pool == "" {
		return checkTokens("{Targets}", b.Targets, b.B, b.N, c.outputSize(), -1)
	}
	if len(b.Targets) != rows {
		return fault.Fieldf[Batch]("{Targets}: has %d elements, %d are needed, one of each output", len(b.Targets), rows)
	}
	for i, y := range b.Targets {
		if y < -1 || int(y) >= c.outputSize() {
			return fault.Fieldf[Batch]("{Targets}: row %d is %d, there are %d classes", i, y, c.outputSize())
		}
	}
	return nil
}
