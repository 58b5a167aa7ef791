package reproduce

import "testing"

// TestDrawing draws the first pixels of images with a small model.
func TestDrawing(t *testing.T) {
	p := pixelModel{Name: "small", Pixels: 12, Layers: 1}
	for way, m := range latencyMethods {
		c := p.config(m)
		c.Width, c.Hidden = 16, 16
		draw, err := drawing(c, 3, 5)
		if err == nil {
			err = draw()
		}
		if err != nil {
			t.Errorf("%s: %v", way, err)
		}
		if again, err := drawing(c, 3, 13); err == nil && again() == nil {
			t.Errorf("%s: drew 13 pixels of 12", way)
		}
	}
}
