package published

import (
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/model"
)

// readGemma2 reads gemma2 (Gemma Team 2024, arXiv 2408.00118), with capped scores and logits.
func readGemma2(f *fields, h head) *plan {
	f.setDefaults(map[string]string{"vocab_size": "256000", "max_position_embeddings": "8192", "attn_logit_softcapping": "50", "final_logit_softcapping": "30"})
	f.setGemmaDefaults()
	p := f.decoder(h, 1e-6)
	f.readGemmaLayers(p, 2)
	if f.has("attn_logit_softcapping") {
		p.config.Set["cap"] = formatSetting(f.number("attn_logit_softcapping", 0))
	}
	p.addLlamaLayers(f)
	return p
}

// readGemma3 reads gemma3_text (Gemma Team 2025, arXiv 2503.19786): the part of gemma3 that reads texts,
// whose layers with a window have rotations of their own.
func readGemma3(f *fields, h head) *plan {
	f.setDefaults(map[string]string{"vocab_size": "262208", "max_position_embeddings": "131072"})
	f.setGemmaDefaults()
	p := f.decoderSizes(h, 1e-6)
	c := &p.config
	every := f.count("sliding_window_pattern", 6)
	f.has("_sliding_window_pattern") // layer_types says it
	f.readGemmaLayers(p, every)
	c.QKNorm = true
	f.needs("attn_logit_softcapping")
	full := ropeFields{theta: f.number("rope_theta", 1e6)}
	sliding := ropeFields{theta: f.number("rope_local_base_freq", 1e4)}
	f.readLayerRopes(&full, &sliding)
	if o := f.object("rope_scaling"); o != nil {
		f.readRope(o, &full)
	}
	f.setLayerRopes(c, full, sliding)
	p.addLlamaLayers(f)
	return p
}

// setGemmaDefaults sets the members without which gemma2 and gemma3_text have the same values.
func (f *fields) setGemmaDefaults() {
	f.setDefaults(map[string]string{
		"hidden_size": "2304", "intermediate_size": "9216", "num_hidden_layers": "26", "num_attention_heads": "8", "num_key_value_heads": "4", "head_dim": "256",
		"tie_word_embeddings": "true", "pad_token_id": "0",
	})
}

// readGemmaLayers reads what gemma2 and gemma3_text have in common. Without layer_types every layer has
// a window but those with a number that every divides.
func (f *fields) readGemmaLayers(p *plan, every int) {
	c := &p.config
	c.HeadWidth = 0
	f.headWidth(c, 256)
	bias := f.flag("attention_bias", false)
	c.Biases, c.NormOffset, c.BranchNorm, c.EntryScale = &model.Biases{QKV: bias, O: bias}, true, true, math.Sqrt(float64(c.Width))
	c.Activation = f.gatedActivation("hidden_activation", "gelu_pytorch_tanh")
	f.needs("hidden_act", `"gelu_pytorch_tanh"`, `"gelu"`) // transformers reads hidden_activation in its place
	f.needs("use_bidirectional_attention", "false")
	c.LayerWindows = f.windows(c.Layers, f.windowSpan(4096), func(i int) bool { return (i+1)%every != 0 })
	c.Set = map[string]string{}
	width := c.HeadWidth
	if width == 0 {
		width = c.Width / c.Heads
	}
	if n := f.count("query_pre_attn_scalar", 256); n != width {
		c.Set["scale"] = formatSetting(1 / math.Sqrt(float64(n)))
	}
	if f.has("final_logit_softcapping") && p.head == nextHead {
		c.LogitCap = f.number("final_logit_softcapping", 0)
	}
}

// formatSetting returns a number as a setting of a mechanism.
func formatSetting(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
