package task

import (
	"math"
)

// each calls f with the first n samples of a split.
func each(src Source, split Split, n int, f func(*Sample)) error {
	spec := src.Spec()
	var s Sample
	for i := range spec.has(split, n) {
		if err := src.Sample(&s, split, i); err != nil {
			return err
		}
		f(&s)
	}
	return nil
}

// byTable scores the commonest class of the samples that have the same key.
// Keys that were not seen get the commonest class of all.
func byTable[K comparable](name string, src Source, n int, key func(*Sample) K) (Baseline, error) {
	spec := src.Spec()
	seen := map[K][]int{}
	all := make([]int, spec.Classes)
	err := each(src, Train, n, func(s *Sample) {
		k := key(s)
		if seen[k] == nil {
			seen[k] = make([]int, spec.Classes)
		}
		seen[k][s.Class]++
		all[s.Class]++
	})
	if err != nil {
		return Baseline{}, err
	}
	right, judged := 0, 0
	err = each(src, spec.Judged(), n, func(s *Sample) {
		counts, ok := seen[key(s)]
		if !ok {
			counts = all
		}
		judged++
		if commonest(counts) == int(s.Class) {
			right++
		}
	})
	return Baseline{name, share(right, judged)}, err
}

// majority is the commonest class.
func majority(src Source, n int) (Baseline, error) {
	return byTable("commonest class", src, n, func(*Sample) int { return 0 })
}

// majorityLabel is the commonest label of a position.
func majorityLabel(src Source, n int) (Baseline, error) {
	spec := src.Spec()
	counts := make([]int, spec.Classes)
	err := each(src, Train, n, func(s *Sample) {
		for _, y := range s.Labels {
			if y >= 0 {
				counts[y]++
			}
		}
	})
	if err != nil {
		return Baseline{}, err
	}
	best := int32(commonest(counts))
	right, judged := 0, 0
	err = each(src, spec.Judged(), n, func(s *Sample) {
		for _, y := range s.Labels {
			if y >= 0 {
				judged++
			}
			if y == best {
				right++
			}
		}
	})
	return Baseline{"commonest label", share(right, judged)}, err
}

// byRule scores labels that rule gives without having learned anything; -1 is
// wrong.
func byRule(name string, src Source, n int, rule func(s *Sample, position int) int32) (Baseline, error) {
	spec := src.Spec()
	right, judged := 0, 0
	err := each(src, spec.Judged(), n, func(s *Sample) {
		for i, y := range s.Labels {
			if y < 0 {
				continue
			}
			judged++
			if rule(s, i) == y {
				right++
			}
		}
	})
	return Baseline{name, share(right, judged)}, err
}

// meanTarget is the mean of the targets, of each output.
func meanTarget(src Source, n int) (Baseline, error) {
	spec := src.Spec()
	mean, rows := make([]float64, spec.Outputs), 0
	err := each(src, Train, n, func(s *Sample) {
		for i, y := range s.Targets {
			mean[i%spec.Outputs] += float64(y)
		}
		rows += len(s.Targets) / spec.Outputs
	})
	if err != nil {
		return Baseline{}, err
	}
	for i := range mean {
		mean[i] /= float64(max(rows, 1))
	}
	return byNumbers("mean of the targets", src, n, func(_ *Sample, i int) float64 { return mean[i%spec.Outputs] })
}

// byNumbers scores numbers that rule gives for each element of the targets.
func byNumbers(name string, src Source, n int, rule func(s *Sample, i int) float64) (Baseline, error) {
	spec := src.Spec()
	sum, judged := 0., 0
	err := each(src, spec.Judged(), n, func(s *Sample) {
		for i, y := range s.Targets {
			d := rule(s, i) - float64(y)
			sum += d * d
		}
		judged += len(s.Targets)
	})
	return Baseline{name, sum / float64(judged)}, err
}

// byThreshold scores the best threshold of a number, above or below which the
// samples to learn from are of class 1.
func byThreshold(name string, src Source, n int, number func(*Sample) float64) (Baseline, error) {
	spec := src.Spec()
	var x []float64
	var y []int32
	err := each(src, Train, n, func(s *Sample) {
		x, y = append(x, number(s)), append(y, s.Class)
	})
	if err != nil {
		return Baseline{}, err
	}
	at, above := threshold(x, y)
	right, judged := 0, 0
	err = each(src, spec.Judged(), n, func(s *Sample) {
		judged++
		if (number(s) > at == above) == (s.Class == 1) {
			right++
		}
	})
	return Baseline{name, share(right, judged)}, err
}

// byMean scores the class whose mean of the samples' values, all of one number,
// is nearest.
func byMean(src Source, n int) (Baseline, error) {
	spec := src.Spec()
	mean := make([][]float64, spec.Classes)
	count := make([]int, spec.Classes)
	var x []float64
	err := each(src, Train, n, func(s *Sample) {
		x = s.numbers(x)
		if mean[s.Class] == nil {
			mean[s.Class] = make([]float64, len(x))
		}
		for i := range x {
			mean[s.Class][i] += x[i]
		}
		count[s.Class]++
	})
	if err != nil {
		return Baseline{}, err
	}
	for c := range mean {
		for i := range mean[c] {
			mean[c][i] /= float64(count[c])
		}
	}
	right, judged := 0, 0
	err = each(src, spec.Judged(), n, func(s *Sample) {
		x = s.numbers(x)
		best, least := -1, math.Inf(1)
		for c := range mean {
			if mean[c] == nil {
				continue
			}
			d := 0.
			for i := range x {
				d += (x[i] - mean[c][i]) * (x[i] - mean[c][i])
			}
			if d < least {
				best, least = c, d
			}
		}
		judged++
		if best == int(s.Class) {
			right++
		}
	})
	return Baseline{"nearest mean", share(right, judged)}, err
}

// numbers returns what s holds, tokens or values, in the memory of x.
func (s *Sample) numbers(x []float64) []float64 {
	x = x[:0]
	for _, t := range s.Tokens {
		x = append(x, float64(t))
	}
	for _, v := range s.Values {
		x = append(x, float64(v))
	}
	return x
}

// commonest returns the place of the largest count, the first of equals.
func commonest(counts []int) int {
	best := 0
	for i, n := range counts {
		if n > counts[best] {
			best = i
		}
	}
	return best
}

func share(right, of int) float64 { return float64(right) / float64(of) }

// baselines calls each in turn.
func baselines(list ...func() (Baseline, error)) ([]Baseline, error) {
	var all []Baseline
	for _, f := range list {
		b, err := f()
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}
