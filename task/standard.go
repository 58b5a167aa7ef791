package task

import (
	"fmt"
	"math"
)

// standardSamples is how many samples Moments looks at.
const standardSamples = 4096

// ChannelMoments returns mean and standard deviation of each channel over the values of
// the first 4096 samples to learn from, or of all if there are fewer. A channel that
// does not vary has deviation 1.
func ChannelMoments(src Source) (mean, deviation []float64, err error) {
	spec := src.Spec()
	if spec.Channels == 0 {
		return nil, nil, fmt.Errorf("%s: its positions hold tokens, which have no mean", spec.Name)
	}
	mean, deviation = make([]float64, spec.Channels), make([]float64, spec.Channels)
	n := 0.
	// A step of Welford's algorithm for every position: no squares of large means.
	_, err = eachSample(src, Train, standardSamples, func(s *Sample) {
		for i := 0; i < len(s.Values); i += spec.Channels {
			n++
			for c := range mean {
				x := float64(s.Values[i+c])
				d := x - mean[c]
				mean[c] += d / n
				deviation[c] += d * (x - mean[c])
			}
		}
	})
	for c, squares := range deviation {
		if deviation[c] = math.Sqrt(squares / n); !(deviation[c] > 0) {
			deviation[c] = 1
		}
	}
	return mean, deviation, err
}

// standardisedSource has the values of a source less their mean, in deviations.
type standardisedSource struct {
	Source
	mean, scale []float64
}

// Standardise returns src with every value x of channel c as
// (x - mean[c])/deviation[c]. Targets and baselines stay as they are.
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
	return &standardisedSource{src, mean, scale}, nil
}

func (t *standardisedSource) Sample(s *Sample, split Split, i int) error {
	if err := t.Source.Sample(s, split, i); err != nil {
		return err
	}
	for i, x := range s.Values {
		c := i % len(t.mean)
		s.Values[i] = float32((float64(x) - t.mean[c]) * t.scale[c])
	}
	return nil
}
