package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readPhi reads phi (Li et al. 2023, arXiv 2309.05463): phi-1, phi-1.5 and phi-2.
func readPhi(f *fields, h head) *plan {
	f.values["rms_norm_eps"] = []byte("1e-5")
	p := f.decoder(h, 1e-5)
	c := &p.config
	b := biasesAll(true)
	b.Head = false
	c.Norm, c.NormEps, c.Biases, c.ParallelBlocks = "", f.number("layer_norm_eps", 1e-5), &b, model.ParallelOne
	c.Activation = f.activation("hidden_act", "gelu_new")
	if c.RopeFraction == 0 {
		c.RopeFraction = 0.5
	}
	if d := c.Width / c.Heads; int(float64(d)*c.RopeFraction)%2 != 0 {
		f.fail("partial_rotary_factor", "%g of %d channels are %d, phi rotates an even number", c.RopeFraction, d, int(float64(d)*c.RopeFraction))
	}
	f.needsFullLayers(c.Layers)
	f.needs("qk_layernorm", "false")
	w := c.Width
	q, kv := widths(c)
	p.add("embed_tokens.weight", "embed.weight", c.Vocab, w)
	for i := range c.Layers {
		to := fmt.Sprintf("layers.%d.", i)
		p.addNorm(to+"input_layernorm", to+"attn_norm", true, w)
		p.addLinear(to+"self_attn.q_proj", to+"attn.q_proj", true, q, w)
		p.addLinear(to+"self_attn.k_proj", to+"attn.k_proj", true, kv, w)
		p.addLinear(to+"self_attn.v_proj", to+"attn.v_proj", true, kv, w)
		p.addLinear(to+"self_attn.dense", to+"attn.o_proj", true, w, q)
		p.addLinear(to+"mlp.fc1", to+"mlp.up_proj", true, c.Hidden, w)
		p.addLinear(to+"mlp.fc2", to+"mlp.down_proj", true, w, c.Hidden)
	}
	p.addNorm("final_layernorm", "norm", true, w)
	p.addNextHead(f, "lm_head", true)
	return p
}
