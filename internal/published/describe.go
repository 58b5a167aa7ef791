package published

import (
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/model"
)

// describe returns the members of config.json of a family that say what c says. What the
// family cannot say is left out, and found by reading the members back.
func describe(family string, c model.Config) members {
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Width
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.NormEps == 0 {
		c.NormEps = 1e-5
	}
	switch family {
	case "distilbert":
		return members{"vocab_size": c.Vocab, "dim": c.Width, "n_layers": c.Layers, "n_heads": c.Heads, "hidden_dim": c.Hidden, "max_position_embeddings": c.Context, "activation": activationName(c.Activation)}
	case "gpt2":
		return members{"vocab_size": c.Vocab, "n_embd": c.Width, "n_layer": c.Layers, "n_head": c.Heads, "n_inner": c.Hidden, "n_positions": c.Context, "layer_norm_epsilon": c.NormEps, "activation_function": activationName(c.Activation), "tie_word_embeddings": c.Tied}
	case "bart":
		return describeBART(c)
	case "vit":
		return describeViT(c)
	}
	f := members{
		"vocab_size": c.Vocab, "hidden_size": c.Width, "num_hidden_layers": c.Layers, "num_attention_heads": c.Heads, "intermediate_size": c.Hidden,
		"max_position_embeddings": c.Context, "layer_norm_eps": c.NormEps, "hidden_act": activationName(c.Activation), "tie_word_embeddings": c.Tied || c.Kind == model.Encoder && c.Outputs > 0,
	}
	switch family {
	case "bert":
		f["type_vocab_size"] = c.TokenTypes
	case "roberta", "mpnet":
		f["max_position_embeddings"], f["pad_token_id"] = c.PositionTable, c.PositionOffset-1
		if family == "roberta" {
			f["type_vocab_size"] = c.TokenTypes
		} else {
			f["relative_attention_num_buckets"] = c.RelativeBuckets
		}
	case "modernbert":
		describeModernBERT(f, c)
	default:
		describeDecoder(f, family, c)
	}
	return f
}

// describeDecoder adds the members of decoders with rotations.
func describeDecoder(f members, family string, c model.Config) {
	delete(f, "layer_norm_eps")
	b := resolveBiases(c)
	rope := members{"rope_type": "default", "rope_theta": theta(c)}
	if s := c.RopeScaling; s != nil {
		rope["rope_type"], rope["factor"] = s.Kind, s.Factor
		setPositive(rope, "original_max_position_embeddings", float64(s.OriginalContext))
		setPositive(rope, "low_freq_factor", s.LowFrequency)
		setPositive(rope, "high_freq_factor", s.HighFrequency)
		setPositive(rope, "beta_fast", s.BetaFast)
		setPositive(rope, "beta_slow", s.BetaSlow)
		setPositive(rope, "attention_factor", s.AttentionFactor)
		if s.Kind == model.LongScaling {
			rope["short_factor"], rope["long_factor"] = s.ShortFactors, s.LongFactors
		}
		if s.Kind == model.DynamicScaling {
			f["max_position_embeddings"] = s.OriginalContext
			delete(rope, "original_max_position_embeddings")
		}
	}
	share := c.RopeFraction
	switch family {
	case "gpt_neox":
		if share == 0 {
			share = 1
		}
		rope["partial_rotary_factor"] = share
		f["layer_norm_eps"], f["use_parallel_residual"], f["attention_bias"] = c.NormEps, c.ParallelBlocks != "", b.QKV || b.O
	case "phi":
		if share == 0 {
			share = 1
		}
		f["partial_rotary_factor"], rope["partial_rotary_factor"] = share, share
		f["layer_norm_eps"], f["num_key_value_heads"] = c.NormEps, c.KVHeads
	default:
		if family == "phi3" {
			if share != 0 {
				rope["partial_rotary_factor"] = share
			}
			f["original_max_position_embeddings"] = c.Context
			if s := c.RopeScaling; s != nil {
				f["original_max_position_embeddings"] = s.OriginalContext
			}
		}
		f["rms_norm_eps"], f["num_key_value_heads"] = c.NormEps, c.KVHeads
		if c.HeadWidth != 0 {
			f["head_dim"] = c.HeadWidth
		} else if family == "gemma" || family == "gemma2" || family == "gemma3_text" || family == "qwen3" {
			f["head_dim"] = c.Width / c.Heads
		}
	}
	switch family {
	case "llama":
		f["attention_bias"], f["mlp_bias"] = b.QKV || b.O, b.MLP
	case "qwen3", "gemma", "gemma2", "gemma3_text":
		f["attention_bias"] = b.QKV || b.O
	}
	if c.Pool == model.PoolLast {
		f["pad_token_id"] = nil // gemma's default is 0
	}
	describeWindows(f, family, c)
	f["rope_parameters"] = rope
	if family == "gemma2" || family == "gemma3_text" {
		describeGemma(f, family, c)
	}
	if family == "gemma3_text" {
		local := c.LocalRopeTheta
		if local == 0 {
			local = theta(c)
		}
		f["rope_parameters"] = members{"full_attention": rope, "sliding_attention": members{"rope_type": "default", "rope_theta": local}}
	}
}

// describeGemma adds the members of gemma2 and gemma3_text beside those of gemma.
func describeGemma(f members, family string, c model.Config) {
	delete(f, "hidden_act")
	f["hidden_activation"] = activationName(c.Activation)
	scalar := c.HeadWidth
	if scalar == 0 {
		scalar = c.Width / c.Heads
	}
	if scale, err := strconv.ParseFloat(c.Set["scale"], 64); err == nil {
		scalar = int(math.Round(1 / (scale * scale)))
	}
	f["query_pre_attn_scalar"], f["final_logit_softcapping"] = scalar, nil
	if c.LogitCap > 0 {
		f["final_logit_softcapping"] = c.LogitCap
	}
	if family == "gemma2" {
		f["attn_logit_softcapping"] = nil
		if limit, err := strconv.ParseFloat(c.Set["cap"], 64); err == nil {
			f["attn_logit_softcapping"] = limit
		}
	}
}

// describeWindows adds the members of layers with a window.
func describeWindows(f members, family string, c model.Config) {
	span := 0
	types := make([]string, c.Layers)
	for i := range types {
		if types[i] = "full_attention"; i < len(c.LayerWindows) && c.LayerWindows[i] > 0 {
			types[i], span = "sliding_attention", max(span, c.LayerWindows[i])
		}
	}
	switch {
	case (family == "mistral" || family == "phi3") && span > 0:
		f["sliding_window"] = span
	case family == "mistral":
		f["sliding_window"] = nil
	case family == "gemma2" || family == "gemma3_text":
		f["sliding_window"], f["layer_types"] = max(span, 1), types
	case (family == "qwen2" || family == "qwen3") && span > 0:
		f["use_sliding_window"], f["sliding_window"], f["layer_types"], f["max_window_layers"] = true, span, types, 0
	}
}

// describeModernBERT adds the members of modernbert.
func describeModernBERT(f members, c model.Config) {
	b := resolveBiases(c)
	delete(f, "layer_norm_eps")
	delete(f, "hidden_act")
	f["hidden_activation"], f["norm_eps"] = activationName(c.Activation), c.NormEps
	f["attention_bias"], f["mlp_bias"], f["norm_bias"] = b.QKV || b.O, b.MLP, b.Norm
	span, types := 1, make([]string, c.Layers)
	for i := range types {
		if types[i] = "full_attention"; i < len(c.LayerWindows) && c.LayerWindows[i] > 0 {
			types[i], span = "sliding_attention", c.LayerWindows[i]
		}
	}
	local := c.LocalRopeTheta
	if local == 0 {
		local = theta(c)
	}
	f["layer_types"], f["local_attention"] = types, max(2*(span-1), 1)
	f["global_rope_theta"], f["local_rope_theta"] = theta(c), local
	f["rope_parameters"] = members{"full_attention": members{"rope_type": "default", "rope_theta": theta(c)}, "sliding_attention": members{"rope_type": "default", "rope_theta": local}}
	f["classifier_pooling"], f["pad_token_id"] = "cls", nil // its default is beyond small vocabularies
	if c.Pool == model.PoolMean {
		f["classifier_pooling"] = "mean"
	}
	f["classifier_bias"], f["decoder_bias"] = b.HeadHidden, b.Head
	if c.HeadHidden > 0 {
		f["classifier_activation"] = activationName(c.HeadActivation)
	}
}

// describeBART returns the members of bart.
func describeBART(c model.Config) members {
	source := c.SourceLayers
	if source == 0 {
		source = c.Layers
	}
	return members{
		"vocab_size": c.Vocab, "d_model": c.Width, "decoder_layers": c.Layers, "encoder_layers": source, "decoder_attention_heads": c.Heads, "encoder_attention_heads": c.Heads,
		"decoder_ffn_dim": c.Hidden, "encoder_ffn_dim": c.Hidden, "max_position_embeddings": c.Context, "activation_function": activationName(c.Activation),
		"scale_embedding": c.EntryScale != 0 && c.EntryScale != 1, "is_encoder_decoder": true, "tie_word_embeddings": c.Tied,
	}
}

// describeViT returns the members of vit for square images of three channels.
func describeViT(c model.Config) members {
	patch, side := int(math.Sqrt(float64(c.Inputs)/3)), int(math.Sqrt(float64(c.Context)))
	return members{
		"hidden_size": c.Width, "num_hidden_layers": c.Layers, "num_attention_heads": c.Heads, "intermediate_size": c.Hidden, "num_channels": 3,
		"patch_size": max(patch, 1), "image_size": max(patch*side, 1), "layer_norm_eps": c.NormEps, "hidden_act": activationName(c.Activation), "qkv_bias": resolveBiases(c).QKV,
	}
}

// theta returns the base of the rotations.
func theta(c model.Config) float64 {
	if c.RopeTheta == 0 {
		return 10000
	}
	return c.RopeTheta
}

func setPositive(f members, name string, x float64) {
	if x > 0 {
		f[name] = x
	}
}

// activationName returns the name of an activation in config.json.
func activationName(a model.Activation) string {
	switch a {
	case model.GELU, model.GEGLU:
		return "gelu"
	case model.ReLU:
		return "relu"
	case model.SiLU, model.SwiGLU:
		return "silu"
	}
	return "gelu_pytorch_tanh"
}
