package model

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// The rotations of a stack: of layers without a window, and of layers with one.
const (
	globalRotation = iota
	localRotation
	rotationKinds
)

// ropes holds the rotations of a range of positions by kind; nil: none.
type ropes[T tensor.Float] [rotationKinds]*attention.Rope[T]

// fill sets the tables to n positions from start on, in their own memory.
func (r *ropes[T]) fill(f *[rotationKinds]attention.Frequencies, start int64, n int) ropes[T] {
	for i := range f {
		if f[i].Pairs == nil {
			continue
		}
		if r[i] == nil {
			r[i] = new(attention.Rope[T])
		}
		r[i].Fill(&f[i], start, n)
	}
	return *r
}

// frequencies returns the frequencies of rotations by kind. Layers with a window have
// their own where LocalRopeTheta is set.
func (c Config) frequencies() (f [rotationKinds]attention.Frequencies) {
	if c.Positions != Rotary {
		return f
	}
	d := c.rotatedWidth()
	f[globalRotation] = attention.NewFrequencies(d, c.ropeBase())
	if c.RopeScaling != nil {
		c.RopeScaling.scale(&f[globalRotation], d, c.ropeBase())
	}
	if c.LocalRopeTheta != 0 {
		f[localRotation] = attention.NewFrequencies(d, c.LocalRopeTheta)
	}
	return f
}

// rotationKind returns the kind of rotation of layer i.
func (c Config) rotationKind(i int) int {
	if c.LocalRopeTheta != 0 && c.layerWindow(i) > 0 {
		return localRotation
	}
	return globalRotation
}

// scale scales the frequencies theta^(-2j/d) of the pairs of d channels.
func (r *RopeScaling) scale(f *attention.Frequencies, d int, theta float64) {
	turns := func(freq float64) float64 { return float64(r.OriginalContext) * freq / (2 * math.Pi) }
	var low, high float64 // of the pairs that yarn interpolates
	if r.Kind == YarnScaling {
		pairOf := func(turns float64) float64 { // the pair that turns so often over the original context
			return float64(d) * math.Log(float64(r.OriginalContext)/(turns*2*math.Pi)) / (2 * math.Log(theta))
		}
		low, high = max(math.Floor(pairOf(r.fastBound())), 0), min(math.Ceil(pairOf(r.slowBound())), float64(d-1))
		if low == high {
			high += 0.001
		}
		f.Factor = orDefault(r.AttentionFactor, 1+0.1*math.Log(r.Factor))
	}
	for j, freq := range f.Pairs {
		whole := 1.0 // the part of the frequency that is scaled
		switch r.Kind {
		case Llama3Scaling:
			whole = (r.highBound() - turns(freq)) / (r.highBound() - r.lowBound())
		case YarnScaling:
			whole = (float64(j) - low) / (high - low)
		}
		whole = min(max(whole, 0), 1)
		f.Pairs[j] = whole*freq/r.Factor + (1-whole)*freq
	}
}
