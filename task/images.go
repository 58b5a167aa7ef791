package task

import "github.com/farfield-ml/farfield/dataset"

// images are what a set of images has to learn from and to be judged by. The last
// tenth of the former is there to choose by.
type images struct {
	train, test *dataset.Images
}

// setPart puts images into one of the parts.
func (m *images) setPart(test bool, part *dataset.Images) {
	if test {
		m.test = part
	} else {
		m.train = part
	}
}

// appendPart puts images behind those of a part.
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

// countSamples returns the samples of each split.
func (m *images) countSamples() [3]int {
	n := m.train.N()
	return [3]int{n - n/10, n / 10, m.test.N()}
}

// locateImage returns where image i of a split lies.
func (m *images) locateImage(split Split, i int) (*dataset.Images, int) {
	switch split {
	case Test:
		return m.test, i
	case Valid:
		n := m.train.N()
		return m.train, n - n/10 + i
	}
	return m.train, i
}

// Picture returns an image in grey.
func (m *images) Picture(split Split, i int) (*dataset.Images, error) {
	spec := Spec{Name: "picture", Count: m.countSamples()}
	if err := spec.checkIndex(split, i); err != nil {
		return nil, err
	}
	all, i := m.locateImage(split, i)
	return onePicture(all.Height, all.Width, all.Channels, all.At(i)), nil
}

// onePicture returns an image of one channel or of red, green and blue in grey.
func onePicture(height, width, channels int, pixels []byte) *dataset.Images {
	m := &dataset.Images{Height: height, Width: width, Channels: channels, Pixels: pixels}
	if channels == 3 {
		return toGrey(m)
	}
	return m
}

// appendPatches appends the square patches of an image, from 0 to 1: patch by
// patch row by row, the pixels of each row by row, their channels beside each
// other. The side divides height and width.
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
