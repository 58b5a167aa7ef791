package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/model"
)

// readModernBERT reads modernbert (Warner et al. 2024, arXiv 2412.13663).
func readModernBERT(f *fields, h head) *plan {
	p := &plan{prefix: "model", written: h != bodyHead, head: h, scores: h != bodyHead, padPosition: -1}
	c := &p.config
	attn, mlp, norm := f.flag("attention_bias", false), f.flag("mlp_bias", false), f.flag("norm_bias", false)
	*c = model.Config{
		Kind: model.Encoder, Mechanism: "softmax", Positions: model.Rotary, EntryNorm: true, NoFirstNorm: true,
		Vocab: f.count("vocab_size", 50368), Width: f.count("hidden_size", 768), Layers: f.count("num_hidden_layers", 22), Heads: f.count("num_attention_heads", 12),
		Hidden: f.count("intermediate_size", 1152), Activation: f.gatedActivation("hidden_activation", "gelu"), Context: f.count("max_position_embeddings", 8192),
		NormEps: f.number("norm_eps", 1e-5),
	}
	f.divides("num_attention_heads", c.Heads, c.Width)
	f.has("layer_norm_eps") // norm_eps and rotations are read in their place
	f.has("position_embedding_type")
	f.readLocalLayers(c)
	f.headOutputs(p)
	c.Biases = &model.Biases{QKV: attn, O: attn, MLP: mlp, Norm: norm}
	w := c.Width
	p.add("embeddings.tok_embeddings.weight", "embed.weight", c.Vocab, w)
	p.addNorm("embeddings.norm", "entry_norm", norm, w)
	for i := range c.Layers {
		to, from := fmt.Sprintf("layers.%d.", i), fmt.Sprintf("layers.%d.", i)
		if i > 0 {
			p.addNorm(from+"attn_norm", to+"attn_norm", norm, w)
		}
		p.addFused(from+"attn.Wqkv", attn, 0, []int{3 * w, w}, to+"attn.q_proj", to+"attn.k_proj", to+"attn.v_proj")
		p.addLinear(from+"attn.Wo", to+"attn.o_proj", attn, w, w)
		p.addNorm(from+"mlp_norm", to+"mlp_norm", norm, w)
		p.addFused(from+"mlp.Wi", mlp, 0, []int{2 * c.Hidden, w}, to+"mlp.gate_proj", to+"mlp.up_proj")
		p.addLinear(from+"mlp.Wo", to+"mlp.down_proj", mlp, w, c.Hidden)
	}
	p.addNorm("final_norm", "norm", norm, w)
	pooling, bias, act := f.text("classifier_pooling", "cls"), f.flag("classifier_bias", false), f.headActivation("classifier_activation", "gelu")
	decoder := f.flag("decoder_bias", true)
	if h != bodyHead {
		c.HeadHidden, c.HeadActivation, c.HeadNorm = w, act, true
		c.Biases.HeadHidden, c.Biases.Head = bias, true
		p.addLinear("head.dense", "head_hidden", bias, w, w)
		p.addNorm("head.norm", "head_norm", norm, w)
	}
	switch h {
	case sequenceHead:
		switch pooling {
		case "cls":
			c.Pool = model.PoolFirst
		case "mean":
			c.Pool = model.PoolMean
		default:
			f.fail("classifier_pooling", "is %q, cls or mean is supported", infile.Shorten(pooling))
		}
		p.addLinear("classifier", "head", true, c.Outputs, w)
	case tokenHead:
		p.addLinear("classifier", "head", true, c.Outputs, w)
	case maskedHead:
		c.Biases.Head = decoder
		name := ""
		if decoder {
			name = "decoder.bias"
		}
		p.addDecoder(f, "decoder", name)
	}
	p.unused = []string{"head.", "decoder.", "classifier."}
	return p
}

// readLocalLayers sets windows and rotations of modernbert.
func (f *fields) readLocalLayers(c *model.Config) {
	every := f.count("global_attn_every_n_layers", 3)
	span := f.count("local_attention", 128)/2 + 1
	c.LayerWindows = f.windows(c.Layers, span, func(i int) bool { return i%every != 0 })
	global, local := f.number("global_rope_theta", 160000), f.number("local_rope_theta", 10000)
	var full, sliding ropeFields
	full.theta, sliding.theta = global, local
	f.readLayerRopes(&full, &sliding)
	if f.has("rope_scaling") {
		f.fail("rope_scaling", "is %s, which modernbert does not have", shorten(f.values["rope_scaling"]))
	}
	f.setLayerRopes(c, full, sliding)
}

// addFused adds a tensor with the rows of several projections, and their biases.
func (p *plan) addFused(name string, bias bool, block int, shape []int, parts ...string) {
	for _, kind := range []string{".weight", ".bias"} {
		if kind == ".bias" && !bias {
			continue
		}
		w := weight{name: name + kind, shape: shape, block: block}
		if kind == ".bias" {
			w.shape = shape[:1]
		}
		for _, part := range parts {
			w.parts = append(w.parts, part+kind)
		}
		p.weights = append(p.weights, w)
	}
}
