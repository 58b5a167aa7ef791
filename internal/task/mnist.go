package task

import (
	"fmt"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// MNIST classifies handwritten digits: 54,000 training images, 6,000 validation images (the
// last of the training files) and 10,000 test images.
type MNIST struct {
	images
	patch      int // side of the patches; 0: pixels
	trainCount int // how many of the first images are for training; 0: all
}

var mnistSettings = []Setting{
	{"as", "pixels", "pixels: 784 tokens of 256 grey values; patches: values from 0 to 1"},
	{"patch", "4", "side of a patch, which divides 28 (FAST: 4, 49 patches)"},
	{"learn", "0", "images to learn from, the first; 0 for all 54,000"},
}

func openMNIST(o *settingsReader) (Source, error) {
	patch, err := o.patchSide()
	if err == nil {
		err = digitPatch(patch)
	}
	if err != nil {
		return nil, err
	}
	t, err := OpenMNIST(filepath.Join(o.Folder, "mnist"), patch)
	if err != nil {
		return nil, err
	}
	t.trainCount = o.int("learn")
	return t, checkRange("learn", t.trainCount, 0, t.countSamples()[Train])
}

// askMNIST returns the question for the digit of a picture, white on black.
func askMNIST(o *settingsReader, _ ModelInfo) (*Question, error) {
	patch, err := o.patchSide()
	if err == nil {
		err = digitPatch(patch)
	}
	if err != nil {
		return nil, err
	}
	return askPicture(28, patch, false, nil, 10), nil
}

// digitPatch returns an error if the side of a patch does not divide 28.
func digitPatch(patch int) error {
	if patch > 0 && 28%patch != 0 {
		return fmt.Errorf("patch: it is %d, a divisor of 28 is needed", patch)
	}
	return nil
}

// OpenMNIST reads the four original files in a folder, plain or gzip. Samples are pixels if
// patch is 0, otherwise patches of that side. It returns an error if a file is missing or
// malformed.
func OpenMNIST(folder string, patch int) (*MNIST, error) {
	t := &MNIST{patch: patch}
	for part, name := range []string{"train", "t10k"} {
		var files [2]*dataset.IDX
		for k, kind := range []string{"-images-idx3-ubyte", "-labels-idx1-ubyte"} {
			path, err := findFile(folder, name+kind, name+kind+".gz")
			if err != nil {
				return nil, err
			}
			if files[k], err = dataset.ReadFile(path, dataset.ReadIDX); err != nil {
				return nil, err
			}
		}
		pixels, labels := files[0], files[1]
		if len(pixels.Shape) != 3 || pixels.Shape[1] != 28 || pixels.Shape[2] != 28 || len(labels.Shape) != 1 || labels.Shape[0] != pixels.Shape[0] {
			return nil, fmt.Errorf("%s: %s: images have shape %v and labels %v; [N 28 28] and [N] are needed", folder, name, pixels.Shape, labels.Shape)
		}
		for i, y := range labels.Data {
			if y > 9 {
				return nil, fmt.Errorf("%s: %s: label %d is %d, there are 10", folder, name, i, y)
			}
		}
		t.setPart(part == 1, &dataset.Images{Height: 28, Width: 28, Channels: 1, Pixels: pixels.Data, Labels: labels.Data})
	}
	return t, nil
}

// Spec returns the specification of the samples.
func (t *MNIST) Spec() Spec {
	s := Spec{Name: "mnist", Kind: Class, Metric: Accuracy, Vocab: 256, Length: 784, Parts: 1, Classes: 10, Count: t.countSamples()}
	if t.trainCount > 0 {
		s.Count[Train] = t.trainCount
	}
	if t.patch > 0 {
		s.Vocab, s.Channels, s.Length = 0, t.patch*t.patch, 784/(t.patch*t.patch)
	}
	return s
}

// Sample overwrites s with the pixels of an image, row by row, or with its patches. It returns
// an error if the split has no sample i.
func (t *MNIST) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	m, i := t.locateImage(split, i)
	s.Class = int32(m.Labels[i])
	if t.patch > 0 {
		s.Values = appendPatches(s.Values, m.Image(i), 28, 28, 1, t.patch)
		return nil
	}
	for _, p := range m.Image(i) {
		s.Tokens = append(s.Tokens, int32(p))
	}
	return nil
}

// Baselines scores the commonest digit and the digit with the nearest mean image. It returns
// the errors of Sample.
func (t *MNIST) Baselines(n int) ([]Baseline, error) { return NumberBaselines(t, n) }
