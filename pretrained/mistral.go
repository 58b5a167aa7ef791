package pretrained

import "github.com/farfield-ml/farfield/model"

// readMistral reads mistral (Jiang et al. 2023, arXiv 2310.06825).
func readMistral(f *fields, h head) *plan {
	p := f.decoder(h, 1e-6)
	c := &p.config
	c.Biases = &model.Biases{}
	span := 0
	if f.has("sliding_window") {
		span = f.count("sliding_window", 0)
	}
	c.LayerWindows = f.windows(c.Layers, span, func(int) bool { return span > 0 })
	p.addLlamaLayers(f)
	return p
}
