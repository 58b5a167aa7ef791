package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readGPTNeoX reads gpt_neox (Black et al. 2022, arXiv 2204.06745): Pythia and others.
func readGPTNeoX(f *fields, h head) *plan {
	p := &plan{prefix: "gpt_neox", written: h != bodyHead, head: h, scores: h != bodyHead, padPosition: -1}
	c := &p.config
	attn := f.flag("attention_bias", true)
	*c = model.Config{
		Kind: model.Decoder, Mechanism: "softmax", Positions: model.Rotary, Biases: &model.Biases{QKV: attn, O: attn, MLP: true, Norm: true},
		Vocab: f.count("vocab_size", 0), Width: f.count("hidden_size", 0), Layers: f.count("num_hidden_layers", 0), Heads: f.count("num_attention_heads", 0),
		Hidden: f.count("intermediate_size", 0), Context: f.count("max_position_embeddings", 2048), NormEps: f.number("layer_norm_eps", 1e-5),
		Activation: f.activation("hidden_act", "gelu"),
	}
	f.divides("num_attention_heads", c.Heads, c.Width)
	r := f.rope("rotary_emb_base", "rotary_pct", 10000, 0.25)
	c.RopeTheta, c.RopeFraction, c.RopeScaling = r.theta, r.fraction, r.scaling
	if theta := f.number("rope_theta", r.theta); theta != r.theta {
		f.fail("rope_theta", "is %g, but rope_parameters or rotary_emb_base have %g", theta, r.theta)
	}
	if f.flag("use_parallel_residual", true) {
		c.ParallelBlocks = model.ParallelTwo
	}
	w, d := c.Width, c.Width/c.Heads
	p.add("embed_in.weight", "embed.weight", c.Vocab, w)
	for i := range c.Layers {
		to := fmt.Sprintf("layers.%d.", i)
		p.addNorm(to+"input_layernorm", to+"attn_norm", true, w)
		p.addFused(to+"attention.query_key_value", attn, d, []int{3 * w, w}, to+"attn.q_proj", to+"attn.k_proj", to+"attn.v_proj")
		p.addLinear(to+"attention.dense", to+"attn.o_proj", attn, w, w)
		p.addNorm(to+"post_attention_layernorm", to+"mlp_norm", true, w)
		p.addLinear(to+"mlp.dense_h_to_4h", to+"mlp.up_proj", true, c.Hidden, w)
		p.addLinear(to+"mlp.dense_4h_to_h", to+"mlp.down_proj", true, w, c.Hidden)
	}
	p.addNorm("final_layer_norm", "norm", true, w)
	p.addNextHead(f, "embed_out", false)
	return p
}
