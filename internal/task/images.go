package task

import "github.com/farfield-ml/farfield/internal/dataset"

// images holds the images of a data set. The last tenth of train is the validation set.
type images struct {
	train, test *dataset.Images
}

// setPart sets the test images, or the training images.
func (m *images) setPart(test bool, part *dataset.Images) {
	if test {
		m.test = part
	} else {
		m.train = part
	}
}

// appendPart appends to the test images, or to the training images. It returns an error if
// the sizes of the images differ.
func (m *images) appendPart(test bool, part *dataset.Images) error {
	have := m.train
	if test {
		have = m.test
	}
	if have == nil {
		m.setPart(test, part)
		return nil
	}
	return have.Append(part)
}

// countSamples returns the number of samples by split.
func (m *images) countSamples() [3]int {
	n := m.train.Len()
	return [3]int{n - n/10, n / 10, m.test.Len()}
}

// locateImage returns the images that hold image i of a split, and its index among them.
func (m *images) locateImage(split Split, i int) (*dataset.Images, int) {
	switch split {
	case Test:
		return m.test, i
	case Valid:
		n := m.train.Len()
		return m.train, n - n/10 + i
	}
	return m.train, i
}

// Picture returns image i of a split in grey. It returns an error if the split has no image
// i.
func (m *images) Picture(split Split, i int) (*dataset.Images, error) {
	spec := Spec{Name: "picture", Count: m.countSamples()}
	if err := spec.CheckIndex(split, i); err != nil {
		return nil, err
	}
	all, i := m.locateImage(split, i)
	return onePicture(all.Height, all.Width, all.Channels, all.Image(i)), nil
}

// onePicture returns an image of one channel, or an RGB image converted to grey.
func onePicture(height, width, channels int, pixels []byte) *dataset.Images {
	m := &dataset.Images{Height: height, Width: width, Channels: channels, Pixels: pixels}
	if channels == 3 {
		return toGrey(m)
	}
	return m
}

// appendPatches appends the square patches of an image [height, width, channels], scaled to
// [0, 1], as [height/side, width/side, side, side, channels]. side divides height and width.
func appendPatches(values []float32, pixels []byte, height, width, channels, side int) []float32 {
	for top := 0; top < height; top += side {
		for left := 0; left < width; left += side {
			for y := top; y < top+side; y++ {
				row := pixels[(y*width+left)*channels:][:side*channels]
				for _, p := range row {
					values = append(values, float32(p)/255)
				}
			}
		}
	}
	return values
}
