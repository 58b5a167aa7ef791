package published

import "github.com/farfield-ml/farfield/model"

// readQwen2 reads qwen2 (Yang et al. 2024, arXiv 2407.10671).
func readQwen2(f *fields, h head) *plan {
	p := f.decoder(h, 1e-6)
	p.config.Biases = &model.Biases{QKV: true}
	f.readQwenWindows(&p.config)
	p.addLlamaLayers(f)
	return p
}

// readQwen3 reads qwen3 (Yang et al. 2025, arXiv 2505.09388).
func readQwen3(f *fields, h head) *plan {
	p := f.decoder(h, 1e-6)
	c := &p.config
	c.HeadWidth = 0
	f.headWidth(c, 128)
	bias := f.flag("attention_bias", false)
	c.Biases, c.QKNorm = &model.Biases{QKV: bias, O: bias}, true
	f.readQwenWindows(c)
	p.addLlamaLayers(f)
	return p
}

// readQwenWindows sets the windows of qwen2 and qwen3: of the layers from
// max_window_layers on.
func (f *fields) readQwenWindows(c *model.Config) {
	f.needs("use_mrope", "false")
	first, span := 28, f.windowSpan(4096)
	f.decode("max_window_layers", "an integer", &first)
	if !f.flag("use_sliding_window", false) {
		span = 0
	}
	c.LayerWindows = f.windows(c.Layers, span, func(i int) bool { return span > 0 && i >= first })
}
