package task

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/rng"
)

// MQAR is multi-query associative recall (Arora et al. 2023, zoology). A sequence lists keys
// with their values, then repeats every key once at random positions, where the label is the
// key's value. Keys are tokens of the lower half of the vocabulary without 0, values of the
// upper half.
type MQAR struct {
	Vocab  int
	Length int     // tokens of a sequence
	Pairs  int     // keys with values
	Power  float64 // exponent of the distribution of gaps: small values favour short gaps
	Random bool    // fill other positions with random tokens instead of 0
	Seed   uint64
}

// mqarPower is the Power of the published figures.
const mqarPower = 0.01

var mqarSettings = []Setting{
	{"vocab", "8192", "tokens of the vocabulary"},
	{"length", "128", "tokens of a sequence"},
	{"pairs", "8", "keys and values of a sequence"},
	{"random", "true", "what is no key and no value is random, not 0 (the figure of ICLR 2024 has 0)"},
}

func openMQAR(o *settingsReader) (Source, error) {
	return NewMQAR(MQAR{Vocab: o.int("vocab"), Length: o.int("length"), Pairs: o.int("pairs"), Power: mqarPower,
		Random: o.bool("random"), Seed: o.Seed})
}

// NewMQAR returns a generator of the samples of task t. It returns an error if a field is out of range.
func NewMQAR(t MQAR) (*MQAR, error) {
	switch {
	case t.Pairs < 1 || t.Length > 1<<24 || t.Length%2 != 0 || 4*t.Pairs > t.Length:
		return nil, fmt.Errorf("length: %d tokens for %d pairs; an even number of at least four a pair is needed", t.Length, t.Pairs)
	case t.Vocab <= t.Length || t.Vocab > 1<<24:
		return nil, fmt.Errorf("vocab: it is %d, more than the length, %d, is needed", t.Vocab, t.Length)
	case !(t.Power > 0) || t.Power > 1e3:
		return nil, fmt.Errorf("power: it is %g, above 0 is needed", t.Power)
	}
	return &t, nil
}

// Spec returns the specification of the samples.
func (t *MQAR) Spec() Spec {
	return Spec{Name: "mqar", Kind: Next, Metric: Accuracy, Vocab: t.Vocab, Length: t.Length, Parts: 1, Classes: t.Vocab,
		Count: [3]int{Endless, Endless, Endless}}
}

// Sample overwrites s with a sequence. Repeated keys have labels. It returns an error if the
// split has no sample i.
func (t *MQAR) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	t.draw(s, t.Length, newDraws(t.Seed, split, i))
	return nil
}

// DrawWindow overwrites s with a training sequence of length tokens, which depends on key and i
// alone. It has a pair for every four tokens, but at most Pairs. DrawWindow returns an error if
// length is odd, less than 4 or more than Length.
func (t *MQAR) DrawWindow(s *Sample, length int, key rng.Key, i uint64) error {
	if length < 4 || length > t.Length || length%2 != 0 {
		return fmt.Errorf("%d tokens; an even number from 4 to the length, %d, is needed", length, t.Length)
	}
	t.draw(s, length, &randomDraws{key: key.Fold(i)})
	return nil
}

// draw overwrites s with a sequence of length tokens.
func (t *MQAR) draw(s *Sample, length int, d *randomDraws) {
	resetSample(s)
	pairs, half := min(t.Pairs, length/4), t.Vocab/2
	keys, values := make([]int, pairs), make([]int, pairs)
	d.chooseDistinct(keys, half-1)
	d.chooseDistinct(values, t.Vocab-half)
	for k := range keys {
		s.Tokens = append(s.Tokens, int32(1+keys[k]), int32(half+values[k]))
	}
	for range length - 2*pairs {
		x := int32(0)
		if t.Random {
			x = int32(d.intn(t.Vocab))
		}
		s.Tokens = append(s.Tokens, x)
	}
	for range length {
		s.Labels = append(s.Labels, -1)
	}
	for k, gap := range t.drawGaps(d, length, pairs) {
		at := 2*pairs + 2*gap
		s.Tokens[at] = int32(1 + keys[k])
		s.Labels[at] = int32(half + values[k])
	}
}

// drawGaps draws distinct gaps, one for each key. Gap g stands for position 2g after the pairs
// and has weight (g+1)^(Power-1).
func (t *MQAR) drawGaps(d *randomDraws, length, pairs int) []int {
	weights := make([]float64, (length-2*pairs)/2)
	total := 0.
	for g := range weights {
		weights[g] = math.Pow(float64(g+1), t.Power-1)
		total += weights[g]
	}
	gaps := make([]int, pairs)
	for k := range gaps {
		x := d.float() * total
		at := -1
		for g, w := range weights {
			if w == 0 {
				continue
			}
			at = g // rounding may leave x above the last weight
			if x -= w; x < 0 {
				break
			}
		}
		gaps[k] = at
		total -= weights[at]
		weights[at] = 0
	}
	return gaps
}

// Baselines scores the commonest value and the value of the last pair. It returns the errors
// of Sample.
func (t *MQAR) Baselines(n int) ([]Baseline, error) {
	return runGrowing(
		func() (Baseline, error) { return scoreMajorityLabel(t, n) },
		func() (Baseline, error) {
			return scoreLabels("value of the last pair", t, n, 0, func(s *Sample, _ int) int32 { return s.Tokens[2*t.Pairs-1] })
		},
	)
}
