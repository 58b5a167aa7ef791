package published

import (
	"math"

	"github.com/farfield-ml/farfield/model"
)

// readGemma reads gemma (Mesnard et al. 2024, arXiv 2403.08295).
func readGemma(f *fields, h head) *plan {
	p := f.decoder(h, 1e-6)
	c := &p.config
	c.HeadWidth = 0
	f.headWidth(c, 256)
	bias := f.flag("attention_bias", false)
	c.Biases, c.NormOffset, c.EntryScale = &model.Biases{QKV: bias, O: bias}, true, math.Sqrt(float64(c.Width))
	f.needsFullLayers(c.Layers)
	f.needs("use_bidirectional_attention", "false")
	f.needs("hidden_activation", `"gelu_pytorch_tanh"`)
	// Files with gelu mean its tanh form (transformers, configuration_gemma.py).
	f.needs("hidden_act", `"gelu_pytorch_tanh"`, `"gelu"`)
	c.Activation = model.TanhGEGLU
	if !f.has("tie_word_embeddings") {
		f.values["tie_word_embeddings"] = []byte("true")
	}
	f.setDefaults(map[string]string{"pad_token_id": "0"})
	p.addLlamaLayers(f)
	return p
}
