package dataset

import (
	"errors"
	"fmt"
	"io"
)

// Images holds images of one size, with their classes.
type Images struct {
	Height, Width, Channels int
	Pixels                  []byte  // [N, Height, Width, Channels]
	Labels                  []uint8 // [N]; nil: no labels
}

// Len returns the number of images, or 0 if their size is 0.
func (m *Images) Len() int {
	if m.imageSize() <= 0 {
		return 0
	}
	return len(m.Pixels) / m.imageSize()
}

// imageSize returns the number of values of an image.
func (m *Images) imageSize() int { return m.Height * m.Width * m.Channels }

// Image returns the values of image i [Height, Width, Channels], without copying them from Pixels.
func (m *Images) Image(i int) []byte { return m.Pixels[i*m.imageSize():][:m.imageSize()] }

// Append appends the images of o to m. It returns an error if o is nil, the sizes differ or only
// one of them has labels.
func (m *Images) Append(o *Images) error {
	if o == nil {
		return errors.New("images: there are none to append")
	}
	if o.Height != m.Height || o.Width != m.Width || o.Channels != m.Channels {
		return fmt.Errorf("images: of %d×%d×%d cannot follow those of %d×%d×%d",
			o.Height, o.Width, o.Channels, m.Height, m.Width, m.Channels)
	}
	if (o.Labels == nil) != (m.Labels == nil) {
		return fmt.Errorf("labels: there are %d for %d images, and %d for %d", len(m.Labels), m.Len(), len(o.Labels), o.Len())
	}
	m.Pixels = append(m.Pixels, o.Pixels...)
	m.Labels = append(m.Labels, o.Labels...)
	return nil
}

// Dimensions of CIFAR-10.
const (
	cifarSide    = 32
	cifarPixels  = cifarSide * cifarSide
	cifarClasses = 10
)

// ReadCIFAR10 reads a batch of CIFAR-10's binary version: for each image its class, then its
// red, green and blue planes. It returns an error if a record is truncated or its class unknown.
func ReadCIFAR10(r io.Reader) (*Images, error) {
	const record = 1 + 3*cifarPixels
	m := &Images{Height: cifarSide, Width: cifarSide, Channels: 3}
	return m, m.readRecords(r, record, cifarClasses, func(dst, src []byte) {
		for p := range cifarPixels {
			for c := range 3 {
				dst[3*p+c] = src[c*cifarPixels+p]
			}
		}
	})
}

// recordPixels bounds the pixels of a record's image.
const recordPixels = 16 << 20

// ReadImageRecords returns a reader of grey images: for each a byte with its class, then
// height·width bytes of pixels. The reader returns an error if the size is out of range, a record
// is truncated or its class is not below classes.
func ReadImageRecords(height, width, classes int) func(io.Reader) (*Images, error) {
	return func(r io.Reader) (*Images, error) {
		if height < 1 || width < 1 || int64(height) > recordPixels/int64(width) {
			return nil, fmt.Errorf("records: images of %d×%d, 1 to %d pixels are read", height, width, recordPixels)
		}
		m := &Images{Height: height, Width: width, Channels: 1}
		return m, m.readRecords(r, 1+height*width, classes, func(dst, src []byte) { copy(dst, src) })
	}
}

// readRecords reads all records of r: a class byte and the values of an image. put copies the
// values into the order of Pixels.
func (m *Images) readRecords(r io.Reader, size, classes int, put func(dst, src []byte)) error {
	record := make([]byte, size)
	for n := 0; ; n++ {
		got, err := io.ReadFull(r, record)
		switch {
		case err == io.EOF && n > 0:
			return nil
		case err == io.EOF:
			return fmt.Errorf("records: there is none")
		case err == io.ErrUnexpectedEOF:
			return fmt.Errorf("record %d: truncated: %d of %d bytes", n, got, size)
		case err != nil:
			return fmt.Errorf("record %d: %w", n, err)
		}
		if int(record[0]) >= classes {
			return fmt.Errorf("record %d: class is %d, there are %d", n, record[0], classes)
		}
		m.Labels = append(m.Labels, record[0])
		at := len(m.Pixels)
		m.Pixels = append(m.Pixels, record[1:]...)
		put(m.Pixels[at:], record[1:])
	}
}

// ReadSheet reads a PNG whose rows are images of 32×32 pixels, the layout of CIFAR-10 for
// browsers. The result has no labels. It returns an error if the PNG is malformed or its width is
// not 1024.
func ReadSheet(r io.Reader) (*Images, error) {
	p, err := ReadPicture(r)
	if err != nil {
		return nil, err
	}
	if p.Width != cifarPixels {
		return nil, fmt.Errorf("width: it is %d, a sheet of images of %d×%d has %d", p.Width, cifarSide, cifarSide, cifarPixels)
	}
	return &Images{Height: cifarSide, Width: cifarSide, Channels: 3, Pixels: p.Pixels}, nil
}
