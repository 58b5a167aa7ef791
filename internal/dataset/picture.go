package dataset

import (
	"bytes"
	"fmt"
	"image"
	"image/draw"
	_ "image/jpeg" // format of ReadPicture
	_ "image/png"  // format of ReadPicture
	"io"
)

// Picture is an image of any size.
type Picture struct {
	Height, Width int
	Pixels        []byte // [Height, Width, 3]: red, green, blue
}

// Limits of a picture: bytes of the file, and pixels. Above pictureFree the ratio of pixels to
// bytes is bounded as for gzip, too.
const (
	pictureBytes  = 256 << 20
	picturePixels = 64 << 20
	pictureFree   = 16 << 20
)

// ReadPicture reads a PNG or JPEG and applies the orientation of Exif. Transparent pixels are
// blended with black; 16 bits are reduced to 8. It returns an error if the file is malformed or
// exceeds a limit.
func ReadPicture(r io.Reader) (*Picture, error) {
	m, file, err := decodePicture(r)
	if err != nil {
		return nil, err
	}
	b := m.Bounds()
	rgba := image.NewRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	draw.Draw(rgba, rgba.Bounds(), m, b.Min, draw.Src)
	p := &Picture{Height: b.Dy(), Width: b.Dx(), Pixels: rgba.Pix[:0]}
	// Compact RGBA to RGB in place.
	for i := 0; i < len(rgba.Pix); i += 4 {
		p.Pixels = append(p.Pixels, rgba.Pix[i], rgba.Pix[i+1], rgba.Pix[i+2])
	}
	return p.orient(readOrientation(file)), nil
}

// decodePicture decodes a PNG or JPEG, and returns the bytes of its file. It returns an error if
// the file is malformed or exceeds a limit.
func decodePicture(r io.Reader) (m image.Image, file []byte, err error) {
	if file, err = io.ReadAll(io.LimitReader(r, pictureBytes+1)); err != nil {
		return nil, nil, err
	}
	if len(file) > pictureBytes {
		return nil, nil, fmt.Errorf("picture: more than %d bytes", pictureBytes)
	}
	c, kind, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, nil, fmt.Errorf("picture: %w", err)
	}
	most := max(pictureFree, inflateFree+inflateFactor*int64(len(file)))
	switch pixels := int64(c.Width) * int64(c.Height); {
	case c.Width < 1 || c.Height < 1:
		return nil, nil, fmt.Errorf("picture: it is %d wide and %d high", c.Width, c.Height)
	case pixels > picturePixels:
		return nil, nil, fmt.Errorf("picture: %d×%d pixels, at most %d are read", c.Width, c.Height, picturePixels)
	case pixels > most:
		return nil, nil, fmt.Errorf("picture: %d×%d pixels, at most %d are read from a file of %d bytes", c.Width, c.Height, most, len(file))
	}
	if m, _, err = image.Decode(bytes.NewReader(file)); err != nil {
		return nil, nil, fmt.Errorf("picture: %s: %w", kind, err)
	}
	return m, file, nil
}
