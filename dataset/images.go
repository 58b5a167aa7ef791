package dataset

import (
	"errors"
	"fmt"
	"io"
)

// Images are pictures of one size, each with a class.
type Images struct {
	Height, Width, Channels int
	Pixels                  []byte  // [N, Height, Width, Channels]
	Labels                  []uint8 // [N]; nil where the file has none
}

// N returns the number of images, 0 where they have no size.
func (m *Images) N() int {
	if m.size() <= 0 {
		return 0
	}
	return len(m.Pixels) / m.size()
}

// size is the number of values of an image.
func (m *Images) size() int { return m.Height * m.Width * m.Channels }

// At returns the values of image i: row by row, the channels of a pixel beside
// each other.
func (m *Images) At(i int) []byte { return m.Pixels[i*m.size():][:m.size()] }

// Append puts other images of the same size behind those of m.
func (m *Images) Append(o *Images) error {
	if o == nil {
		return errors.New("images: there are none to append")
	}
	if o.Height != m.Height || o.Width != m.Width || o.Channels != m.Channels {
		return fmt.Errorf("images: of %d×%d×%d cannot follow those of %d×%d×%d",
			o.Height, o.Width, o.Channels, m.Height, m.Width, m.Channels)
	}
	if (o.Labels == nil) != (m.Labels == nil) {
		return fmt.Errorf("labels: there are %d for %d images, and %d for %d", len(m.Labels), m.N(), len(o.Labels), o.N())
	}
	m.Pixels = append(m.Pixels, o.Pixels...)
	m.Labels = append(m.Labels, o.Labels...)
	return nil
}

// CIFAR-10's images.
const (
	cifarSide    = 32
	cifarPixels  = cifarSide * cifarSide
	cifarClasses = 10
)

// ReadCIFAR10 reads a batch of CIFAR-10's binary version: for each image its
// class and then its red, green and blue values.
func ReadCIFAR10(r io.Reader) (*Images, error) {
	const record = 1 + 3*cifarPixels
	m := &Images{Height: cifarSide, Width: cifarSide, Channels: 3}
	return m, m.records(r, record, cifarClasses, func(dst, src []byte) {
		for p := range cifarPixels {
			for c := range 3 {
				dst[3*p+c] = src[c*cifarPixels+p]
			}
		}
	})
}

// recordPixels is the most of an image of a record.
const recordPixels = 16 << 20

// ReadImageRecords returns a reader of grey images of that size and with that
// many classes: for each its class and then its pixels, one byte each. A size below
// 1, or one beyond 16 million pixels, is an error of the reader.
func ReadImageRecords(height, width, classes int) func(io.Reader) (*Images, error) {
	return func(r io.Reader) (*Images, error) {
		if height < 1 || width < 1 || int64(height) > recordPixels/int64(width) {
			return nil, fmt.Errorf("records: images of %d×%d, 1 to %d pixels are read", height, width, recordPixels)
		}
		m := &Images{Height: height, Width: width, Channels: 1}
		return m, m.records(r, 1+height*width, classes, func(dst, src []byte) { copy(dst, src) })
	}
}

// records reads records of a class and the values of an image, which put lays
// into their order, to the end of r.
func (m *Images) records(r io.Reader, size, classes int, put func(dst, src []byte)) error {
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

// ReadSheet reads a PNG whose rows are images of 32×32 pixels, row by row, which
// is how CIFAR-10 is laid out for browsers. It has no labels.
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
