package task

import (
	"math"
	"slices"
	"testing"
)

// given is a source of literal samples.
type given struct {
	spec    Spec
	samples []Sample
}

func (g *given) Spec() Spec { return g.spec }

func (g *given) Sample(s *Sample, split Split, i int) error {
	if err := g.spec.CheckIndex(split, i); err != nil {
		return err
	}
	from := g.samples[i]
	resetSample(s)
	s.Tokens = append(s.Tokens, from.Tokens...)
	s.Values = append(s.Values, from.Values...)
	s.Labels = append(s.Labels, from.Labels...)
	s.Targets = append(s.Targets, from.Targets...)
	s.Class, s.Cut = from.Class, from.Cut
	return nil
}

func (g *given) Baselines(int) ([]Baseline, error) { return nil, nil }

func TestStandardiseUsesTrainingMoments(t *testing.T) {
	src := &given{Spec{Name: "given", Kind: Class, Channels: 2, Length: 3, Parts: 1, Classes: 1, Count: [3]int{2, 0, 0}}, []Sample{
		{Values: []float32{1, 7, 3, 7}}, {Values: []float32{5, 7, 7, 7, 9, 7}},
	}}
	mean, deviation, err := ChannelMoments(src)
	// 1 3 5 7 9 have mean 5 and deviation √8.
	if err != nil || mean[0] != 5 || math.Abs(deviation[0]-math.Sqrt(8)) > 1e-15 || mean[1] != 7 || deviation[1] != 1 {
		t.Fatalf("means %v, deviations %v, %v", mean, deviation, err)
	}
	x, err := Standardise(src, []float64{5, 7}, []float64{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	if s := take(t, x, Train, 1); !slices.Equal(s.Values, []float32{0, 0, 1, 0, 2, 0}) {
		t.Errorf("values %v", s.Values)
	}
	for _, c := range [][2][]float64{{{1}, {1}}, {{1, 1}, {1, 0}}, {{1, math.NaN()}, {1, 1}}, {{1, 1}, {1, math.Inf(1)}}} {
		if _, err := Standardise(src, c[0], c[1]); err == nil {
			t.Errorf("means %v and deviations %v are accepted", c[0], c[1])
		}
	}
	if _, _, err := ChannelMoments(openSource(t, "copy", Options{})); err == nil {
		t.Error("tokens have a mean")
	}
}

func TestShapesAreAsWide(t *testing.T) {
	mean, deviation, err := ChannelMoments(openSource(t, "shapes", Options{Seed: 1}))
	// Means of 4096 signals of deviation 6.3 are known to 0.1 and less.
	if err != nil || math.Abs(mean[0]-3.33) > 0.1 || math.Abs(deviation[0]-6.26) > 0.1 {
		t.Errorf("mean %v, deviation %v, %v", mean, deviation, err)
	}
}

func TestPadExtendsSamplesWithoutLabels(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name         string
		spec         Spec
		sample, want Sample
	}{
		{"tokens", Spec{Kind: Labels, Vocab: 9, Length: 4, Parts: 1},
			Sample{Tokens: []int32{5, 6}, Labels: []int32{1, 0}}, Sample{Tokens: []int32{5, 6, 0, 0}, Labels: []int32{1, 0, -1, -1}}},
		{"numbers", Spec{Kind: Trace, Channels: 2, Outputs: 1, Length: 2, Parts: 1},
			Sample{Values: []float32{5, 6}, Targets: []float32{3}}, Sample{Values: []float32{5, 6, 0, 0}, Targets: []float32{3, nan}}},
		{"class", Spec{Kind: Class, Vocab: 9, Length: 3, Parts: 1},
			Sample{Tokens: []int32{5}, Class: 2}, Sample{Tokens: []int32{5, 0, 0}, Class: 2}},
		{"pairs", Spec{Kind: Class, Vocab: 9, Length: 6, Parts: 2},
			Sample{Tokens: []int32{5, 6, 7}, Cut: 1}, Sample{Tokens: []int32{5, 0, 0, 6, 7, 0}, Cut: 3}},
	} {
		c.spec.Count = [3]int{1, 0, 0}
		got := take(t, Pad(&given{c.spec, []Sample{c.sample}}), Train, 0)
		last := len(c.want.Targets) - 1
		if last >= 0 && c.want.Targets[last] != c.want.Targets[last] && got.Targets[last] != got.Targets[last] {
			got.Targets, c.want.Targets = got.Targets[:last], c.want.Targets[:last]
		}
		if !equal(&got, &c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
