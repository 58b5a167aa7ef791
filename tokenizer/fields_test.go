package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
)

// TestFieldsOfComponentsAreInTheTable offers every name of the tables to every component: those of its own table are
// read, and errors name the others.
func TestFieldsOfComponentsAreInTheTable(t *testing.T) {
	t.Parallel()
	types := map[string][]string{
		"tokenizer.json": {`{"NAME":null,"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}}`},
		"added_tokens":   {`{"added_tokens":[{"NAME":null}]}`},
		"normalizer":     {`{"normalizer":{"type":"NFC","NAME":null}}`},
		"pre_tokenizer":  {`{"pre_tokenizer":{"type":"Digits","NAME":null}}`},
		"decoder":        {`{"decoder":{"type":"Fuse","NAME":null},"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}}`},
	}
	for _, kind := range strings.Fields("Sequence TemplateProcessing BertProcessing RobertaProcessing ByteLevel") {
		types["post_processor"] = append(types["post_processor"], `{"post_processor":{"type":"`+kind+`","NAME":null},"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}}`)
	}
	for _, kind := range strings.Fields("WordPiece BPE Unigram WordLevel") {
		types["model"] = append(types["model"], `{"model":{"type":"`+kind+`","NAME":null}}`)
	}
	names := map[string]bool{"surprise": true}
	for _, table := range fieldTreatments {
		for name := range table {
			names[name] = true
		}
	}
	count := 0
	for part, texts := range types {
		for name := range names {
			isRead := false
			for _, text := range texts {
				_, err := Parse([]byte(strings.Replace(text, "NAME", name, 1)))
				isRead = isRead || !errors.Is(err, fault.ErrUnknownField)
				count++
			}
			if _, has := fieldTreatments[part][name]; has != isRead {
				t.Errorf("%s: %s is read: %t, in the table: %t", part, name, isRead, has)
			}
		}
	}
	t.Logf("%d names offered", count)
}

// TestFieldsOfTokenizerConfigAreTreatedAsTheTableSays gives each field a value: fields that are applied change ids or
// a decoded text, or contradict the files; neutral ones change nothing; errors name those that are refused.
func TestFieldsOfTokenizerConfigAreTreatedAsTheTableSays(t *testing.T) {
	t.Parallel()
	const bpe = `{"added_tokens":[],"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
		"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}},"decoder":{"type":"Fuse"},
		"model":{"type":"BPE","vocab":{"x":0,".":1,"Ġ":2,"y":3},"merges":[]}}`
	const words = `{"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"WordLevel","unk_token":"x","vocab":{"x":0,".":1}}}`
	values := map[string]string{ // of fields that have no use for "x"
		"tokenizer_class": `"BertJapaneseTokenizer"`, "do_lower_case": `false`, "strip_accents": `false`, "tokenize_chinese_chars": `false`, "do_basic_tokenize": `false`,
		"add_prefix_space": `true`, "add_bos_token": `true`, "add_eos_token": `true`, "clean_up_tokenization_spaces": `true`,
		"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": `true,"clean_up_tokenization_spaces":true`,
		"added_tokens_decoder": `{"0":{"content":"x"}}`, "additional_special_tokens": `["x"]`, "extra_special_tokens": `["x"]`,
		"sp_model_kwargs": `{"enable_sampling":true}`, "never_split": `["x"]`, "split_special_tokens": `true`, "fix_mistral_regex": `true`,
		"do_word_tokenize": `false`, "do_subword_tokenize": `false`, "word_tokenizer_type": `"mecab"`,
	}
	folders := []map[string]string{
		{"tokenizer.json": bpe}, {"tokenizer.json": words}, {"vocab.txt": vocabText},
	}
	outcome := func(folder map[string]string, config string) string {
		files := maps.Clone(folder)
		files["tokenizer_config.json"] = config
		v, err := openFolder(t, files)
		if err != nil {
			return "error: " + err.Error()
		}
		e := v.Encode("x . y")
		text, err := v.Decode(e.IDs)
		return fmt.Sprint(e.IDs, e.Offsets, text, err, v.Notes())
	}
	for _, name := range slices.Sorted(maps.Keys(fieldTreatments["tokenizer_config.json"])) {
		value, has := values[name]
		if !has {
			value = `"x"`
		}
		config := fmt.Sprintf("{%q:%s}", name, value)
		changes, named := false, true
		for _, folder := range folders {
			before, after := outcome(folder, "{}"), outcome(folder, config)
			changes = changes || before != after
			named = named && strings.HasPrefix(after, "error: ") && strings.Contains(after, name)
		}
		kind := fieldTreatments["tokenizer_config.json"][name]
		if changes != (kind != neutral) || named != (kind == refused) {
			t.Errorf("%s: changes an outcome: %t, an error names it: %t, its treatment is %d", config, changes, named, kind)
		}
		if nothing := fmt.Sprintf("{%q:null}", name); kind == refused && strings.HasPrefix(outcome(folders[0], nothing), "error") {
			t.Errorf("%s asks for nothing: %s", nothing, outcome(folders[0], nothing))
		}
	}
}

func TestPostProcessorsThatRepeatAreRefused(t *testing.T) {
	t.Parallel()
	const bert, level = `{"type":"BertProcessing","cls":["a",0],"sep":["a",0]}`, `{"type":"ByteLevel","trim_offsets":true}`
	for list, want := range map[string]string{
		level + "," + bert:  "",
		bert + "," + bert:   "BertProcessing adds tokens or trims offsets a second time",
		level + "," + level: "ByteLevel adds tokens or trims offsets a second time",
	} {
		_, err := Parse([]byte(`{"post_processor":{"type":"Sequence","processors":[` + list + `]},"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}}`))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", list, err, want)
		}
	}
}

// An error of an element of a list names its place and JSON's types, not Go's.
func TestErrorsOfListsNameTheElement(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a",7]}}`:                      "model: merges[1]: is number, needs a string",
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["aa"]}}`:                         `model: merges[0]: "aa" is not a pair`,
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`:                        "model: merges[0]: 1 tokens, not 2",
		`{"model":{"type":"Unigram","unk_id":0,"vocab":[["a",0],{}]}}`:                     "model: vocab[1]: is object, needs an array",
		`{"model":{"type":"Unigram","unk_id":0,"vocab":[["a",0],["b","c"]]}}`:              "model: vocab[1]: is string, needs a number",
		`{"model":{"type":"Unigram","unk_id":0,"vocab":[["a"]]}}`:                          "model: vocab[0]: 1 values, not a token and its score",
		`{"post_processor":{"type":"BertProcessing","sep":["a",0],"cls":7},` + words + `}`: "post_processor: cls: is number, needs an array",
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// words is a small model.
const words = `"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}`
