package task

import "math"

// paddedSource pads all samples of a source to one length.
type paddedSource struct{ wrappedSource }

// Pad returns src with every sample padded to the maximum length, both parts of a pair
// separately. The padding is token 0 or the number 0 and has no labels or targets. It is not
// masked: a model reads it in attention and in the mean of its outputs. The kernel models of
// the Long Range Arena were trained in this way, since their code drops the mask.
func Pad(src Source) Source { return paddedSource{wrappedSource{src}} }

// Sample overwrites s with a padded sample. It returns the errors of the source.
func (t paddedSource) Sample(s *Sample, split Split, i int) error {
	if err := t.Source.Sample(s, split, i); err != nil {
		return err
	}
	spec := t.Spec()
	length := spec.Length / spec.Sequences()
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

// padSlice appends x until list has n elements.
func padSlice[T any](list []T, n int, x T) []T {
	for len(list) < n {
		list = append(list, x)
	}
	return list
}
