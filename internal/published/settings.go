package published

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// The names that inertFields has for the files of modules, which lie in folders of their own.
const (
	poolingFile   = "the file of a pooling"
	normalizeFile = "the file of a norm"
	denseFile     = "the file of a dense layer"
	moduleEntry   = "an entry of modules.json"
)

// inertFields lists the fields of a folder's files that change neither outputs nor gradients, so
// that reading them does nothing. Every other field is handled elsewhere. A reader applies the
// fields that it asks for, or refuses them unless their value is neutral. Rules of generation in
// generationRules are reported and not applied. Any other field is refused by name. Fields of
// tokenizer.json, tokenizer_config.json and special_tokens_map.json belong to package tokenizer.
var inertFields = map[string][]string{
	configFile: strings.Fields(`
		architectures model_type transformers_version torch_dtype dtype use_cache initializer_range initializer_factor
		initializer_cutoff_factor init_std bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id
		unk_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id id2label label2id num_labels problem_type
		finetuning_task task_specific_params name_or_path attention_dropout hidden_dropout hidden_dropout_prob
		attention_probs_dropout_prob classifier_dropout classif_dropout dropout activation_dropout attn_pdrop embd_pdrop resid_pdrop
		qa_dropout seq_classif_dropout embedding_dropout mlp_dropout encoder_layerdrop decoder_layerdrop summary_activation
		summary_first_dropout summary_proj_to_labels summary_type summary_use_proj gradient_checkpointing output_past
		output_attentions output_hidden_states return_dict torchscript use_return_dict language special_tokens_map
		deterministic_flash_attn reference_compile repad_logits_with_grad sparse_pred_ignore_index sparse_prediction pretraining_tp
		directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type encoder_stride
		reorder_and_upcast_attn unsloth_version unsloth_fixed use_flash_attn fused_bias_fc early_stopping no_repeat_ngram_size
		num_beams length_penalty max_length min_length do_sample temperature top_k top_p repetition_penalty prefix
		begin_suppress_tokens suppress_tokens grapheme_chars phoneme_chars gradient_checkpointing_kwargs sentence_transformers
		emit_warnings model_max_length tokenizer_class chunk_size_feed_forward attn_implementation _attn_implementation _name_or_path
		_num_labels _commit_hash _attn_implementation_autoset _attn_implementation_internal onnx n_ctx n_special
		predict_special_tokens is_llama_config transformers.js_config sbert_ce_default_activation_function _flash_attn_2_enabled
		neftune_noise_alpha return_dict_in_generate output_scores bad_words_ids diversity_penalty num_beam_groups
		num_return_sequences encoder_no_repeat_ngram_size exponential_decay_length_penalty remove_invalid_values tf_legacy_loss
		typical_p use_bfloat16 auto_map name license license_name license_link model_name author authors description language_code tags
		base_model base_model_name_or_path library_name pipeline_tag datasets version model_version revision created_by bos_token eos_token pad_token
		unk_token tokenizer_file vocab_file cache_implementation trl_version peft_version use_cache_quantization
		custom_pipelines ignore_index`),

	// Vectors: the modules of sentence-transformers.
	moduleEntry:    strings.Fields(`idx name kwargs`),
	poolingFile:    strings.Fields(`word_embedding_dimension embedding_dimension`),
	normalizeFile:  {},
	denseFile:      {},
	lengthFiles[0]: strings.Fields(`unpad_inputs`),
	sentenceFile:   strings.Fields(`__version__ requirements activation_fn keep_in_fp32_modules`),

	processorFile: strings.Fields(`
		processor_class do_convert_rgb return_tensors device disable_grouping _valid_processor_keys _valid_kwargs_names
		_processor_class auto_map transformers_version`),

	// The caller of generate chooses lengths, sampling and the number of continuations; the rest says
	// how they are computed, or has an effect with a rule of generationRules alone.
	generationFile: strings.Fields(`
		max_length max_new_tokens max_time do_sample temperature top_k top_p num_return_sequences early_stopping length_penalty
		num_beam_groups diversity_penalty use_cache cache_implementation cache_config max_cache_len renormalize_logits
		remove_invalid_values output_attentions output_hidden_states output_scores output_logits return_dict_in_generate
		pad_token_id bos_token_id is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
		prompt_lookup_num_tokens max_matching_ngram_size assistant_early_exit assistant_lookbehind target_lookbehind
		assistant_ensemble_weight speculation_type compile_config disable_compile continuous_batching_config low_memory
		prefill_chunk_size use_mtp _from_model_config _commit_hash _original_object_hash transformers_version trust_remote_code
		custom_generate chat_format`),
}

// generationRules lists rules of generation that are not applied, with the values that ask for
// nothing. A value that asks for something is reported (TextRules.Unapplied).
var generationRules = map[string][]string{
	"num_beams": {"1"}, "no_repeat_ngram_size": {"0"}, "encoder_no_repeat_ngram_size": {"0"},
	"repetition_penalty": {"1", "1.0"}, "encoder_repetition_penalty": {"1", "1.0"}, "bad_words_ids": {"[]"}, "suppress_tokens": {"[]"},
	"begin_suppress_tokens": {"[]"}, "forced_eos_token_id": {}, "min_length": {"0"}, "min_new_tokens": {"0"}, "min_p": {"0", "0.0"}, "top_h": {},
	"typical_p": {"1", "1.0"}, "epsilon_cutoff": {"0", "0.0"}, "eta_cutoff": {"0", "0.0"}, "exponential_decay_length_penalty": {},
	"sequence_bias": {"{}"}, "guidance_scale": {"1", "1.0"}, "penalty_alpha": {"0", "0.0"}, "stop_strings": {"[]"}, "constraints": {"[]"},
	"force_words_ids": {"[]"}, "token_healing": {"false"}, "watermarking_config": {}, "dola_layers": {},
}

// unappliedRules returns the rules of generation of the folder dir that are not applied, as texts
// of name and value: of generation_config.json, without it of config.json. It returns an error if
// the file is malformed.
func unappliedRules(dir string) (rules []string, err error) {
	name := generationFile
	f, err := readFields(filepath.Join(dir, name))
	if err == nil && f == nil {
		name = configFile
		f, err = readFields(filepath.Join(dir, name))
	}
	if f == nil {
		return nil, err
	}
	for field := range f.values {
		neutral, listed := generationRules[field]
		isKnown := listed || name == configFile || slices.Contains(inertFields[name], field) || slices.Contains(appliedRules, field)
		if isKnown && !listed || !f.has(field) || slices.Contains(neutral, string(f.values[field])) {
			continue
		}
		rules = append(rules, fmt.Sprintf("%s: %s", infile.Shorten(field), shorten(f.values[field])))
	}
	slices.Sort(rules)
	return rules, nil
}

// appliedRules are the fields of generation_config.json that ReadTextRules reads.
var appliedRules = []string{"eos_token_id", "decoder_start_token_id", "forced_bos_token_id"}

// adapterFile says that weights belong on top of another model's.
const adapterFile = "adapter_config.json"
