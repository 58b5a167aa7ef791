package task

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/dataset"
)

// Sounds is the task of telling the user's sounds apart: a folder of WAV files
// for each class. Channels are averaged; of each the first samples are taken, at
// the rate that they have.
type Sounds struct {
	length int
	*classFolder
}

var soundSettings = []Setting{
	{"data", "", "folder with a folder of WAV files for each class, or with such folders train, valid, test"},
	{"length", "16000", "samples of a sound that are heard"},
}

func openSounds(o *settingsReader) (Source, error) {
	return OpenSounds(o.text("data"), o.int("length"), o.Seed)
}

// OpenSounds lists the files of a folder; they are read when they are asked for.
func OpenSounds(folder string, length int, seed uint64) (*Sounds, error) {
	if folder == "" {
		return nil, fmt.Errorf("data: a folder is needed")
	}
	if err := checkRange("length", length, 1, 1<<24); err != nil {
		return nil, err
	}
	c, err := readClassFolder(folder, seed, ".wav")
	if err != nil {
		return nil, err
	}
	return &Sounds{length, c}, nil
}

// Spec returns what the samples are.
func (t *Sounds) Spec() Spec {
	return Spec{Name: "wav", Kind: Class, Metric: Accuracy, Channels: 1, Length: t.length, Parts: 1,
		Classes: len(t.classFolder.classes), Count: t.classFolder.countSamples()}
}

// ClassNames returns the names of the folders.
func (t *Sounds) ClassNames() []string { return slices.Clone(t.classFolder.classes) }

// askSound asks for the class of a WAV file.
func askSound(o *settingsReader, k ModelInfo) (*Question, error) {
	length := o.int("length")
	return &Question{spec: Spec{Kind: Class, Channels: 1, Length: length}, classes: k.Classes, inputKind: "a WAV file", readFile: func(path string) ([]Input, error) {
		var s Sample
		err := s.appendSound(path, length)
		return []Input{{Samples: []Sample{s}}}, err
	}}, checkRange("length", length, 1, 1<<24)
}

// Sample sets s to a sound.
func (t *Sounds) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.checkIndex(split, i); err != nil {
		return err
	}
	s.reset()
	f := t.classFolder.files[split][i]
	s.Class = f.class
	return s.appendSound(f.path, t.length)
}

// appendSound appends the first samples of a file.
func (s *Sample) appendSound(path string, length int) error {
	a, err := dataset.File(path, dataset.ReadWAV)
	if err != nil {
		return err
	}
	frames := min(len(a.Samples)/a.Channels, length)
	if frames == 0 {
		return fmt.Errorf("%s: it has no samples", path)
	}
	for at := range frames {
		sum := float32(0)
		for _, x := range a.Samples[at*a.Channels:][:a.Channels] {
			sum += x
		}
		s.Values = append(s.Values, sum/float32(a.Channels))
	}
	return nil
}

// Baselines are the commonest class, and the class whose mean statistics are nearest.
func (t *Sounds) Baselines(n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) { return scoreNearestStatistics(t, n) },
	)
}
