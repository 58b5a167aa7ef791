package published

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// readBERT reads bert (Devlin et al. 2019, arXiv 1810.04805).
func readBERT(f *fields, h head) *plan {
	p := f.encoder(h, "bert")
	p.padPosition = -1
	c := &p.config
	c.Context = c.PositionTable
	c.PositionTable = 0
	p.addBERTLayers()
	w := c.Width
	switch h {
	case bodyHead:
		p.addPooler("pooler.dense")
	case sequenceHead:
		c.Pool, c.HeadHidden, c.HeadActivation = model.PoolFirst, w, model.Tanh
		p.addLinear("pooler.dense", "head_hidden", true, w, w)
		p.addLinear("classifier", "head", true, c.Outputs, w)
	case tokenHead:
		p.addLinear("classifier", "head", true, c.Outputs, w)
	case maskedHead:
		c.HeadHidden, c.HeadActivation, c.HeadNorm = w, f.headActivation("hidden_act", "gelu"), true
		p.addLinear("cls.predictions.transform.dense", "head_hidden", true, w, w)
		p.addNorm("cls.predictions.transform.LayerNorm", "head_norm", true, w)
		p.addDecoder(f, "cls.predictions.decoder", "cls.predictions.bias")
	}
	p.unused = []string{"cls.", "pooler.", "classifier."}
	return p
}

// encoder reads the members that bert, roberta and mpnet have.
func (f *fields) encoder(h head, prefix string) *plan {
	p := &plan{prefix: prefix, written: h != bodyHead, head: h, scores: h != bodyHead}
	c := &p.config
	*c = model.Config{
		Kind: model.Encoder, Mechanism: "softmax", Positions: model.Learned, PostNorm: true, EntryNorm: true, NoFinalNorm: true, Bias: true,
		Vocab: f.count("vocab_size", 0), Width: f.count("hidden_size", 0), Layers: f.count("num_hidden_layers", 0), Heads: f.count("num_attention_heads", 0),
		Hidden: f.count("intermediate_size", 0), Activation: f.activation("hidden_act", "gelu"), PositionTable: f.count("max_position_embeddings", 512),
		NormEps: f.number("layer_norm_eps", 1e-12), TokenTypes: f.count("type_vocab_size", 2),
	}
	f.needs("position_embedding_type", `"absolute"`)
	f.divides("num_attention_heads", c.Heads, c.Width)
	f.headOutputs(p)
	return p
}

// headOutputs sets the outputs of a plan's head. A body has the embedding as its head,
// which is not read.
func (f *fields) headOutputs(p *plan) {
	c := &p.config
	switch p.head {
	case sequenceHead, tokenHead:
		c.Outputs = f.labels()
		if f.text("problem_type", "") == "regression" && c.Outputs < 1 {
			f.fail("num_labels", "is %d", c.Outputs)
		}
		f.flag("tie_word_embeddings", true)
	case bodyHead:
		c.Tied = c.Vocab > 0
		b := biasesAll(c.Bias)
		b.Head = false
		c.Biases = &b
		f.flag("tie_word_embeddings", true)
	}
}

// biasesAll returns biases that are all set or not.
func biasesAll(b bool) model.Biases {
	return model.Biases{QKV: b, O: b, MLP: b, Norm: b, Head: b, HeadHidden: b}
}

// addPooler adds the units of the first row beside the model.
func (p *plan) addPooler(name string) {
	p.addBeside(name, p.config.Width, p.config.Width)
	p.pooler = true
}

// addDecoder adds the outputs of words, tied to the embedding or not.
func (p *plan) addDecoder(f *fields, name, bias string) {
	c := &p.config
	c.Tied = f.flag("tie_word_embeddings", true)
	if c.Tied {
		p.aliasOf("embed.weight", name+".weight")
	} else {
		p.add(name+".weight", "head.weight", c.Vocab, c.Width)
	}
	if bias != "" {
		b := p.add(bias, "head.bias", c.Vocab)
		if bias != name+".bias" {
			b.aliases = []string{name + ".bias"}
		}
	}
}

// addBERTLayers adds the embeddings and layers under the names of bert.
func (p *plan) addBERTLayers() {
	c := &p.config
	w := c.Width
	rows := c.PositionTable
	if rows == 0 {
		rows = c.Context
	}
	p.add("embeddings.word_embeddings.weight", "embed.weight", c.Vocab, w)
	p.add("embeddings.position_embeddings.weight", "position.weight", rows, w)
	if c.TokenTypes > 0 {
		p.add("embeddings.token_type_embeddings.weight", "type.weight", c.TokenTypes, w)
	}
	p.addNorm("embeddings.LayerNorm", "entry_norm", true, w)
	for i := range c.Layers {
		to, from := fmt.Sprintf("layers.%d.", i), fmt.Sprintf("encoder.layer.%d.", i)
		p.addLinear(from+"attention.self.query", to+"attn.q_proj", true, w, w)
		p.addLinear(from+"attention.self.key", to+"attn.k_proj", true, w, w)
		p.addLinear(from+"attention.self.value", to+"attn.v_proj", true, w, w)
		p.addLinear(from+"attention.output.dense", to+"attn.o_proj", true, w, w)
		p.addNorm(from+"attention.output.LayerNorm", to+"attn_norm", true, w)
		p.addLinear(from+"intermediate.dense", to+"mlp.up_proj", true, c.Hidden, w)
		p.addLinear(from+"output.dense", to+"mlp.down_proj", true, w, c.Hidden)
		p.addNorm(from+"output.LayerNorm", to+"mlp_norm", true, w)
	}
}
