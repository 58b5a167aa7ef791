package task

import "math"

// paddedSource has samples of one length.
type paddedSource struct{ Source }

// Pad returns src with every sample as long as the longest that there may be, each
// part of a pair by itself: tokens 0, or numbers 0, of which nothing is asked,
// follow it, and nothing tells them from the sample. A model sees them like any
// other, in attention and in the mean of its outputs. The kernel models of the Long
// Range Arena were trained so: its code drops their mask.
func Pad(src Source) Source { return paddedSource{src} }

func (t paddedSource) Sample(s *Sample, split Split, i int) error {
	if err := t.Source.Sample(s, split, i); err != nil {
		return err
	}
	spec := t.Spec()
	length := spec.Length / spec.Parts
	if spec.Parts == 2 {
		second := append([]int32(nil), s.Tokens[s.Cut:]...)
		s.Tokens = padSlice(s.Tokens[:s.Cut], length, 0)
		s.Tokens = padSlice(append(s.Tokens, second...), 2*length, 0)
		s.Cut = length
		return nil
	}
	if spec.Vocab > 0 {
		s.Tokens = padSlice(s.Tokens, length, 0)
	} else {
		s.Values = padSlice(s.Values, length*spec.Channels, 0)
	}
	switch spec.Kind {
	case Labels, Next:
		s.Labels = padSlice(s.Labels, length, -1)
	case Trace:
		s.Targets = padSlice(s.Targets, length*spec.Outputs, float32(math.NaN()))
	}
	return nil
}

// padSlice appends x until there are n.
func padSlice[T any](list []T, n int, x T) []T {
	for len(list) < n {
		list = append(list, x)
	}
	return list
}
