package task

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Sounds classifies the user's own sounds: a folder of WAV files for each class. A sample is the
// first frames of a sound, with the mean of its channels and without resampling.
type Sounds struct {
	length int // most frames of a sound
	*classFolder
}

var soundSettings = []Setting{
	{"data", "", "folder with a folder of WAV files for each class, or with such folders train, valid, test"},
	{"length", "16000", "samples of a sound that are heard"},
}

func openSounds(o *settingsReader) (Source, error) {
	return newSounds(o.text("data"), o.int("length"), o.splitter(), o.ScoreOnly)
}

// OpenSounds lists the files of a folder; Sample reads them. length is the largest number of frames
// that is read from a sound. OpenSounds returns an error if length is out of range or the folder
// has fewer than two classes.
func OpenSounds(folder string, length int, seed uint64) (*Sounds, error) {
	return newSounds(folder, length, splitter{seed: seed}, false)
}

// newSounds is OpenSounds. With scoreOnly one class is enough.
func newSounds(folder string, length int, parts splitter, scoreOnly bool) (*Sounds, error) {
	if folder == "" {
		return nil, fmt.Errorf("data: a folder is needed")
	}
	if err := checkRange("length", length, 1, 1<<24); err != nil {
		return nil, err
	}
	c, err := readClassFolder(folder, parts, scoreOnly, ".wav")
	if err != nil {
		return nil, err
	}
	return &Sounds{length, c}, nil
}

// Spec returns the specification of the samples.
func (t *Sounds) Spec() Spec {
	return Spec{Name: "wav", Kind: Class, Metric: Accuracy, Channels: 1, Length: t.length, Parts: 1,
		Classes: len(t.classFolder.classes), Count: t.classFolder.countSamples()}
}

// ClassNames returns the names of the folders.
func (t *Sounds) ClassNames() []string { return slices.Clone(t.classFolder.classes) }

// askSound returns the question for the class of a WAV file.
func askSound(o *settingsReader, k ModelInfo) (*Question, error) {
	length := o.int("length")
	return &Question{spec: Spec{Kind: Class, Channels: 1, Length: length}, classes: k.Classes, inputKind: "a WAV file", readFile: func(path string) ([]Input, error) {
		var s Sample
		frames, err := appendSound(&s, path, length)
		return []Input{{Samples: []Sample{s}, Size: frames}}, err
	}}, checkRange("length", length, 1, 1<<24)
}

// Sample overwrites s with a sound. It returns an error if the split has no sample i or the
// file cannot be read.
func (t *Sounds) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	f := t.classFolder.files[split][i]
	s.Class = f.class
	_, err := appendSound(s, f.path, t.length)
	return err
}

// appendSound appends the mean of the channels of a file's first length frames. It returns
// the frames of the file.
func appendSound(s *Sample, path string, length int) (frames int, err error) {
	a, err := dataset.ReadFile(path, dataset.ReadWAV)
	if err != nil {
		return 0, err
	}
	frames = len(a.Samples) / a.Channels
	if frames == 0 {
		return 0, fmt.Errorf("%s: it has no samples", path)
	}
	for at := range min(frames, length) {
		sum := float32(0)
		for _, x := range a.Samples[at*a.Channels:][:a.Channels] {
			sum += x
		}
		s.Values = append(s.Values, sum/float32(a.Channels))
	}
	return frames, nil
}

// Baselines scores the commonest class and the class with the nearest mean statistics. It
// returns the errors of Sample.
func (t *Sounds) Baselines(n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) { return scoreNearestStatistics(t, n) },
	)
}
