package task

import (
	"fmt"
	"path/filepath"
	"slices"
)

// LabelledPictures has the user's own pictures, a folder of PNG and JPEG files for each class, for
// a model that has learned these classes.
type LabelledPictures struct {
	files               *classFolder
	classes             []string
	numbers             []int32 // number of the model's class for each folder
	positions, channels int
	read                func(path string) ([]float32, error)
}

// OpenLabelledPictures lists the pictures of a folder, as the task picture does. The names of its
// folders are classes in names, as in OpenLabelled. read returns the values [positions,channels] of
// a picture. OpenLabelledPictures returns an error if the folder has no pictures, or a class that
// the model does not have.
func OpenLabelledPictures(folder string, names []string, positions, channels int, read func(path string) ([]float32, error)) (*LabelledPictures, error) {
	files, err := readClassFolder(folder, splitter{}, true, pictureSuffixes...)
	if err != nil {
		return nil, err
	}
	t := &LabelledPictures{files: files, classes: slices.Clone(names), positions: positions, channels: channels, read: read}
	if t.numbers, err = matchClasses(files.classes, names); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return t, nil
}

// Spec returns the specification of the samples.
func (t *LabelledPictures) Spec() Spec {
	return Spec{Name: "picture", Kind: Class, Metric: Accuracy, Channels: t.channels, Length: t.positions, Parts: 1,
		Classes: len(t.classes), Count: t.files.countSamples()}
}

// ClassNames returns the names of the model's classes.
func (t *LabelledPictures) ClassNames() []string { return slices.Clone(t.classes) }

func (t *LabelledPictures) isClassOrdered() bool { return true }

// Sample overwrites s with the values of a picture. It returns an error if the split has no
// sample i or the file cannot be read.
func (t *LabelledPictures) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	f := t.files.files[split][i]
	values, err := t.read(f.path)
	if err != nil {
		return err
	}
	if len(values) != t.positions*t.channels {
		return fmt.Errorf("%s: has %d values, %d positions of %d are needed", filepath.Base(f.path), len(values), t.positions, t.channels)
	}
	s.Values, s.Class = append(s.Values, values...), t.numbers[f.class]
	return nil
}

// Baselines scores the commonest class and the class with the nearest mean picture of 32×32 pixels.
// If there are no training pictures, it returns the commonest class of the judged pictures; if
// these have one class, it returns none. It returns an error if a picture cannot be read.
func (t *LabelledPictures) Baselines(n int) ([]Baseline, error) {
	const side, patch = 32, 4
	var list []Baseline
	var err error
	if len(t.files.files[Train]) > 0 {
		list, err = NumberBaselines(&Pictures{side, patch, t.files}, n)
	} else {
		w, spec := *t.files, t.Spec()
		w.files[Train] = w.files[spec.JudgedSplit()]
		list = make([]Baseline, 1)
		list[0], err = scoreMajority(&Pictures{side, patch, &w}, n)
		list[0].Learned = 0 // no picture that is not judged
	}
	list = unlessCertain(list)
	for i := range list {
		list[i].Advice = "take a model that was trained on such pictures"
	}
	return list, err
}

// TestOnly returns the task with all pictures in the test set.
func (t *LabelledPictures) TestOnly() *LabelledPictures {
	w, files := *t, *t.files
	files.files = [3][]classFile{Test: slices.Concat(t.files.files[:]...)}
	w.files = &files
	return &w
}
