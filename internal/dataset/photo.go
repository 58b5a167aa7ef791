package dataset

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"io"
)

// ReadPhoto reads a PNG or JPEG to the same pixels as Pillow's exif_transpose and convert("RGB"):
// transparency is dropped, 16 bits are reduced to 8, 16 bits of grey are clipped at 255, chroma is
// interpolated, and the orientation of Exif is applied. It returns an error if the file is
// malformed or exceeds a limit.
func ReadPhoto(r io.Reader) (*Picture, error) {
	m, file, err := decodePicture(r)
	if err != nil {
		return nil, err
	}
	b := m.Bounds()
	p := &Picture{Height: b.Dy(), Width: b.Dx(), Pixels: make([]byte, 3*b.Dx()*b.Dy())}
	p.setColors(m)
	return p.orient(readOrientation(file)), nil
}

// setColors sets the pixels to the colours of an image of the same size, without transparency.
func (p *Picture) setColors(m image.Image) {
	switch m := m.(type) {
	case *image.YCbCr:
		p.setYCbCr(m)
	case *image.Gray:
		p.eachRow(func(y int, row []byte) { setGrey(row, m.Pix[y*m.Stride:]) })
	case *image.Gray16:
		p.eachRow(func(y int, row []byte) { setClipped(row, m.Pix[y*m.Stride:]) })
	case *image.RGBA:
		p.eachRow(func(y int, row []byte) { setStrided(row, m.Pix[y*m.Stride:], 4, 1) })
	case *image.NRGBA:
		p.eachRow(func(y int, row []byte) { setStrided(row, m.Pix[y*m.Stride:], 4, 1) })
	case *image.RGBA64:
		p.eachRow(func(y int, row []byte) { setStrided(row, m.Pix[y*m.Stride:], 8, 2) })
	case *image.NRGBA64:
		p.eachRow(func(y int, row []byte) { setStrided(row, m.Pix[y*m.Stride:], 8, 2) })
	case *image.CMYK:
		p.eachRow(func(y int, row []byte) { setCMYK(row, m.Pix[y*m.Stride:]) })
	default: // palettes
		low := m.Bounds().Min
		p.eachRow(func(y int, row []byte) {
			for x := 0; 3*x < len(row); x++ {
				c := color.NRGBAModel.Convert(m.At(low.X+x, low.Y+y)).(color.NRGBA)
				row[3*x], row[3*x+1], row[3*x+2] = c.R, c.G, c.B
			}
		})
	}
}

// eachRow calls f with each row of pixels.
func (p *Picture) eachRow(f func(y int, row []byte)) {
	for y := range p.Height {
		f(y, p.Pixels[3*y*p.Width:][:3*p.Width])
	}
}

// setGrey sets three channels to one.
func setGrey(row, grey []byte) {
	for x := 0; 3*x < len(row); x++ {
		row[3*x], row[3*x+1], row[3*x+2] = grey[x], grey[x], grey[x]
	}
}

// setClipped sets three channels to one of 16 bits, at most 255.
func setClipped(row, grey []byte) {
	for i := range row {
		row[i] = byte(min(binary.BigEndian.Uint16(grey[i/3*2:]), 255))
	}
}

// setStrided copies the first bytes of three channels, which are channel bytes apart, of pixels
// that are pixel bytes apart.
func setStrided(row, from []byte, pixel, channel int) {
	for x := 0; 3*x < len(row); x++ {
		row[3*x], row[3*x+1], row[3*x+2] = from[x*pixel], from[x*pixel+channel], from[x*pixel+2*channel]
	}
}

// setCMYK converts ink to light: 255 − k less its share c/255, rounded.
func setCMYK(row, ink []byte) {
	for i := range row {
		at := i / 3 * 4
		light := 255 - int(ink[at+3])
		row[i] = byte(light - (int(ink[at+i%3])*light*2+255)/510)
	}
}

// setYCbCr converts luma and chroma to colours (ITU-T T.871) in fixed point of 16 bits. Chroma of
// half the columns or rows is interpolated with weights 3/4 and 1/4, as libjpeg does.
func (p *Picture) setYCbCr(m *image.YCbCr) {
	cb, cr := newChroma(m, m.Cb), newChroma(m, m.Cr)
	clip := func(x int) byte { return byte(min(max(x, 0), 255)) }
	p.eachRow(func(y int, row []byte) {
		luma, b, r := m.Y[y*m.YStride:], cb.row(y), cr.row(y)
		for x := 0; 3*x < len(row); x++ {
			l, b, r := int(luma[x]), int(b[x])-128, int(r[x])-128
			row[3*x] = clip(l + (91881*r+1<<15)>>16)
			row[3*x+1] = clip(l + (-22554*b-46802*r+1<<15)>>16)
			row[3*x+2] = clip(l + (116130*b+1<<15)>>16)
		}
	})
}

// chroma is a channel of colour with fewer samples than pixels.
type chroma struct {
	samples               []byte
	stride, width, height int
	columns, rows         int // pixels of a sample
	interpolated          bool
	sums                  []int  // [width] of two rows, weighted
	out                   []byte // a row of pixels
}

func newChroma(m *image.YCbCr, samples []byte) *chroma {
	c := &chroma{samples: samples, stride: m.CStride, columns: 1, rows: 1}
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		c.columns = 2
	case image.YCbCrSubsampleRatio420:
		c.columns, c.rows = 2, 2
	case image.YCbCrSubsampleRatio440:
		c.rows = 2
	case image.YCbCrSubsampleRatio411:
		c.columns = 4
	case image.YCbCrSubsampleRatio410:
		c.columns, c.rows = 4, 2
	}
	c.width, c.height = (m.Rect.Dx()+c.columns-1)/c.columns, (m.Rect.Dy()+c.rows-1)/c.rows
	c.interpolated = c.columns == 2 && c.width > 2 || c.columns == 1
	c.sums, c.out = make([]int, c.width), make([]byte, c.width*c.columns)
	return c
}

// row returns the channel in a row of pixels. It is valid until the next call.
func (c *chroma) row(y int) []byte {
	near := c.samples[y/c.rows*c.stride:][:c.width]
	if !c.interpolated {
		for x := range c.out {
			c.out[x] = near[x/c.columns]
		}
		return c.out
	}
	// In units of 1/(4·4), 1/4 or 1; halves round up and down in turns.
	unit := 1
	for x, s := range near {
		c.sums[x] = int(s)
	}
	if c.rows == 2 {
		far := c.samples[min(max(y/2-1+y%2*2, 0), c.height-1)*c.stride:][:c.width]
		for x, s := range far {
			c.sums[x] = 3*c.sums[x] + int(s)
		}
		unit = 4
	}
	if c.columns == 1 {
		round := 0
		if c.rows == 2 {
			round = 1 + y%2
		}
		for x, s := range c.sums {
			c.out[x] = byte((s + round) / unit)
		}
		return c.out
	}
	unit *= 4
	left, right := 1, 2
	if c.rows == 2 {
		left, right = 8, 7
	}
	for x, s := range c.sums {
		c.out[2*x] = byte((3*s + c.sums[max(x-1, 0)] + left) / unit)
		c.out[2*x+1] = byte((3*s + c.sums[min(x+1, c.width-1)] + right) / unit)
	}
	return c.out
}

// orient returns the picture turned to an orientation of Exif, 1 to 8. Others leave it.
func (p *Picture) orient(orientation int) *Picture {
	if orientation < 2 || orientation > 8 {
		return p
	}
	q := &Picture{Height: p.Height, Width: p.Width, Pixels: make([]byte, 0, len(p.Pixels))}
	swapped := orientation >= 5
	if swapped {
		q.Height, q.Width = p.Width, p.Height
	}
	for i := range q.Height {
		for j := range q.Width {
			y, x := i, j
			if swapped {
				y, x = j, i
			}
			switch orientation {
			case 2, 8:
				x = p.Width - 1 - x
			case 4, 6:
				y = p.Height - 1 - y
			case 3, 7:
				y, x = p.Height-1-y, p.Width-1-x
			}
			q.Pixels = append(q.Pixels, p.Pixels[3*(y*p.Width+x):][:3]...)
		}
	}
	return q
}

// readOrientation returns the orientation of Exif in a PNG or JPEG; 0: there is none.
func readOrientation(file []byte) int {
	if bytes.HasPrefix(file, []byte("\x89PNG")) {
		for at := 8; at+8 <= len(file); {
			size := int64(binary.BigEndian.Uint32(file[at:]))
			if int64(at)+8+size > int64(len(file)) {
				return 0
			}
			if string(file[at+4:at+8]) == "eXIf" {
				return parseOrientation(file[at+8:][:size])
			}
			at += 12 + int(size)
		}
		return 0
	}
	for at := 2; at+4 <= len(file) && file[at] == 0xff; {
		marker, size := file[at+1], int(binary.BigEndian.Uint16(file[at+2:]))
		if marker == 0xda || size < 2 || at+2+size > len(file) { // a scan
			return 0
		}
		if part, is := bytes.CutPrefix(file[at+4:at+2+size], []byte("Exif\x00\x00")); is && marker == 0xe1 {
			return parseOrientation(part)
		}
		at += 2 + size
	}
	return 0
}

// parseOrientation returns the orientation in the first directory of a TIFF; 0: there is none.
func parseOrientation(tiff []byte) int {
	const tag, short = 0x0112, 3
	if len(tiff) < 8 {
		return 0
	}
	var order binary.ByteOrder = binary.LittleEndian
	if tiff[0] == 'M' {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(tiff[4:]))
	if at+2 > int64(len(tiff)) {
		return 0
	}
	entries := tiff[at+2:]
	for range order.Uint16(tiff[at:]) {
		if len(entries) < 12 {
			return 0
		}
		if order.Uint16(entries) == tag && order.Uint16(entries[2:]) == short {
			return int(order.Uint16(entries[8:]))
		}
		entries = entries[12:]
	}
	return 0
}
