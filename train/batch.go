package train

import (
	"math"
	"slices"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train/data"
)

// packedBatch is a batch of samples, padded to one length.
type packedBatch struct {
	model.Batch
	lengths []int64 // memory for Lens, which is nil without padding
	types   []int32 // memory for Types, which is nil where all are 0
	counted int     // targets that are not ignored
}

// collector combines samples into batches.
type collector struct {
	spec    data.Spec
	samples []data.Sample
}

// PackBatch packs samples of a task into one batch for a model, and pads them to the longest
// sample.
func PackBatch(spec data.Spec, samples ...data.Sample) *model.Batch {
	b := new(packedBatch)
	(&collector{spec: spec}).packBatch(b, samples)
	return &b.Batch
}

// sampleBuffer returns n samples in memory that the collector keeps.
func (c *collector) sampleBuffer(n int) []data.Sample {
	if more := n - len(c.samples); more > 0 {
		c.samples = append(c.samples, make([]data.Sample, more)...)
	}
	return c.samples[:n]
}

// packBatch sets b to samples, padded to the longest of them. b.Lens holds the lengths,
// and is nil if no sample is padded.
func (c *collector) packBatch(b *packedBatch, samples []data.Sample) {
	s := &c.spec
	b.B, b.N = len(samples)*s.Sequences(), 0
	b.Tokens, b.Values, b.Targets, b.Numbers = b.Tokens[:0], b.Values[:0], b.Targets[:0], b.Numbers[:0]
	b.lengths, b.Lens, b.types, b.Types, b.counted = b.lengths[:0], nil, b.types[:0], nil, 0
	for i := range samples {
		for part := range s.Sequences() {
			from, to := c.partBounds(&samples[i], part)
			b.lengths = append(b.lengths, int64(to-from))
			b.N = max(b.N, to-from)
		}
	}
	if slices.ContainsFunc(samples, func(x data.Sample) bool { return len(x.Types) > 0 }) {
		for i := range samples {
			b.types = append(b.types, samples[i].Types...)
			b.types = appendRepeated(b.types, (i+1)*b.N-len(b.types), 0)
		}
		b.Types = b.types
	}
	nan := float32(math.NaN())
	for i := range samples {
		x := &samples[i]
		for part := range s.Sequences() {
			from, to := c.partBounds(x, part)
			padding := b.N - (to - from)
			if s.Vocab > 0 {
				b.Tokens = appendRepeated(append(b.Tokens, x.Tokens[from:to]...), padding, 0)
			} else {
				b.Values = appendRepeated(append(b.Values, x.Values[from*s.Channels:to*s.Channels]...), padding*s.Channels, 0)
			}
			switch s.Kind {
			case data.Labels, data.Next:
				b.Targets = appendRepeated(append(b.Targets, x.Labels...), padding, -1)
			case data.Trace, data.Level:
				b.Numbers = appendRepeated(append(b.Numbers, x.Targets...), padding*s.Outputs, nan)
			}
		}
		switch s.Kind {
		case data.Class:
			b.Targets = append(b.Targets, x.Class)
		case data.Regression:
			b.Numbers = append(b.Numbers, x.Targets...)
		}
	}
	if len(b.lengths) > 0 && slices.Min(b.lengths) < int64(b.N) {
		b.Lens = b.lengths
	}
	for _, y := range b.Targets {
		if y >= 0 {
			b.counted++
		}
	}
	if s.Outputs > 0 {
		for row := range slices.Chunk(b.Numbers, s.Outputs) {
			if slices.ContainsFunc(row, func(x float32) bool { return x == x }) {
				b.counted++
			}
		}
	}
}

// countPositions returns the number of positions of a sample, both parts together.
func (c *collector) countPositions(s *data.Sample) int {
	if c.spec.Vocab == 0 {
		return len(s.Values) / c.spec.Channels
	}
	return len(s.Tokens)
}

// partBounds returns the positions from ≤ n < to of one part of a sample.
func (c *collector) partBounds(s *data.Sample, part int) (from, to int) {
	n := c.countPositions(s)
	switch {
	case c.spec.Sequences() == 1:
		return 0, n
	case part == 0:
		return 0, s.Cut
	}
	return s.Cut, n
}

// appendRepeated appends x to list n times.
func appendRepeated[T any](list []T, n int, x T) []T {
	for range n {
		list = append(list, x)
	}
	return list
}
