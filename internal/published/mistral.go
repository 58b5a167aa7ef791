package published

import "github.com/farfield-ml/farfield/model"

// readMistral reads mistral (Jiang et al. 2023, arXiv 2310.06825).
func readMistral(f *fields, h head) *plan {
	p := f.decoder(h, 1e-6)
	c := &p.config
	c.Biases = &model.Biases{}
	f.sameWindows(c, 4096)
	p.addLlamaLayers(f)
	return p
}

// sameWindows sets the windows of layers, of which all have the span of sliding_window; byDefault is
// that span without the member.
func (f *fields) sameWindows(c *model.Config, byDefault int) {
	span := f.windowSpan(byDefault)
	c.LayerWindows = f.windows(c.Layers, span, func(int) bool { return span > 0 })
	for i, w := range c.LayerWindows {
		if w == 0 {
			f.fail("layer_types", "layer %d has no window, but sliding_window is %d for all layers", i, span)
		}
	}
	if c.LayerWindows == nil && span > 0 {
		f.fail("layer_types", "no layer has a window, but sliding_window is %d for all layers", span)
	}
}
