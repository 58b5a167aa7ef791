package pretrained

import "github.com/farfield-ml/farfield/model"

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
