package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readLlama reads llama: Llama 1 and 2 (Touvron et al. 2023, arXiv 2307.09288), Llama 3
// with its scaled rotations (Grattafiori et al. 2024, arXiv 2407.21783).
func readLlama(f *fields, h head) *plan {
	p := f.decoder(h, 1e-6)
	bias := f.flag("attention_bias", false)
	f.needsFullLayers(p.config.Layers)
	p.config.Biases = &model.Biases{QKV: bias, O: bias, MLP: f.flag("mlp_bias", false)}
	p.addLlamaLayers(f)
	return p
}

// decoder reads the members that llama and its relatives have.
func (f *fields) decoder(h head, eps float64) *plan {
	p := f.decoderSizes(h, eps)
	r := f.rope("rope_theta", "partial_rotary_factor", 10000, 0)
	p.config.RopeTheta, p.config.RopeScaling, p.config.RopeFraction = r.theta, r.scaling, r.fraction
	return p
}

// decoderSizes is decoder without rotations.
func (f *fields) decoderSizes(h head, eps float64) *plan {
	p := &plan{prefix: "model", written: true, head: h, scores: h != bodyHead, padPosition: -1}
	p.written = h != bodyHead
	c := &p.config
	*c = model.Config{
		Kind: model.Decoder, Mechanism: "softmax", Positions: model.Rotary, Norm: model.RMSNorm,
		Vocab: f.count("vocab_size", 0), Width: f.count("hidden_size", 0), Layers: f.count("num_hidden_layers", 0), Heads: f.count("num_attention_heads", 0),
		Hidden: f.count("intermediate_size", 0), Context: f.count("max_position_embeddings", 2048), NormEps: f.number("rms_norm_eps", eps),
	}
	if c.KVHeads = f.count("num_key_value_heads", c.Heads); c.Heads%c.KVHeads != 0 {
		f.fail("num_key_value_heads", "%d do not divide num_attention_heads %d", c.KVHeads, c.Heads)
		c.KVHeads = c.Heads
	}
	f.headWidth(c, 0)
	if c.KVHeads == c.Heads {
		c.KVHeads = 0
	}
	f.needs("rope_interleaved", "false")
	return p
}

// needsFullLayers records an error for layers with a window.
func (f *fields) needsFullLayers(layers int) {
	f.windows(layers, 0, func(int) bool { return false })
}

// headWidth sets the width of a head, which is hidden_size over heads without head_dim.
func (f *fields) headWidth(c *model.Config, byDefault int) {
	if !f.has("head_dim") && byDefault == 0 {
		f.divides("num_attention_heads", c.Heads, c.Width)
		return
	}
	if d := f.count("head_dim", byDefault); d*c.Heads != c.Width {
		c.HeadWidth = d
	}
}

// widths returns the rows of the projections to queries and to keys.
func widths(c *model.Config) (q, kv int) {
	d, kvHeads := c.HeadWidth, c.KVHeads
	if d == 0 {
		d = c.Width / c.Heads
	}
	if kvHeads == 0 {
		kvHeads = c.Heads
	}
	return d * c.Heads, d * kvHeads
}

// addLlamaLayers adds the weights under the names of llama.
func (p *plan) addLlamaLayers(f *fields) {
	c := &p.config
	if share := c.RopeFraction; share != 0 && share != 1 {
		f.fail("partial_rotary_factor", "is %g, 1 is supported", share)
	}
	if c.Activation == "" {
		c.Activation = f.gatedActivation("hidden_act", "silu")
	}
	w, b := c.Width, c.Biases
	q, kv := widths(c)
	p.add("embed_tokens.weight", "embed.weight", c.Vocab, w)
	for i := range c.Layers {
		to := fmt.Sprintf("layers.%d.", i)
		p.addNorm(to+"input_layernorm", to+"attn_norm", false, w)
		p.addLinear(to+"self_attn.q_proj", to+"attn.q_proj", b.QKV, q, w)
		p.addLinear(to+"self_attn.k_proj", to+"attn.k_proj", b.QKV, kv, w)
		p.addLinear(to+"self_attn.v_proj", to+"attn.v_proj", b.QKV, kv, w)
		p.addLinear(to+"self_attn.o_proj", to+"attn.o_proj", b.O, w, q)
		if c.QKNorm {
			p.addNorm(to+"self_attn.q_norm", to+"attn.q_norm", false, q/c.Heads)
			p.addNorm(to+"self_attn.k_norm", to+"attn.k_norm", false, q/c.Heads)
		}
		if c.BranchNorm {
			p.addNorm(to+"post_attention_layernorm", to+"attn_out_norm", false, w)
			p.addNorm(to+"pre_feedforward_layernorm", to+"mlp_norm", false, w)
			p.addNorm(to+"post_feedforward_layernorm", to+"mlp_out_norm", false, w)
		} else {
			p.addNorm(to+"post_attention_layernorm", to+"mlp_norm", false, w)
		}
		p.addLinear(to+"mlp.gate_proj", to+"mlp.gate_proj", b.MLP, c.Hidden, w)
		p.addLinear(to+"mlp.up_proj", to+"mlp.up_proj", b.MLP, c.Hidden, w)
		p.addLinear(to+"mlp.down_proj", to+"mlp.down_proj", b.MLP, w, c.Hidden)
	}
	p.addNorm("norm", "norm", false, w)
	p.addNextHead(f, "lm_head", false)
}

// addNextHead adds the outputs of a decoder.
func (p *plan) addNextHead(f *fields, name string, bias bool) {
	c := &p.config
	tied := f.flag("tie_word_embeddings", name == "")
	switch p.head {
	case bodyHead:
		c.Tied = true
	case sequenceHead:
		c.Outputs, c.Pool = f.labels(), model.PoolLast
		p.padding = -1
		if f.decode("pad_token_id", "an integer", &p.padding) && (p.padding < 0 || p.padding >= c.Vocab) {
			p.padding = -1 // no token has this id
		}
		p.add("score.weight", "head.weight", c.Outputs, c.Width)
	default:
		c.Tied = tied
		c.Biases.Head = bias
		if tied {
			p.aliasOf("embed.weight", name+".weight")
		} else {
			p.add(name+".weight", "head.weight", c.Vocab, c.Width)
		}
		if bias {
			p.add(name+".bias", "head.bias", c.Vocab)
		}
	}
	p.unused = []string{"lm_head.", "embed_out.", "score."}
}
