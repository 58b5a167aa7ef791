package task

import (
	"math"
)

// classOrdered is a source that may list its samples in the order of their classes.
type classOrdered interface{ isClassOrdered() bool }

// eachSample calls f with the first n samples of a split and returns their number. n of 0
// means all. Where samples lie in the order of their classes the n samples are spread evenly.
// It returns the first error of Sample.
func eachSample(src Source, split Split, n int, f func(*Sample)) (samples int, err error) {
	spec := src.Spec()
	var s Sample
	samples = sampleCount(&spec, split, n)
	ordered, is := src.(classOrdered)
	spread := is && ordered.isClassOrdered()
	for i := range samples {
		if spread {
			i = i * spec.Count[split] / samples
		}
		if err := src.Sample(&s, split, i); err != nil {
			return i, err
		}
		f(&s)
	}
	return samples, nil
}

// scoreClasses scores the classes that classify returns. learned is the number of training
// samples that classify is derived from.
func scoreClasses(name string, src Source, n, learned int, classify func(*Sample) int) (Baseline, error) {
	spec := src.Spec()
	right := 0
	judged, err := eachSample(src, spec.JudgedSplit(), n, func(s *Sample) {
		if classify(s) == int(s.Class) {
			right++
		}
	})
	return Baseline{Name: name, Score: hitRate(right, judged), Learned: learned, Judged: judged}, err
}

// Names of the baselines that read no input.
const (
	majorityName      = "commonest class"
	majorityLabelName = "commonest label"
	meanName          = "mean of the targets"
)

// keyTable is a baseline that scores the commonest class of the training samples with the same
// key. Unseen keys get the commonest class of all samples.
type keyTable struct {
	name string
	key  func(*Sample) [2]int32
}

// majority is the table of one key, which scores the commonest class.
var majority = keyTable{majorityName, func(*Sample) (none [2]int32) { return none }}

// scoreTables scores tables, for all of which it takes each sample once.
func scoreTables(src Source, n int, tables ...keyTable) ([]Baseline, error) {
	spec := src.Spec()
	seen := make([]map[[2]int32][]int, len(tables))
	for i := range seen {
		seen[i] = map[[2]int32][]int{}
	}
	all := make([]int, spec.Classes)
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		for i, t := range tables {
			k := t.key(s)
			if seen[i][k] == nil {
				seen[i][k] = make([]int, spec.Classes)
			}
			seen[i][k][s.Class]++
		}
		all[s.Class]++
	})
	if err != nil {
		return nil, err
	}
	right := make([]int, len(tables))
	judged, err := eachSample(src, spec.JudgedSplit(), n, func(s *Sample) {
		for i, t := range tables {
			counts, ok := seen[i][t.key(s)]
			if !ok {
				counts = all
			}
			if argMax(counts) == int(s.Class) {
				right[i]++
			}
		}
	})
	if err != nil {
		return nil, err
	}
	list := make([]Baseline, len(tables))
	for i, t := range tables {
		list[i] = Baseline{Name: t.name, Score: hitRate(right[i], judged), Learned: learned, Judged: judged}
	}
	return list, nil
}

// scoreMajority scores the commonest class.
func scoreMajority(src Source, n int) (Baseline, error) {
	list, err := scoreTables(src, n, majority)
	if err != nil {
		return Baseline{}, err
	}
	return list[0], nil
}

// scoreMajorityLabel scores the commonest label of all positions.
func scoreMajorityLabel(src Source, n int) (Baseline, error) {
	counts := make([]int, src.Spec().Classes)
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		for _, y := range s.Labels {
			if y >= 0 {
				counts[y]++
			}
		}
	})
	if err != nil {
		return Baseline{}, err
	}
	best := int32(argMax(counts))
	return scoreLabels(majorityLabelName, src, n, learned, func(*Sample, int) int32 { return best })
}

// scoreLabels scores the label that rule returns for each position; -1 counts as wrong.
// learned is the number of training samples that rule is derived from.
func scoreLabels(name string, src Source, n, learned int, rule func(s *Sample, position int) int32) (Baseline, error) {
	spec := src.Spec()
	right, judged := 0, 0
	samples, err := eachSample(src, spec.JudgedSplit(), n, func(s *Sample) {
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
	return Baseline{Name: name, Score: hitRate(right, judged), Learned: learned, Judged: samples}, err
}

// scoreMeanTarget scores the mean of the targets, output by output.
func scoreMeanTarget(src Source, n int) (Baseline, error) {
	spec := src.Spec()
	mean, rows := make([]float64, spec.Outputs), 0
	learned, err := eachSample(src, Train, n, func(s *Sample) {
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
	return scoreNumbers(meanName, src, n, learned, func(_ *Sample, i int) float64 { return mean[i%spec.Outputs] })
}

// scoreNumbers scores the number that rule returns for each element of the targets, by mean
// squared error. learned is the number of training samples that rule is derived from.
func scoreNumbers(name string, src Source, n, learned int, rule func(s *Sample, i int) float64) (Baseline, error) {
	spec := src.Spec()
	var all SquareSums
	samples, err := eachSample(src, spec.JudgedSplit(), n, func(s *Sample) {
		sum := 0.
		for i, y := range s.Targets {
			d := rule(s, i) - float64(y)
			sum += d * d
		}
		all.Add(sum, len(s.Targets))
	})
	mean, standard := all.Mean()
	return Baseline{Name: name, Score: mean, Learned: learned, Judged: samples, Error: standard}, err
}

// SquareSums holds sums over samples, from which Mean computes a mean squared error and its
// standard error. A sample has n numbers, whose squared errors have the sum s; the errors of one
// sample may be correlated.
type SquareSums struct {
	Sum, Squares, Products float64 // of s, s² and s·n
	Samples                float64
	Counts, CountSquares   float64 // of n and n²
}

// Add adds a sample.
func (q *SquareSums) Add(sum float64, n int) {
	q.Sum += sum
	q.Squares += sum * sum
	q.Products += sum * float64(n)
	q.Samples++
	q.Counts += float64(n)
	q.CountSquares += float64(n) * float64(n)
}

// leastErrorSamples is the least number of samples whose sums tell their error.
const leastErrorSamples = 20

// Mean returns the mean squared error and its standard error, which is 0 for fewer than 20 samples.
func (q *SquareSums) Mean() (mean, standard float64) {
	mean = q.Sum / q.Counts
	if sum := q.Squares - 2*mean*q.Products + mean*mean*q.CountSquares; q.Samples >= leastErrorSamples && sum > 1e-12*q.Squares { // not of rounding
		standard = math.Sqrt(sum*q.Samples/(q.Samples-1)) / q.Counts
	}
	return mean, standard
}

// scoreThreshold scores the threshold of a number that best separates class 1 from class 0
// on the training samples.
func scoreThreshold(name string, src Source, n int, number func(*Sample) float64) (Baseline, error) {
	var x []float64
	var y []int32
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		x, y = append(x, number(s)), append(y, s.Class)
	})
	if err != nil {
		return Baseline{}, err
	}
	at, above := findThreshold(x, y)
	return scoreClasses(name, src, n, learned, func(s *Sample) int {
		if number(s) > at == above {
			return 1
		}
		return 0
	})
}

// scoreNearestMean scores the class with the nearest mean sample. All samples have the same
// length.
func scoreNearestMean(src Source, n int) (Baseline, error) {
	m := nearestMean{mean: make([][]float64, src.Spec().Classes)}
	var x []float64
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		x = appendNumbers(s, x)
		m.addSample(int(s.Class), x)
	})
	if err != nil {
		return Baseline{}, err
	}
	m.finishMeans()
	return scoreClasses("nearest mean", src, n, learned, func(s *Sample) int {
		x = appendNumbers(s, x)
		return m.classify(x)
	})
}

// NumberBaselines scores the commonest class and the class with the nearest mean sample, for
// samples of one length. n is as in Baseliner. It returns the errors of Sample.
func NumberBaselines(src Source, n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(src, n) },
		func() (Baseline, error) { return scoreNearestMean(src, n) },
	)
}

// nearestMean is a nearest-centroid classifier.
type nearestMean struct {
	mean  [][]float64 // [classes, len(x)]; nil: the class has no samples
	count []int       // [classes]
}

// addSample adds x to the sum of its class.
func (m *nearestMean) addSample(class int, x []float64) {
	if m.count == nil {
		m.count = make([]int, len(m.mean))
	}
	if m.mean[class] == nil {
		m.mean[class] = make([]float64, len(x))
	}
	for i := range x {
		m.mean[class][i] += x[i]
	}
	m.count[class]++
}

// finishMeans divides the sums by their counts. addSample must not follow.
func (m *nearestMean) finishMeans() {
	for c := range m.mean {
		for i := range m.mean[c] {
			m.mean[c][i] /= float64(m.count[c])
		}
	}
}

// classify returns the class with the nearest mean.
func (m *nearestMean) classify(x []float64) int {
	best, least := -1, math.Inf(1)
	for c := range m.mean {
		if m.mean[c] == nil {
			continue
		}
		d := 0.
		for i := range x {
			d += (x[i] - m.mean[c][i]) * (x[i] - m.mean[c][i])
		}
		if d < least {
			best, least = c, d
		}
	}
	return best
}

// appendNumbers returns tokens and values of s as numbers, and reuses the memory of x.
func appendNumbers(s *Sample, x []float64) []float64 {
	x = x[:0]
	for _, t := range s.Tokens {
		x = append(x, float64(t))
	}
	for _, v := range s.Values {
		x = append(x, float64(v))
	}
	return x
}

// argMax returns the index of the largest number, the first among equals.
func argMax[T int | float64](list []T) int {
	best := 0
	for i, n := range list {
		if n > list[best] {
			best = i
		}
	}
	return best
}

// hitRate returns the accuracy of right hits among of.
func hitRate(right, of int) float64 { return float64(right) / float64(of) }

// runBaselines calls each function in turn and stops at the first error.
func runBaselines(list ...func() (Baseline, error)) ([]Baseline, error) {
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

// runGrowing is runBaselines of a WindowDrawer.
func runGrowing(list ...func() (Baseline, error)) ([]Baseline, error) {
	return adviseGrowth(runBaselines(list...))
}

// adviseGrowth adds the advice of a WindowDrawer: what its baselines ask shows later in long samples.
func adviseGrowth(all []Baseline, err error) ([]Baseline, error) {
	for i := range all {
		all[i].Advice = growAdvice
	}
	return all, err
}

// growAdvice is for models that learn no more of long samples than a baseline.
const growAdvice = "train longer, with samples that begin short (train --first-context)"
