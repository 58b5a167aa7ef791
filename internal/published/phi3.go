package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readPhi3 reads phi3 (Abdin et al. 2024, arXiv 2404.14219): Phi-3, Phi-3.5 and Phi-4-mini, with the
// scaled rotations of LongRoPE.
func readPhi3(f *fields, h head) *plan {
	f.ropeNames = map[string]string{"su": "longrope", "yarn": "longrope"} // of files before transformers had these
	f.setDefaults(map[string]string{"original_max_position_embeddings": "4096", "pad_token_id": "32000"})
	p := f.decoder(h, 1e-5)
	c := &p.config
	if s := c.RopeScaling; s != nil && s.Kind != model.LongScaling {
		name := "rope_parameters"
		if f.has("rope_scaling") {
			name = "rope_scaling"
		}
		f.fail(name, "rope_type is %s, phi3 has default and longrope", s.Kind)
	}
	c.Biases, c.Activation = &model.Biases{}, f.gatedActivation("hidden_act", "silu")
	f.sameWindows(c, 0)
	f.needs("attention_bias", "false")
	w := c.Width
	q, kv := widths(c)
	p.add("embed_tokens.weight", "embed.weight", c.Vocab, w)
	for i := range c.Layers {
		to := fmt.Sprintf("layers.%d.", i)
		p.addNorm(to+"input_layernorm", to+"attn_norm", false, w)
		p.addFused(to+"self_attn.qkv_proj", false, 0, []int{q + 2*kv, w}, to+"attn.q_proj", to+"attn.k_proj", to+"attn.v_proj")
		p.weights[len(p.weights)-1].rows = []int{q, kv, kv}
		p.addLinear(to+"self_attn.o_proj", to+"attn.o_proj", false, w, q)
		p.addNorm(to+"post_attention_layernorm", to+"mlp_norm", false, w)
		p.addFused(to+"mlp.gate_up_proj", false, 0, []int{2 * c.Hidden, w}, to+"mlp.gate_proj", to+"mlp.up_proj")
		p.addLinear(to+"mlp.down_proj", to+"mlp.down_proj", false, w, c.Hidden)
	}
	p.addNorm("norm", "norm", false, w)
	p.addNextHead(f, "lm_head", false)
	return p
}
