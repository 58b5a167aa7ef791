package task

import (
	"fmt"
	"math"
)

// standardSamples bounds the samples that ChannelMoments reads.
const standardSamples = 4096

// ChannelMoments returns mean [channels] and standard deviation [channels] of the values of up
// to 4096 training samples. A constant channel has deviation 1. It returns an error if
// positions hold tokens or a sample cannot be read.
func ChannelMoments(src Source) (mean, deviation []float64, err error) {
	spec := src.Spec()
	if spec.Channels == 0 {
		return nil, nil, fmt.Errorf("%s: its positions hold tokens, which have no mean", spec.Name)
	}
	mean, deviation = make([]float64, spec.Channels), make([]float64, spec.Channels)
	n := 0.
	// Welford's algorithm avoids the squares of large means.
	var unfit error
	_, err = eachSample(src, Train, standardSamples, func(s *Sample) {
		if unfit == nil {
			_, unfit = spec.Positions(s)
		}
		if unfit != nil {
			return
		}
		for i := 0; i < len(s.Values); i += spec.Channels {
			n++
			for c := range mean {
				x := sampleValue(s, i+c)
				d := x - mean[c]
				mean[c] += d / n
				deviation[c] += d * (x - mean[c])
			}
		}
	})
	if err == nil {
		err = unfit
	}
	for c, squares := range deviation {
		if deviation[c] = math.Sqrt(squares / n); !(deviation[c] > 0) {
			deviation[c] = 1
		}
	}
	return mean, deviation, err
}

// wrappedSource is a source whose samples are changed. It keeps the reports of the source.
type wrappedSource struct{ Source }

// ClassNames returns the names of the classes, or nil if they have none.
func (t wrappedSource) ClassNames() []string {
	if named, ok := t.Source.(ClassNamer); ok {
		return named.ClassNames()
	}
	return nil
}

// Baselines returns the baselines of the source.
func (t wrappedSource) Baselines(n int) ([]Baseline, error) { return Baselines(t.Source, n) }

// CountTruncated returns the number of inputs that are cut, and the number of all inputs. Both are
// 0 if the source does not count them.
func (t wrappedSource) CountTruncated() (cut, all int) {
	if reporter, ok := t.Source.(TruncationReporter); ok {
		return reporter.CountTruncated()
	}
	return 0, 0
}

// standardisedSource standardises the values of a source.
type standardisedSource struct {
	wrappedSource
	mean, scale []float64
}

// Standardise returns src with every value x of channel c replaced by
// (x - mean[c])/deviation[c]; mean and deviation are [channels]. Targets and baselines do not
// change. It returns an error if the lengths do not match the channels if a mean is not
// finite, or if a deviation is not positive and finite.
func Standardise(src Source, mean, deviation []float64) (Source, error) {
	spec := src.Spec()
	if len(mean) != spec.Channels || len(deviation) != spec.Channels || spec.Channels == 0 {
		return nil, fmt.Errorf("%s: %d means and %d deviations for %d channels", spec.Name, len(mean), len(deviation), spec.Channels)
	}
	scale := make([]float64, len(deviation))
	for c, d := range deviation {
		if !(d > 0) || math.IsInf(d, 0) || mean[c]-mean[c] != 0 {
			return nil, fmt.Errorf("%s: channel %d has mean %g and deviation %g", spec.Name, c, mean[c], d)
		}
		scale[c] = 1 / d
	}
	return &standardisedSource{wrappedSource{src}, mean, scale}, nil
}

// Sample overwrites s with a standardised sample. It returns the errors of the source.
func (t *standardisedSource) Sample(s *Sample, split Split, i int) error {
	if err := t.Source.Sample(s, split, i); err != nil {
		return err
	}
	for i := range s.Values {
		c := i % len(t.mean)
		s.Values[i] = float32((sampleValue(s, i) - t.mean[c]) * t.scale[c])
	}
	s.Values64 = s.Values64[:0]
	return nil
}
