package task

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Image classifies CIFAR-10's images by their 1024 grey values, row by row, as tokens (Long
// Range Arena). The last 5,000 of the 50,000 training images are the validation set; 10,000
// are the test set.
type Image struct{ images }

func openImage(o *settingsReader) (Source, error) {
	return OpenImage(filepath.Join(o.Folder, "cifar10"))
}

// cifarClasses are the names of CIFAR-10's classes.
var cifarClasses = []string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}

// ClassNames returns the names of the classes.
func (t *Image) ClassNames() []string { return slices.Clone(cifarClasses) }

func askImage(*settingsReader, ModelInfo) (*Question, error) {
	return askPicture(32, 0, false, cifarClasses, len(cifarClasses)), nil
}

// OpenImage reads CIFAR-10 from a folder: binary batches, or sheets of PNG with labels. It
// returns an error if files are missing or malformed.
func OpenImage(folder string) (*Image, error) {
	m, err := readCIFAR10(folder, toGrey)
	return &Image{m}, err
}

// readCIFAR10 reads the binary batches in a folder or in its cifar-10-batches-bin, or else
// sheets with labels_51000.bin: cifar10_batch_0.png and on for training, cifar10_batch_50.png
// for test. keep converts the images of each file.
func readCIFAR10(folder string, keep func(*dataset.Images) *dataset.Images) (images, error) {
	var t images
	if bin, err := findFile(folder, "data_batch_1.bin", "cifar-10-batches-bin/data_batch_1.bin"); err == nil {
		dir := filepath.Dir(bin)
		for b := 1; b <= 6; b++ {
			name := fmt.Sprintf("data_batch_%d.bin", b)
			if b == 6 {
				name = "test_batch.bin"
			}
			m, err := dataset.ReadFile(filepath.Join(dir, name), dataset.ReadCIFAR10)
			if err == nil {
				err = t.appendPart(b == 6, keep(m))
			}
			if err != nil {
				return t, err
			}
		}
		return t, nil
	}
	labels, err := findFile(folder, "labels_51000.bin")
	if err != nil {
		return t, fmt.Errorf("%s: it holds neither data_batch_1.bin nor sheets with labels_51000.bin; %w", folder, ErrNoData)
	}
	classes, err := dataset.ReadFile(labels, dataset.ReadBytes(51000))
	if err != nil {
		return t, err
	}
	for b := range 51 {
		path, err := findFile(folder, fmt.Sprintf("cifar10_batch_%d.png", b))
		if err != nil {
			if b == 0 || b == 50 {
				return t, err
			}
			continue
		}
		m, err := dataset.ReadFile(path, dataset.ReadSheet)
		if err != nil {
			return t, err
		}
		if m.Len() != 1000 {
			return t, fmt.Errorf("%s: it has %d rows, 1000 are needed", path, m.Len())
		}
		m.Labels = classes[1000*b:][:1000]
		for i, y := range m.Labels {
			if y > 9 {
				return t, fmt.Errorf("%s: class of image %d is %d, there are 10", labels, 1000*b+i, y)
			}
		}
		if err := t.appendPart(b == 50, keep(m)); err != nil {
			return t, err
		}
	}
	return t, nil
}

// toGrey converts RGB images to grey, as tf.image.rgb_to_grayscale does:
// trunc(255.5·(0.2989 R + 0.5870 G + 0.1140 B)/255).
func toGrey(m *dataset.Images) *dataset.Images {
	g := &dataset.Images{Height: m.Height, Width: m.Width, Channels: 1, Labels: m.Labels, Pixels: make([]byte, len(m.Pixels)/3)}
	for i := range g.Pixels {
		g.Pixels[i] = GreyLevel(m.Pixels[3*i], m.Pixels[3*i+1], m.Pixels[3*i+2])
	}
	return g
}

// GreyLevel returns the grey level of an RGB pixel.
func GreyLevel(r, g, b byte) byte {
	return byte(255.5 / 255 * (0.2989*float64(r) + 0.5870*float64(g) + 0.1140*float64(b)))
}

// Spec returns the specification of the samples.
func (t *Image) Spec() Spec {
	return Spec{Name: "image", Kind: Class, Metric: Accuracy, Vocab: 256, Length: 1024, Parts: 1, Classes: 10, Count: t.countSamples()}
}

// Sample overwrites s with the grey values of an image. It returns an error if the split has
// no sample i.
func (t *Image) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	m, i := t.locateImage(split, i)
	s.Class = int32(m.Labels[i])
	for _, p := range m.Image(i) {
		s.Tokens = append(s.Tokens, int32(p))
	}
	return nil
}

// Baselines scores the commonest class and the class with the nearest mean image. It returns
// the errors of Sample.
func (t *Image) Baselines(n int) ([]Baseline, error) { return NumberBaselines(t, n) }
