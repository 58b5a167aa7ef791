package published

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tokenizer"
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
	if layers := f.count("encoder_layers", 12); f.count("num_hidden_layers", layers) != layers {
		f.fail("num_hidden_layers", "is %d, encoder_layers is %d; both are of the encoder", f.count("num_hidden_layers", layers), layers)
	}
	f.needs("tie_word_embeddings", "true")
	f.needs("is_encoder_decoder", "true")
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

// charTokenizers returns the tokenizers of sources and targets that are written in
// characters: grapheme_chars and phoneme_chars of config.json, a character for each id.
// The first four ids are of special tokens. They are nil without these members.
func charTokenizers(text []byte) (source, target *tokenizer.Tokenizer, err error) {
	var c struct {
		Source string `json:"grapheme_chars"`
		Target string `json:"phoneme_chars"`
		Vocab  int    `json:"vocab_size"`
		Begin  int    `json:"bos_token_id"`
		End    int    `json:"eos_token_id"`
	}
	if err := json.Unmarshal(text, &c); err != nil || c.Source == "" || c.Target == "" {
		return nil, nil, err
	}
	if source, err = charTokenizer(c.Source, c.Vocab, c.Begin, c.End); err != nil {
		return nil, nil, fmt.Errorf("grapheme_chars: %w", err)
	}
	if target, err = charTokenizer(c.Target, c.Vocab, c.Begin, c.End); err != nil {
		return nil, nil, fmt.Errorf("phoneme_chars: %w", err)
	}
	return source, target, nil
}

// specialChars is the number of ids before the characters: padding, the tokens at both
// ends, and the unknown character.
const specialChars = 4

// charTokenizer returns a tokenizer of characters.
func charTokenizer(chars string, vocab, begin, end int) (*tokenizer.Tokenizer, error) {
	list := []rune(chars)
	if len(list) > vocab || len(list) <= specialChars || begin < 0 || begin >= specialChars || end < 0 || end >= specialChars {
		return nil, fmt.Errorf("%d characters for %d ids, between tokens %d and %d, which are below %d", len(list), vocab, begin, end, specialChars)
	}
	names := [specialChars]string{"<pad>", "<s>", "</s>", "<unk>"}
	ids := members{}
	var added []members
	for i, name := range names {
		ids[name] = i
		added = append(added, members{"id": i, "content": name, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	for i, r := range list[specialChars:] {
		ids[string(r)] = specialChars + i
	}
	special := func(id int) members { return members{"SpecialToken": members{"id": names[id], "type_id": 0}} }
	token := func(id int) members { return members{"id": names[id], "ids": []int{id}, "tokens": []string{names[id]}} }
	text, err := json.Marshal(members{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "pre_tokenizer": nil, "added_tokens": added,
		"post_processor": members{
			"type": "TemplateProcessing", "single": []any{special(begin), members{"Sequence": members{"id": "A", "type_id": 0}}, special(end)},
			"pair":           []any{special(begin), members{"Sequence": members{"id": "A", "type_id": 0}}, special(end), members{"Sequence": members{"id": "B", "type_id": 0}}, special(end)},
			"special_tokens": members{names[begin]: token(begin), names[end]: token(end)},
		},
		"decoder": members{"type": "Fuse"},
		"model":   members{"type": "BPE", "vocab": ids, "merges": []string{}, "unk_token": names[3], "fuse_unk": false, "byte_fallback": false},
	})
	if err != nil {
		return nil, err
	}
	return tokenizer.Parse(text)
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
