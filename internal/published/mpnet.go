package published

import (
	"fmt"
)

// readMPNet reads mpnet (Song et al. 2020, arXiv 2004.09297).
func readMPNet(f *fields, h head) *plan {
	f.values["type_vocab_size"] = []byte("1") // there are none
	p := f.encoder(h, "mpnet")
	c := &p.config
	c.TokenTypes = 0
	c.RelativeBuckets = 32
	f.needs("relative_attention_num_buckets", "32") // both are constants in transformers
	f.needs("pad_token_id", "1")
	p.padPositions(f, 1)
	w := c.Width
	p.add("embeddings.word_embeddings.weight", "embed.weight", c.Vocab, w)
	p.add("embeddings.position_embeddings.weight", "position.weight", c.PositionTable, w)
	p.addNorm("embeddings.LayerNorm", "entry_norm", true, w)
	p.add("encoder.relative_attention_bias.weight", "relative.bias", c.RelativeBuckets, c.Heads)
	for i := range c.Layers {
		to, from := fmt.Sprintf("layers.%d.", i), fmt.Sprintf("encoder.layer.%d.", i)
		p.addLinear(from+"attention.attn.q", to+"attn.q_proj", true, w, w)
		p.addLinear(from+"attention.attn.k", to+"attn.k_proj", true, w, w)
		p.addLinear(from+"attention.attn.v", to+"attn.v_proj", true, w, w)
		p.addLinear(from+"attention.attn.o", to+"attn.o_proj", true, w, w)
		p.addNorm(from+"attention.LayerNorm", to+"attn_norm", true, w)
		p.addLinear(from+"intermediate.dense", to+"mlp.up_proj", true, c.Hidden, w)
		p.addLinear(from+"output.dense", to+"mlp.down_proj", true, w, c.Hidden)
		p.addNorm(from+"output.LayerNorm", to+"mlp_norm", true, w)
	}
	p.addRoBERTaHead(f)
	return p
}
