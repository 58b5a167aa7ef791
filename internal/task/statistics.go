package task

import (
	"fmt"
	"math"
)

// statisticsPerChannel is the number of statistics of a channel.
const statisticsPerChannel = 5

// maxStatistics bounds the inputs of a regression, whose cost is cubic.
const maxStatistics = 500

// appendStatistics appends five statistics for each channel of a sample's values: mean,
// deviation, minimum, maximum, and mean absolute difference of neighbours.
func appendStatistics(dst []float64, s *Sample, channels int) []float64 {
	n := len(s.Values) / channels
	for c := range channels {
		var all moments
		step, before := 0., 0.
		least, most := math.Inf(1), math.Inf(-1)
		for i := range n {
			x := sampleValue(s, i*channels+c)
			all.add(x)
			least, most = min(least, x), max(most, x)
			if i > 0 {
				step += (math.Abs(x-before) - step) / float64(i)
			}
			before = x
		}
		dst = append(dst, all.mean, math.Sqrt(all.variance()), least, most, step)
	}
	return dst
}

// moments are the mean and the sum of squared deviations of numbers, by Welford's algorithm.
// They are exact where all numbers are equal.
type moments struct{ n, mean, squares float64 }

// add adds a number.
func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / m.n
	m.squares += d * (x - m.mean)
}

// variance returns the mean squared deviation.
func (m *moments) variance() float64 { return m.squares / max(m.n, 1) }

// sampleStatistics holds the standardised statistics of the training samples, and standardises
// the statistics of other samples by the same moments.
type sampleStatistics struct {
	channels        int
	rows            [][]float64 // [samples, statistics]
	mean, deviation []float64   // [statistics]
}

// readStatistics computes the statistics of the first n training samples and returns their
// number. It calls visit with each sample.
func readStatistics(src Source, n int, visit func(s *Sample)) (*sampleStatistics, int, error) {
	d := &sampleStatistics{channels: src.Spec().Channels}
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		d.rows = append(d.rows, appendStatistics(nil, s, d.channels))
		visit(s)
	})
	if err != nil {
		return nil, 0, err
	}
	d.mean, d.deviation = make([]float64, statisticsPerChannel*d.channels), make([]float64, statisticsPerChannel*d.channels)
	for i := range d.mean {
		var all moments
		for _, row := range d.rows {
			all.add(row[i])
		}
		d.mean[i] = all.mean
		if d.deviation[i] = math.Sqrt(all.variance()); !(d.deviation[i] > 0) {
			d.deviation[i] = 1
		}
	}
	for _, row := range d.rows {
		d.standardiseRow(row)
	}
	return d, learned, nil
}

// standardiseRow standardises the statistics of a sample in place.
func (d *sampleStatistics) standardiseRow(row []float64) {
	for i := range row {
		row[i] = (row[i] - d.mean[i]) / d.deviation[i]
	}
}

// sampleRow returns the standardised statistics of a sample, and reuses the memory of row.
func (d *sampleStatistics) sampleRow(row []float64, s *Sample) []float64 {
	row = appendStatistics(row[:0], s, d.channels)
	d.standardiseRow(row)
	return row
}

// scoreNearestStatistics scores the class with the nearest mean statistics.
func scoreNearestStatistics(src Source, n int) (Baseline, error) {
	var classes []int
	d, learned, err := readStatistics(src, n, func(s *Sample) { classes = append(classes, int(s.Class)) })
	if err != nil {
		return Baseline{}, err
	}
	m := nearestMean{mean: make([][]float64, src.Spec().Classes)}
	for i, row := range d.rows {
		m.addSample(classes[i], row)
	}
	m.finishMeans()
	var row []float64
	return scoreClasses("nearest mean of statistics", src, n, learned, func(s *Sample) int {
		row = d.sampleRow(row, s)
		return m.classify(row)
	})
}

// ridge times the number of samples is added to the diagonal of the normal equations, since
// statistics may be linearly dependent.
const ridge = 1e-6

// scoreRegression scores a linear regression of the first output on the statistics.
func scoreRegression(src Source, n int) (Baseline, error) {
	var y []float64
	d, learned, err := readStatistics(src, n, func(s *Sample) { y = append(y, float64(s.Targets[0])) })
	if err != nil {
		return Baseline{}, err
	}
	mean := 0.
	for _, x := range y {
		mean += x / float64(len(y))
	}
	k := len(d.mean)
	a, b := make([]float64, k*k), make([]float64, k)
	for r, row := range d.rows {
		for i, x := range row {
			b[i] += x * (y[r] - mean)
			for j := range i + 1 {
				a[i*k+j] += x * row[j]
			}
		}
	}
	for i := range k {
		a[i*k+i] += ridge * float64(len(y))
	}
	if err := solveCholesky(a, b); err != nil {
		return Baseline{}, err
	}
	var row []float64
	return scoreNumbers("linear regression on statistics", src, n, learned, func(s *Sample, _ int) float64 {
		row = d.sampleRow(row, s)
		x := mean
		for i := range row {
			x += b[i] * row[i]
		}
		return x
	})
}

// solveCholesky overwrites b with the solution x of A·x = b by Cholesky decomposition. a
// [len(b), len(b)] is symmetric; its lower triangle is read and overwritten. It returns an
// error if a is not positive definite.
func solveCholesky(a, b []float64) error {
	k := len(b)
	for i := range k {
		for j := range i + 1 {
			x := a[i*k+j]
			for l := range j {
				x -= a[i*k+l] * a[j*k+l]
			}
			if i > j {
				a[i*k+j] = x / a[j*k+j]
				continue
			}
			if !(x > 0) {
				return fmt.Errorf("regression: pivot %d of %d is %g", i, k, x)
			}
			a[i*k+i] = math.Sqrt(x)
		}
	}
	for i := range k {
		for l := range i {
			b[i] -= a[i*k+l] * b[l]
		}
		b[i] /= a[i*k+i]
	}
	for i := k - 1; i >= 0; i-- {
		for l := i + 1; l < k; l++ {
			b[i] -= a[l*k+i] * b[l]
		}
		b[i] /= a[i*k+i]
	}
	return nil
}

// scoreNearestRow scores for each row the label with the nearest mean row.
func scoreNearestRow(src Source, n int) (Baseline, error) {
	spec := src.Spec()
	_, deviation, err := ChannelMoments(src) // channels may differ in size
	if err != nil {
		return Baseline{}, err
	}
	m := nearestMean{mean: make([][]float64, spec.Classes)}
	row := make([]float64, spec.Channels)
	read := func(s *Sample, i int) []float64 {
		for c := range row {
			row[c] = sampleValue(s, i*spec.Channels+c) / deviation[c]
		}
		return row
	}
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		for i, y := range s.Labels {
			m.addSample(int(y), read(s, i))
		}
	})
	if err != nil {
		return Baseline{}, err
	}
	m.finishMeans()
	return scoreLabels("nearest mean row", src, n, learned, func(s *Sample, i int) int32 { return int32(m.classify(read(s, i))) })
}
