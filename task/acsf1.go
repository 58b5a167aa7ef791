package task

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/dataset"
)

// ACSF1 classifies household appliances by their power consumption: 1460 values, 10 classes,
// 100 training and 100 test series, no validation split. It also holds other data sets of
// aeon's format .ts.
type ACSF1 struct {
	channels, length int
	sets             [3]*dataset.SeriesSet
}

func openACSF1(o *settingsReader) (Source, error) {
	return OpenSeries(filepath.Join(o.Folder, "acsf1"), "ACSF1")
}

// OpenSeries reads NAME_TRAIN.ts and NAME_TEST.ts in a folder, plain or gzip. It returns an
// error if a file is missing or malformed, or classes, channels or lengths differ.
func OpenSeries(folder, name string) (*ACSF1, error) {
	t := &ACSF1{}
	for _, split := range []Split{Train, Test} {
		file := name + map[Split]string{Train: "_TRAIN.ts", Test: "_TEST.ts"}[split]
		path, err := findFile(folder, file, file+".gz")
		if err != nil {
			return nil, err
		}
		set, err := dataset.ReadFile(path, dataset.ReadSeries)
		if err != nil {
			return nil, err
		}
		if train := t.sets[Train]; train != nil && !slices.Equal(train.Classes, set.Classes) {
			return nil, fmt.Errorf("%s: its classes are %q, those to learn from %q", path, set.Classes, train.Classes)
		}
		if t.channels == 0 {
			t.channels = len(set.Cases[0].Channels)
		}
		for i, c := range set.Cases {
			if len(c.Channels) != t.channels {
				return nil, fmt.Errorf("%s: case %d has %d channels, the first has %d", path, i, len(c.Channels), t.channels)
			}
			for _, values := range c.Channels {
				if len(values) != len(c.Channels[0]) {
					return nil, fmt.Errorf("%s: case %d has channels of %d and %d values", path, i, len(c.Channels[0]), len(values))
				}
			}
			t.length = max(t.length, len(c.Channels[0]))
		}
		t.sets[split] = set
	}
	return t, nil
}

// Spec returns the specification of the samples.
func (t *ACSF1) Spec() Spec {
	return Spec{Name: "acsf1", Kind: Class, Metric: Accuracy, Channels: t.channels, Length: t.length, Parts: 1,
		Classes: len(t.sets[Train].Classes), Count: [3]int{len(t.sets[Train].Cases), 0, len(t.sets[Test].Cases)}}
}

// Sample overwrites s with a series; missing values are 0. It returns an error if the split
// has no sample i.
func (t *ACSF1) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.checkIndex(split, i); err != nil {
		return err
	}
	s.reset()
	c := &t.sets[split].Cases[i]
	s.Class = int32(c.Class)
	for k := range c.Channels[0] {
		for _, values := range c.Channels {
			x := values[k]
			if math.IsNaN(x) {
				x = 0
			}
			s.Values = append(s.Values, float32(x))
		}
	}
	return nil
}

// Baselines scores the commonest class and the class of the nearest series. It returns an
// error if a sample cannot be read.
func (t *ACSF1) Baselines(n int) ([]Baseline, error) {
	var known []Sample
	learned, err := eachSample(t, Train, n, func(s *Sample) {
		known = append(known, Sample{Values: slices.Clone(s.Values), Class: s.Class})
	})
	if err != nil {
		return nil, err
	}
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) {
			return scoreClasses("nearest series", t, n, learned, func(s *Sample) int {
				best, least := -1, math.Inf(1)
				for _, k := range known {
					if d := squaredDistance(k.Values, s.Values); d < least {
						best, least = int(k.Class), d
					}
				}
				return best
			})
		},
	)
}

// squaredDistance returns the squared Euclidean distance of two series. The shorter one is
// padded with 0.
func squaredDistance(a, b []float32) float64 {
	if len(a) > len(b) {
		a, b = b, a
	}
	d := 0.
	for i, y := range b {
		x := float32(0)
		if i < len(a) {
			x = a[i]
		}
		d += float64(x-y) * float64(x-y)
	}
	return d
}

// ClassNames returns the names of the classes.
func (t *ACSF1) ClassNames() []string { return slices.Clone(t.sets[Train].Classes) }

func askACSF1(_ *settingsReader, k ModelInfo) (*Question, error) {
	return askValues(Spec{Kind: Class, Classes: len(k.Classes)}, k.Classes, k, false), nil
}
