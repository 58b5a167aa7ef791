package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// treatment says what becomes of a field of a file.
type treatment int

const (
	applied treatment = iota // it changes ids, offsets or texts, or is held against the fields that do
	neutral                  // no id, offset or text depends on it
	refused                  // an error names it, unless it has a value that asks for nothing
)

// fieldTreatments says how each field of a tokenizer's files is treated that transformers and the
// library tokenizers read. A component of tokenizer.json has the fields of all its types. An
// unknown field of tokenizer.json is an error that names it. An unknown field of
// tokenizer_config.json is ignored, because transformers only stores it. vocab.txt, vocab.json,
// merges.txt and added_tokens.json have no fields.
var fieldTreatments = map[string]map[string]treatment{
	"tokenizer.json": treatments(`version added_tokens normalizer pre_tokenizer post_processor decoder model truncation`, `padding`, ``),
	"added_tokens":   treatments(`id content single_word lstrip rstrip normalized special`, ``, ``),
	"normalizer": treatments(`type normalizers clean_text handle_chinese_chars strip_accents lowercase strip_left strip_right precompiled_charsmap pattern
		content prepend`, ``, ``),
	"pre_tokenizer": treatments(`type pretokenizers pattern behavior invert individual_digits delimiter replacement prepend_scheme split add_prefix_space
		use_regex`, `trim_offsets str_rep`, ``),
	"post_processor": treatments(`type processors single pair special_tokens sep cls trim_offsets add_prefix_space`, `use_regex`, ``),
	"decoder": treatments(`type decoders prefix suffix cleanup replacement prepend_scheme add_prefix_space pattern content start stop`,
		`trim_offsets use_regex split str_rep`, ``),
	"model": treatments(`type vocab merges unk_token unk_id continuing_subword_prefix end_of_word_suffix max_input_chars_per_word fuse_unk byte_fallback
		ignore_merges`, ``, `dropout`),
	"tokenizer_config.json": treatments(`tokenizer_class do_lower_case strip_accents tokenize_chinese_chars do_basic_tokenize add_prefix_space add_bos_token
		add_eos_token clean_up_tokenization_spaces clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output added_tokens_decoder bos_token
		eos_token unk_token sep_token pad_token cls_token mask_token additional_special_tokens extra_special_tokens`,
		`model_max_length max_length padding_side pad_to_multiple_of pad_token_type_id truncation_side truncation_strategy stride model_input_names
		name_or_path special_tokens_map_file tokenizer_file vocab_file merges_file backend is_local local_files_only auto_map processor_class
		chat_template response_schema legacy from_slow use_fast errors spaces_between_special_tokens use_default_system_prompt trust_remote_code
		trim_offsets model_specific_special_tokens fast_tokenizer_files init_inputs return_token_type_ids device_map`,
		`split_special_tokens never_split do_word_tokenize do_subword_tokenize word_tokenizer_type sp_model_kwargs fix_mistral_regex`),
	"special_tokens_map.json": treatments(`bos_token eos_token unk_token sep_token pad_token cls_token mask_token additional_special_tokens
		extra_special_tokens`, ``, ``),
}

// treatments returns a table of the fields of each treatment.
func treatments(lists ...string) map[string]treatment {
	table := map[string]treatment{}
	for kind, list := range lists {
		for _, name := range strings.Fields(list) {
			table[name] = treatment(kind)
		}
	}
	return table
}

// neutralValues are the values with which fields that are refused ask for nothing.
var neutralValues = map[string][]string{
	"do_word_tokenize":    {"true"},
	"do_subword_tokenize": {"true"},
	"word_tokenizer_type": {`"basic"`},
}

// checkConfigFields returns an error for a field of tokenizer_config.json that is refused.
func checkConfigFields(fields map[string]json.RawMessage) error {
	for name, kind := range fieldTreatments["tokenizer_config.json"] {
		value := strings.Join(strings.Fields(string(fields[name])), " ")
		if kind != refused || value == "" || slices.Contains([]string{"null", "false", "[]", "{}", `""`}, value) && neutralValues[name] == nil {
			continue
		}
		if !slices.Contains(neutralValues[name], value) && value != "null" {
			return fmt.Errorf("%s is %.60s, which is not read", name, value)
		}
	}
	return nil
}
