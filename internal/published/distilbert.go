package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readDistilBERT reads distilbert (Sanh et al. 2019, arXiv 1910.01108).
func readDistilBERT(f *fields, h head) *plan {
	p := &plan{prefix: "distilbert", written: h != bodyHead, head: h, scores: h != bodyHead, padPosition: -1}
	c := &p.config
	*c = model.Config{
		Kind: model.Encoder, Mechanism: "softmax", Positions: model.Learned, PostNorm: true, EntryNorm: true, NoFinalNorm: true, Bias: true,
		Vocab: f.count("vocab_size", 30522), Width: f.count("dim", 768), Layers: f.count("n_layers", 6), Heads: f.count("n_heads", 12),
		Hidden: f.count("hidden_dim", 3072), Activation: f.activation("activation", "gelu"), Context: f.count("max_position_embeddings", 512),
		NormEps: 1e-12,
	}
	f.flag("sinusoidal_pos_embds", false) // they are in the file
	f.flag("tie_weights_", true)
	f.divides("n_heads", c.Heads, c.Width)
	f.headOutputs(p)
	w := c.Width
	p.add("embeddings.word_embeddings.weight", "embed.weight", c.Vocab, w)
	p.add("embeddings.position_embeddings.weight", "position.weight", c.Context, w)
	p.addNorm("embeddings.LayerNorm", "entry_norm", true, w)
	for i := range c.Layers {
		to, from := fmt.Sprintf("layers.%d.", i), fmt.Sprintf("transformer.layer.%d.", i)
		p.addLinear(from+"attention.q_lin", to+"attn.q_proj", true, w, w)
		p.addLinear(from+"attention.k_lin", to+"attn.k_proj", true, w, w)
		p.addLinear(from+"attention.v_lin", to+"attn.v_proj", true, w, w)
		p.addLinear(from+"attention.out_lin", to+"attn.o_proj", true, w, w)
		p.addNorm(from+"sa_layer_norm", to+"attn_norm", true, w)
		p.addLinear(from+"ffn.lin1", to+"mlp.up_proj", true, c.Hidden, w)
		p.addLinear(from+"ffn.lin2", to+"mlp.down_proj", true, w, c.Hidden)
		p.addNorm(from+"output_layer_norm", to+"mlp_norm", true, w)
	}
	switch h {
	case sequenceHead:
		c.Pool, c.HeadHidden, c.HeadActivation = model.PoolFirst, w, model.ReLU
		p.addLinear("pre_classifier", "head_hidden", true, w, w)
		p.addLinear("classifier", "head", true, c.Outputs, w)
	case tokenHead:
		p.addLinear("classifier", "head", true, c.Outputs, w)
	case maskedHead:
		c.HeadHidden, c.HeadActivation, c.HeadNorm = w, f.headActivation("activation", "gelu"), true
		p.addLinear("vocab_transform", "head_hidden", true, w, w)
		p.addNorm("vocab_layer_norm", "head_norm", true, w)
		p.addDecoder(f, "vocab_projector", "vocab_projector.bias")
	}
	p.unused = []string{"vocab_", "pre_classifier.", "classifier."}
	return p
}
