package model

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
)

// The rotations of a stack: of layers without a window, and of layers with one.
const (
	globalRotation = iota
	localRotation
	rotationKinds
)

// ropes holds the rotations of a range of positions by kind; nil: none.
type ropes [rotationKinds]*attention.Rope

// fill sets the tables to n positions from start on, in their own memory.
func (r *ropes) fill(f *[rotationKinds]attention.Frequencies, start int64, n int) ropes {
	for i := range f {
		if f[i].Pairs == nil {
			continue
		}
		if r[i] == nil {
			r[i] = new(attention.Rope)
		}
		r[i].Fill(&f[i], start, n)
	}
	return *r
}

// rotations are the frequencies of a stack.
type rotations struct {
	plain   [rotationKinds]attention.Frequencies // no pairs: none
	scaling *RopeScaling                         // of the frequencies that follow the length of a sequence; nil: none do
	width   int                                  // channels that are rotated, if it is even
	pairs   int                                  // of channels
	theta   float64
}

// rotations returns the frequencies of rotations by kind. Layers with a window have
// their own where LocalRopeTheta is set.
func (c Config) rotations() (r rotations) {
	if c.Positions != Rotary {
		return r
	}
	r.width, r.pairs, r.theta = c.rotatedWidth(), c.rotatedPairs(), c.ropeBase()
	r.plain[globalRotation] = r.frequencies(r.theta)
	if s := c.RopeScaling; s != nil {
		s.scale(&r.plain[globalRotation], &r, s.OriginalContext)
		if s.followsLength() {
			r.scaling = s
		}
	}
	if c.LocalRopeTheta != 0 {
		r.plain[localRotation] = r.frequencies(c.LocalRopeTheta)
	}
	return r
}

// frequencies returns the unscaled frequencies of a base.
func (r *rotations) frequencies(theta float64) attention.Frequencies {
	f := attention.NewFrequencies(r.width, theta)
	if len(f.Pairs) < r.pairs {
		f.Pairs = append(f.Pairs, math.Pow(theta, -2*float64(r.width/2)/float64(r.width)))
	}
	return f
}

// lengthClass returns the class of sequences of n tokens. Sequences of one class have the same
// frequencies, those of class 0 the plain ones.
func (r *rotations) lengthClass(n int64) int64 {
	switch {
	case r.scaling == nil || n <= int64(r.scaling.OriginalContext):
		return 0
	case r.scaling.Kind == LongScaling:
		return int64(r.scaling.OriginalContext) + 1
	}
	return n
}

// ofClass returns the frequencies of a class of lengths.
func (r *rotations) ofClass(class int64) [rotationKinds]attention.Frequencies {
	f := r.plain
	if class > 0 {
		f[globalRotation] = r.frequencies(r.theta)
		r.scaling.scale(&f[globalRotation], r, int(class))
	}
	return f
}

// batchClass returns the length class of b sequences of n positions, whose valid ones lens and mask
// select. It returns an error if the sequences are of different classes.
func (r *rotations) batchClass(b, n int, lens []int64, mask []bool) (class int64, err error) {
	if r.scaling == nil || n <= r.scaling.OriginalContext {
		return 0, nil
	}
	first := int64(-1)
	for i := range b {
		length := int64(n)
		if lens != nil {
			length = lens[i]
		}
		for mask != nil && length > 0 && !mask[i*n+int(length)-1] {
			length--
		}
		switch of := r.lengthClass(length); {
		case length == 0: // nothing is computed
		case first < 0:
			first, class = length, of
		case of != class:
			return 0, fmt.Errorf("rope_scaling: %s rotates a sequence of %d tokens otherwise than one of %d, original_context is %d; put them into batches of their own", r.scaling.Kind, first, length, r.scaling.OriginalContext)
		}
	}
	return class, nil
}

// rotationKind returns the kind of rotation of layer i.
func (c Config) rotationKind(i int) int {
	if c.LocalRopeTheta != 0 && c.layerWindow(i) > 0 {
		return localRotation
	}
	return globalRotation
}

// followsLength reports whether the frequencies depend on the length of a sequence.
func (r *RopeScaling) followsLength() bool { return r.Kind == LongScaling || r.Kind == DynamicScaling }

// scale scales the frequencies f, which by.frequencies(by.theta) returned, for a sequence of n
// tokens.
func (r *RopeScaling) scale(f *attention.Frequencies, by *rotations, n int) {
	d, theta := by.width, by.theta
	switch r.Kind {
	case DynamicScaling:
		if n > r.OriginalContext {
			growth := r.Factor*float64(n)/float64(r.OriginalContext) - (r.Factor - 1)
			*f = by.frequencies(theta * math.Pow(growth, float64(d)/float64(d-2)))
		}
		return
	case LongScaling:
		factors := r.ShortFactors
		if n > r.OriginalContext {
			factors = r.LongFactors
		}
		for j, x := range factors {
			f.Pairs[j] /= x
		}
		f.Factor = r.AttentionFactor
		if f.Factor == 0 && r.Factor > 1 {
			f.Factor = math.Sqrt(1 + math.Log(r.Factor)/math.Log(float64(r.OriginalContext)))
		}
		return
	}
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
