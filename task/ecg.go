package task

import (
	"fmt"
	"path/filepath"

	"github.com/farfield-ml/farfield/dataset"
)

// ECG is the task of saying for each sample of an electrocardiogram whether a
// beat is near, from both leads in mV. Of the record the first eight tenths are
// to learn from, from any sample on; of the next tenth and the last each window
// of the length is there to choose and to be judged by.
type ECG struct {
	length int
	seed   uint64
	values []float32 // [samples, signals]
	leads  int
	near   []int32 // [samples]: 1 near a beat
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

// OpenECG reads a WFDB record by the path of its header; its annotations are in
// the file .atr beside it.
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
	marks, err := dataset.File(path[:len(path)-len(filepath.Ext(path))]+".atr", dataset.ReadAnnotations)
	if err != nil {
		return nil, err
	}
	t := &ECG{length: length, seed: seed, leads: len(r.Samples), near: make([]int32, r.Length)}
	t.values = interleaveLeads(r)
	for _, a := range marks {
		if _, ok := a.Beat(); !ok {
			continue
		}
		if a.Sample >= int64(r.Length) {
			return nil, fmt.Errorf("%s: a beat is at sample %d of %d", path, a.Sample, r.Length)
		}
		at := int(a.Sample)
		for i := max(at-near, 0); i <= min(at+near, r.Length-1); i++ {
			t.near[i] = 1
		}
	}
	if n := r.Length / 10; n < length {
		return nil, fmt.Errorf("length: a window has %d samples, a tenth of the record %d", length, n)
	}
	return t, nil
}

// interleaveLeads returns the samples of a record, those of all signals at a time.
func interleaveLeads(r *dataset.Recording) []float32 {
	values := make([]float32, 0, r.Length*len(r.Samples))
	for i := range r.Length {
		for lead := range r.Samples {
			values = append(values, float32(r.Value(lead, i)))
		}
	}
	return values
}

// Spec returns what the samples are.
func (t *ECG) Spec() Spec {
	tenth := len(t.near) / 10
	return Spec{Name: "ecg", Kind: Labels, Metric: Accuracy, Channels: t.leads, Length: t.length, Parts: 1, Classes: 2,
		Count: [3]int{Endless, tenth / t.length, tenth / t.length}}
}

// Sample sets s to a window.
func (t *ECG) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.checkIndex(split, i); err != nil {
		return err
	}
	s.reset()
	tenth := len(t.near) / 10
	at := len(t.near) - 2*tenth + i*t.length
	switch split {
	case Train:
		at = newDraws(t.seed, split, i).intn(len(t.near) - 2*tenth - t.length + 1)
	case Test:
		at += tenth
	}
	s.Values = append(s.Values, t.values[at*t.leads:][:t.length*t.leads]...)
	s.Labels = append(s.Labels, t.near[at:][:t.length]...)
	return nil
}

// Baselines are the commonest label, and a threshold of the first lead.
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
	)
}
