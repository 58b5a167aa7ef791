package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readGPT2 reads gpt2 (Radford et al. 2019). Its projections are stored as [in,out].
func readGPT2(f *fields, h head) *plan {
	p := &plan{prefix: "transformer", written: h != bodyHead, head: h, scores: h != bodyHead, padPosition: -1}
	c := &p.config
	*c = model.Config{
		Kind: model.Decoder, Mechanism: "softmax", Positions: model.Learned, Bias: true,
		Vocab: f.count("vocab_size", 50257), Width: f.count("n_embd", 768), Layers: f.count("n_layer", 12), Heads: f.count("n_head", 12),
		Context: f.count("n_positions", 1024), Activation: f.activation("activation_function", "gelu_new"), NormEps: f.number("layer_norm_epsilon", 1e-5),
	}
	c.Hidden = f.count("n_inner", 4*c.Width)
	b := biasesAll(true)
	b.Head = false
	c.Biases = &b
	f.needs("scale_attn_weights", "true")
	f.needs("scale_attn_by_inverse_layer_idx", "false")
	f.divides("n_head", c.Heads, c.Width)
	w := c.Width
	p.add("wte.weight", "embed.weight", c.Vocab, w)
	p.add("wpe.weight", "position.weight", c.Context, w)
	for i := range c.Layers {
		to, from := fmt.Sprintf("layers.%d.", i), fmt.Sprintf("h.%d.", i)
		p.addNorm(from+"ln_1", to+"attn_norm", true, w)
		p.addTransposed(from+"attn.c_attn", 3*w, w, to+"attn.q_proj", to+"attn.k_proj", to+"attn.v_proj")
		p.addTransposed(from+"attn.c_proj", w, w, to+"attn.o_proj")
		p.addNorm(from+"ln_2", to+"mlp_norm", true, w)
		p.addTransposed(from+"mlp.c_fc", c.Hidden, w, to+"mlp.up_proj")
		p.addTransposed(from+"mlp.c_proj", w, c.Hidden, to+"mlp.down_proj")
	}
	p.addNorm("ln_f", "norm", true, w)
	if !f.has("tie_word_embeddings") {
		f.values["tie_word_embeddings"] = []byte("true")
	}
	p.addNextHead(f, "lm_head", false)
	return p
}

// addTransposed adds a projection that the file has as [in,out], and its bias.
func (p *plan) addTransposed(name string, out, in int, parts ...string) {
	at := len(p.weights)
	p.addFused(name, true, 0, []int{out, in}, parts...)
	p.weights[at].shape, p.weights[at].transposed = []int{in, out}, true
}
