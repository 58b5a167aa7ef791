package pretrained

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/model"
)

// readBART reads bart (Lewis et al. 2020, arXiv 1910.13461). Its learned positions begin
// at row 2.
func readBART(f *fields, h head) *plan {
	p := &plan{prefix: "model", written: true, head: h, scores: true, padPosition: -1}
	c := &p.config
	*c = model.Config{
		Kind: model.EncoderDecoder, Mechanism: "softmax", Positions: model.Learned, PositionOffset: 2, PostNorm: true, EntryNorm: true, NoFinalNorm: true,
		Bias: true, Tied: true, SharedEmbedding: true,
		Vocab: f.count("vocab_size", 50265), Width: f.count("d_model", 1024), Layers: f.count("decoder_layers", 12), SourceLayers: f.count("encoder_layers", 12),
		Heads: f.count("decoder_attention_heads", 16), Hidden: f.count("decoder_ffn_dim", 4096), Context: f.count("max_position_embeddings", 1024),
		Activation: f.activation("activation_function", "gelu"),
	}
	c.PositionTable = c.Context + c.PositionOffset
	if c.SourceLayers == c.Layers {
		c.SourceLayers = 0
	}
	if n := f.count("encoder_attention_heads", 16); n != c.Heads {
		f.fail("encoder_attention_heads", "is %d, decoder_attention_heads is %d; equal ones are supported", n, c.Heads)
	}
	if n := f.count("encoder_ffn_dim", 4096); n != c.Hidden {
		f.fail("encoder_ffn_dim", "is %d, decoder_ffn_dim is %d; equal ones are supported", n, c.Hidden)
	}
	if f.flag("scale_embedding", false) {
		c.EntryScale = math.Sqrt(float64(c.Width))
	}
	f.has("num_hidden_layers") // of the encoder
	f.needs("tie_word_embeddings", "true")
	f.needs("is_encoder_decoder", "true")
	f.needs("is_decoder", "false")
	f.needs("normalize_before", "false")
	f.needs("add_final_layer_norm", "false")
	f.needs("normalize_embedding", "true")
	f.needs("add_bias_logits", "false")
	f.needs("static_position_embeddings", "false")
	f.needs("extra_pos_embeddings", "2")
	f.divides("decoder_attention_heads", c.Heads, c.Width)
	shared := p.add("shared.weight", "embed.weight", c.Vocab, c.Width)
	shared.aliases = []string{"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}
	p.add("final_logits_bias", "head.bias", 1, c.Vocab)
	layers := c.SourceLayers
	if layers == 0 {
		layers = c.Layers
	}
	p.addBARTStack("encoder", "encoder.", layers, false)
	p.addBARTStack("decoder", "", c.Layers, true)
	return p
}

// addBARTStack adds the weights of the encoder or the decoder.
func (p *plan) addBARTStack(name, prefix string, layers int, cross bool) {
	c := &p.config
	w := c.Width
	p.add(name+".embed_positions.weight", prefix+"position.weight", c.PositionTable, w)
	p.addNorm(name+".layernorm_embedding", prefix+"entry_norm", true, w)
	attention := func(from, to string) {
		p.addLinear(from+".q_proj", to+".q_proj", true, w, w)
		p.addLinear(from+".k_proj", to+".k_proj", true, w, w)
		p.addLinear(from+".v_proj", to+".v_proj", true, w, w)
		p.addLinear(from+".out_proj", to+".o_proj", true, w, w)
	}
	for i := range layers {
		from, to := fmt.Sprintf("%s.layers.%d.", name, i), fmt.Sprintf("%slayers.%d.", prefix, i)
		attention(from+"self_attn", to+"attn")
		p.addNorm(from+"self_attn_layer_norm", to+"attn_norm", true, w)
		if cross {
			attention(from+"encoder_attn", to+"cross")
			p.addNorm(from+"encoder_attn_layer_norm", to+"cross_norm", true, w)
		}
		p.addLinear(from+"fc1", to+"mlp.up_proj", true, c.Hidden, w)
		p.addLinear(from+"fc2", to+"mlp.down_proj", true, w, c.Hidden)
		p.addNorm(from+"final_layer_norm", to+"mlp_norm", true, w)
	}
}
