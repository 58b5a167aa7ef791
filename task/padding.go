package task

import "math"

// padded has samples of one length.
type padded struct{ Source }

// Pad returns src with every sample as long as the longest that there may be, each
// part of a pair by itself: tokens 0, or numbers 0, of which nothing is asked,
// follow it, and nothing tells them from the sample. A model sees them like any
// other, in attention and in the mean of its outputs. The kernel models of the Long
// Range Arena were trained so: its code drops their mask.
func Pad(src Source) Source { return padded{src} }

func (t padded) Sample(s *Sample, split Split, i int) error {
	if err := t.Source.Sample(s, split, i); err != nil {
		return err
	}
	spec := t.Spec()
	length := spec.Length / spec.Parts
	if spec.Parts == 2 {
		second := append([]int32(nil), s.Tokens[s.Cut:]...)
		s.Tokens = fill(s.Tokens[:s.Cut], length, 0)
		s.Tokens = fill(append(s.Tokens, second...), 2*length, 0)
		s.Cut = length
		return nil
	}
	if spec.Vocab > 0 {
		s.Tokens = fill(s.Tokens, length, 0)
	} else {
		s.Values = fill(s.Values, length*spec.Channels, 0)
	}
	switch spec.Kind {
	case Labels, Next:
		s.Labels = fill(s.Labels, length, -1)
	case Trace:
		s.Targets = fill(s.Targets, length*spec.Outputs, float32(math.NaN()))
	}
	return nil
}

// fill appends x until there are n.
func fill[T any](list []T, n int, x T) []T {
	for len(list) < n {
		list = append(list, x)
	}
	return list
}
