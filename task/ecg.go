package task

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/dataset"
)

// ECG labels each sample of an electrocardiogram by whether a beat is near, from all leads in
// mV. The first eight tenths of the record are training data, where windows begin anywhere.
// The next tenth is the validation set and the last the test set, in consecutive windows.
type ECG struct {
	length int // samples of a window
	seed   uint64
	values []float32 // [samples, leads]
	leads  int
	reach  int     // samples on each side of a beat that have label 1
	labels []int32 // [samples]: 1 near a beat
}

var ecgSettings = []Setting{
	{"record", "100", "name of a record of the data set"},
	{"length", "2048", "samples of a window"},
	{"near", "18", "samples on each side of a beat that are called near (50 ms at 360 Hz)"},
}

func openECG(o *settingsReader) (Source, error) {
	path, err := findFile(filepath.Join(o.Folder, "ecg"), o.text("record")+".hea")
	if err != nil {
		return nil, err
	}
	return OpenECG(path, o.int("length"), o.int("near"), o.Seed)
}

// OpenECG reads a WFDB record by the path of its header and the annotations in the file .atr
// beside it. near is the number of samples on each side of a beat that get label 1. It
// returns an error if a file is malformed or a tenth of the record is shorter than length.
func OpenECG(path string, length, near int, seed uint64) (*ECG, error) {
	if err := checkRange("length", length, 1, 1<<20); err != nil {
		return nil, err
	}
	if err := checkRange("near", near, 0, 1<<20); err != nil {
		return nil, err
	}
	r, err := dataset.ReadRecording(path)
	if err != nil {
		return nil, err
	}
	marks, err := dataset.ReadFile(path[:len(path)-len(filepath.Ext(path))]+".atr", dataset.ReadAnnotations)
	if err != nil {
		return nil, err
	}
	t := &ECG{length: length, seed: seed, leads: len(r.Samples), reach: near, labels: make([]int32, r.Length)}
	t.values = interleaveLeads(r)
	for _, a := range marks {
		if _, ok := a.BeatLetter(); !ok {
			continue
		}
		if a.Sample >= int64(r.Length) {
			return nil, fmt.Errorf("%s: a beat is at sample %d of %d", path, a.Sample, r.Length)
		}
		at := int(a.Sample)
		for i := max(at-near, 0); i <= min(at+near, r.Length-1); i++ {
			t.labels[i] = 1
		}
	}
	if n := r.Length / 10; n < length {
		return nil, fmt.Errorf("length: a window has %d samples, a tenth of the record %d", length, n)
	}
	return t, nil
}

// interleaveLeads returns the samples of a record as [samples, leads].
func interleaveLeads(r *dataset.Recording) []float32 {
	values := make([]float32, 0, r.Length*len(r.Samples))
	for i := range r.Length {
		for lead := range r.Samples {
			values = append(values, float32(r.Value(lead, i)))
		}
	}
	return values
}

// Spec returns the specification of the samples.
func (t *ECG) Spec() Spec {
	tenth := len(t.labels) / 10
	return Spec{Name: "ecg", Kind: Labels, Metric: Accuracy, Channels: t.leads, Length: t.length, Parts: 1, Classes: 2,
		Count: [3]int{Endless, tenth / t.length, tenth / t.length}}
}

// Sample overwrites s with a window. It returns an error if the split has no sample i.
func (t *ECG) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.checkIndex(split, i); err != nil {
		return err
	}
	s.reset()
	tenth := len(t.labels) / 10
	at := len(t.labels) - 2*tenth + i*t.length
	switch split {
	case Train:
		at = newDraws(t.seed, split, i).intn(len(t.labels) - 2*tenth - t.length + 1)
	case Test:
		at += tenth
	}
	s.Values = append(s.Values, t.values[at*t.leads:][:t.length*t.leads]...)
	s.Labels = append(s.Labels, t.labels[at:][:t.length]...)
	return nil
}

// Baselines scores the commonest label, a threshold of the first lead, and peaks of that
// lead, which need no learning but of their threshold. It returns the errors of Sample.
func (t *ECG) Baselines(n int) ([]Baseline, error) {
	var x []float64
	var y []int32
	learned, err := eachSample(t, Train, n, func(s *Sample) {
		for i, label := range s.Labels {
			x, y = append(x, float64(s.Values[i*t.leads])), append(y, label)
		}
	})
	if err != nil {
		return nil, err
	}
	at, above := findThreshold(x, y)
	peaksAbove := t.findPeakThreshold(x, y)
	marks, lead := make([]int32, t.length), make([]float64, t.length)
	return runBaselines(
		func() (Baseline, error) { return scoreMajorityLabel(t, n) },
		func() (Baseline, error) {
			return scoreLabels("threshold of the first lead", t, n, learned, func(s *Sample, i int) int32 {
				if float64(s.Values[i*t.leads]) > at == above {
					return 1
				}
				return 0
			})
		},
		func() (Baseline, error) {
			return scoreLabels("peaks of the first lead", t, n, learned, func(s *Sample, i int) int32 {
				if i == 0 {
					for j := range lead {
						lead[j] = float64(s.Values[j*t.leads])
					}
					t.markPeaks(marks, lead, peaksAbove)
				}
				return marks[i]
			})
		},
	)
}

// markPeaks sets marks to 1 near the peaks of a window x of the first lead, and to 0
// elsewhere. A peak is the largest sample within the least distance of two beats from a
// sample above at.
func (t *ECG) markPeaks(marks []int32, x []float64, at float64) {
	clear(marks)
	apart := max(4*t.reach, 1)
	for i := 0; i < len(x); i++ {
		if x[i] <= at {
			continue
		}
		peak := i
		for j := i; j < min(i+apart, len(x)); j++ {
			if x[j] > x[peak] {
				peak = j
			}
		}
		for j := max(peak-t.reach, 0); j <= min(peak+t.reach, len(x)-1); j++ {
			marks[j] = 1
		}
		i += apart - 1
	}
}

// findPeakThreshold returns the threshold of markPeaks that gives most of the windows x
// their labels y, among some that few samples exceed.
func (t *ECG) findPeakThreshold(x []float64, y []int32) (at float64) {
	if len(x) == 0 {
		return math.Inf(1)
	}
	sorted := slices.Clone(x)
	slices.Sort(sorted)
	marks, most := make([]int32, t.length), -1
	for _, share := range []float64{0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995} {
		level, right := sorted[int(share*float64(len(sorted)))], 0
		for w := 0; w < len(x); w += t.length {
			t.markPeaks(marks, x[w:w+t.length], level)
			for i, mark := range marks {
				if mark == y[w+i] {
					right++
				}
			}
		}
		if right > most {
			most, at = right, level
		}
	}
	return at
}
