package generate

import (
	"fmt"
	"image"
	"image/color"
	"math"

	"github.com/farfield-ml/farfield/tensor"
)

// gridGap is the number of pixels between images of a grid.
const gridGap = 2

// ComposeGrid arranges images [n][s.Size()] in a grid that is about square. It returns an error if
// there are none, or if an image or its channels do not fit s.
func ComposeGrid(s ImageShape, images [][]byte) (image.Image, error) {
	if len(images) == 0 || s.Height < 1 || s.Width < 1 || s.Channels != 1 && s.Channels != 3 {
		return nil, fmt.Errorf("grid: %d images of %d×%d pixels of %d channels", len(images), s.Height, s.Width, s.Channels)
	}
	size := tensor.Size(s.Height, s.Width, s.Channels)
	for i, levels := range images {
		if len(levels) != size {
			return nil, fmt.Errorf("grid: image %d has %d levels, %d×%d pixels of %d channels need %d", i, len(levels), s.Height, s.Width, s.Channels, size)
		}
	}
	across := int(math.Ceil(math.Sqrt(float64(len(images)))))
	down := (len(images) + across - 1) / across
	grid := image.NewRGBA(image.Rect(0, 0, across*(s.Width+gridGap)+gridGap, down*(s.Height+gridGap)+gridGap))
	for i := range grid.Pix {
		grid.Pix[i] = 0x80
		if i%4 == 3 {
			grid.Pix[i] = 0xff
		}
	}
	for i, levels := range images {
		x0, y0 := gridGap+i%across*(s.Width+gridGap), gridGap+i/across*(s.Height+gridGap)
		for p := range s.Height * s.Width {
			c := color.RGBA{levels[p*s.Channels], levels[p*s.Channels], levels[p*s.Channels], 0xff}
			if s.Channels == 3 {
				c.G, c.B = levels[p*3+1], levels[p*3+2]
			}
			grid.SetRGBA(x0+p%s.Width, y0+p/s.Width, c)
		}
	}
	return grid, nil
}
