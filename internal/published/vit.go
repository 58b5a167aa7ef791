package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readViT reads vit (Dosovitskiy et al. 2021, arXiv 2010.11929). A patch is one position
// with the numbers of its pixels.
func readViT(f *fields, h head) *plan {
	p := &plan{prefix: "vit", written: h != bodyHead, head: h, scores: h != bodyHead, padPosition: -1, rawHidden: true}
	p.vision = &vision{channels: f.count("num_channels", 3), size: f.count("image_size", 224), patch: f.count("patch_size", 16)}
	v := p.vision
	if v.size%v.patch != 0 || v.size/v.patch > 4096 {
		f.fail("patch_size", "%d does not divide image_size %d into at most 4096 patches a side", v.patch, v.size)
		v.patch = v.size
	}
	side := v.size / v.patch
	if v.channels > 1<<10 || v.patch > 1<<10 {
		f.fail("patch_size", "is %d with num_channels %d, at most 1024 are supported", v.patch, v.channels)
		v.channels, v.patch = 1, 1
	}
	qkv := f.flag("qkv_bias", true)
	c := &p.config
	*c = model.Config{
		Kind: model.Encoder, Mechanism: "softmax", Positions: model.Learned, Pool: model.PoolCLS, Bias: true,
		Inputs: v.channels * v.patch * v.patch, Context: side * side, Outputs: 1,
		Width: f.count("hidden_size", 768), Layers: f.count("num_hidden_layers", 12), Heads: f.count("num_attention_heads", 12),
		Hidden: f.count("intermediate_size", 3072), Activation: f.activation("hidden_act", "gelu"), NormEps: f.number("layer_norm_eps", 1e-12),
	}
	if !qkv {
		b := biasesAll(true)
		b.QKV = false
		c.Biases = &b
	}
	f.divides("num_attention_heads", c.Heads, c.Width)
	w := c.Width
	f.needs("pooler_act", `"tanh"`)
	if n := f.count("pooler_output_size", w); n != w {
		f.fail("pooler_output_size", "is %d, hidden_size %d is supported", n, w)
	}
	p.add("embeddings.cls_token", "cls.weight", 1, 1, w)
	p.add("embeddings.patch_embeddings.projection.weight", "input.weight", w, v.channels, v.patch, v.patch)
	p.add("embeddings.patch_embeddings.projection.bias", "input.bias", w)
	p.add("embeddings.position_embeddings", "position.weight", 1, c.Context+1, w)
	for i := range c.Layers {
		to, from := fmt.Sprintf("layers.%d.", i), fmt.Sprintf("encoder.layer.%d.", i)
		p.addNorm(from+"layernorm_before", to+"attn_norm", true, w)
		p.addLinear(from+"attention.attention.query", to+"attn.q_proj", qkv, w, w)
		p.addLinear(from+"attention.attention.key", to+"attn.k_proj", qkv, w, w)
		p.addLinear(from+"attention.attention.value", to+"attn.v_proj", qkv, w, w)
		p.addLinear(from+"attention.output.dense", to+"attn.o_proj", true, w, w)
		p.addNorm(from+"layernorm_after", to+"mlp_norm", true, w)
		p.addLinear(from+"intermediate.dense", to+"mlp.up_proj", true, c.Hidden, w)
		p.addLinear(from+"output.dense", to+"mlp.down_proj", true, w, c.Hidden)
	}
	p.addNorm("layernorm", "norm", true, w)
	if h == sequenceHead {
		c.Outputs = f.labels()
		p.addLinear("classifier", "head", true, c.Outputs, w)
	} else {
		p.addPooler("pooler.dense")
	}
	p.unused = []string{"pooler.", "classifier."}
	return p
}
