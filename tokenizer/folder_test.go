package tokenizer

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// openFolder opens a folder of these files.
func openFolder(t *testing.T, files map[string]string) (*Tokenizer, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Open(dir)
}

// Files of small tokenizers.
const (
	vocabText  = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\né\ne\nA\n日\n日本\n"
	vocabJSON  = `{"<s>":0,"<pad>":1,"</s>":2,"<unk>":3,"a":4,"b":5,"Ġ":6,"Ġa":7,"<mask>":8,"<|endoftext|>":9}`
	mergesText = "#version: 0.2\nĠ a\n"
)

func TestFoldersOfOtherClassesAreRefused(t *testing.T) {
	t.Parallel()
	bert := map[string]string{"vocab.txt": vocabText}
	bpe := map[string]string{"vocab.json": vocabJSON, "merges.txt": mergesText}
	for _, c := range []struct {
		files                   map[string]string
		tokenizer, config, want string
	}{
		{bert, `{"tokenizer_class":"BertJapaneseTokenizer","word_tokenizer_type":"mecab"}`, `{"model_type":"bert"}`, `word_tokenizer_type is "mecab"`},
		{bert, `{"tokenizer_class":"BertTokenizer","do_basic_tokenize":false}`, `{"model_type":"bert"}`, "rules of its own"},
		{bert, `{"tokenizer_class":"DistilBertTokenizerFast"}`, `{"model_type":"distilbert"}`, ""},
		{bert, `{}`, `{"model_type":"bert"}`, ""},
		{bert, `{"cls_token":"[CLS]","unk_token":{"content":"[UNK]"}}`, `{"model_type":"bert"}`, ""},
		{bert, `{"cls_token":"ab"}`, `{"model_type":"bert"}`, `cls_token is "ab", without tokenizer.json only "[CLS]" is read`},
		{bpe, `{"sep_token":{"content":"a"}}`, `{"model_type":"roberta"}`, `sep_token is "a", without tokenizer.json only "</s>" is read`},
		{bert, `{}`, `{"model_type":"bert","tokenizer_class":"BertJapaneseTokenizer"}`, `tokenizer_class "BertJapaneseTokenizer"`},
		{bert, `{"tokenizer_class":"BertTokenizer"}`, `{"model_type":"bert","tokenizer_class":"BertJapaneseTokenizer"}`, ""},
		{bert, `{"added_tokens_decoder":{"5":{"content":"ab"},"11":{"content":"[X]"}}}`, `{"model_type":"bert"}`, `added_tokens_decoder: "[X]" has the id 11`},
		{bpe, `{"tokenizer_class":"Qwen2Tokenizer"}`, `{"model_type":"qwen2"}`, `tokenizer_class "Qwen2Tokenizer"`},
		{bpe, `{}`, `{"model_type":"qwen2"}`, `model_type "qwen2"`},
		{bpe, `{"add_bos_token":true}`, `{"model_type":"gpt2"}`, "rules of its own"},
		{bpe, `{"tokenizer_class":"CodeGenTokenizer"}`, `{"model_type":"phi"}`, ""},
	} {
		files := maps.Clone(c.files)
		files["tokenizer_config.json"], files["config.json"] = c.tokenizer, c.config
		_, err := openFolder(t, files)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v, want %q", c.tokenizer, c.config, err, c.want)
		}
	}
	bpe["added_tokens.json"] = `{"  ":10}`
	if _, err := openFolder(t, bpe); err == nil || !strings.Contains(err.Error(), `added_tokens.json: "  " has the id 10`) {
		t.Errorf("added_tokens.json: %v", err)
	}
}

func TestFoldersWithoutClassFollowTheFamily(t *testing.T) {
	t.Parallel()
	files := map[string]string{"vocab.json": vocabJSON, "merges.txt": mergesText, "tokenizer_config.json": `{"model_max_length":512}`}
	for _, c := range []struct {
		config string
		want   []int32
	}{
		{`{"model_type":"gpt2"}`, []int32{4, 5}},
		{`{"model_type":"roberta"}`, []int32{0, 4, 5, 2}},
		{`{"model_type":"bart"}`, []int32{0, 4, 5, 2}},
	} {
		files["config.json"] = c.config
		v, err := openFolder(t, files)
		if err != nil {
			t.Fatal(err)
		}
		if ids := v.Encode("ab").IDs; !slices.Equal(ids, c.want) {
			t.Errorf("%s: ids are %v, want %v", c.config, ids, c.want)
		}
	}
	files["tokenizer_config.json"] = `{"add_prefix_space":true}`
	v, err := openFolder(t, files)
	if err != nil {
		t.Fatal(err)
	}
	if ids := v.Encode("ab").IDs; !slices.Equal(ids, []int32{0, 7, 5, 2}) {
		t.Errorf("with a prefix: ids are %v", ids)
	}
}

func TestVocabularyTextReadsItsFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config, text string
		want         []int32
	}{
		{`{}`, "é日本", []int32{7, 9, 1}},
		{`{"strip_accents":false}`, "é", []int32{6}},
		{`{"tokenize_chinese_chars":false}`, "日本", []int32{10}},
		{`{"do_lower_case":false}`, "A", []int32{8}},
	} {
		v, err := openFolder(t, map[string]string{"vocab.txt": vocabText, "tokenizer_config.json": c.config})
		if err != nil {
			t.Fatal(err)
		}
		if ids := v.AppendIDs(nil, c.text, true); !slices.Equal(ids, c.want) {
			t.Errorf("%s: ids of %q are %v, want %v", c.config, c.text, ids, c.want)
		}
	}
}

func TestContradictionsOfTokenizerConfigAreRefused(t *testing.T) {
	t.Parallel()
	const text = `{"added_tokens":[{"id":0,"content":"<s>","special":true}],"normalizer":{"type":"BertNormalizer","lowercase":true,"strip_accents":null},
		"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
		"model":{"type":"BPE","vocab":{"<s>":0,"a":1},"merges":[]}}`
	for config, want := range map[string]string{
		`{"do_lower_case":false}`: "do_lower_case is false, but tokenizer.json has true",
		`{"do_lower_case":true,"strip_accents":true,"add_prefix_space":false,"add_bos_token":true,"add_eos_token":false}`: "",
		`{"strip_accents":false}`:          "strip_accents is false, but tokenizer.json has true",
		`{"tokenize_chinese_chars":false}`: "tokenize_chinese_chars is false",
		`{"add_prefix_space":true}`:        "add_prefix_space is true, but tokenizer.json has false",
		`{"added_tokens_decoder":{"1":{"content":"a"},"2":{"content":"<pad>"}}}`: `added_tokens_decoder: "<pad>" has the id 2`,
	} {
		_, err := openFolder(t, map[string]string{"tokenizer.json": text, "tokenizer_config.json": config})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

// TestFoldersAreReadAsByTransformers compares with ids and texts of transformers 5.24 for a tokenizer.json beside
// tokenizer_config.json, special_tokens_map.json and added_tokens.json.
func TestFoldersAreReadAsByTransformers(t *testing.T) {
	t.Parallel()
	const text = `{"added_tokens":[{"id":3,"content":"<m>","special":true}],"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":false},
		"model":{"type":"BPE","unk_token":"u","vocab":{"u":0,"a":1,"<s>":2,"<m>":3,"<":4,"s":5,">":6,"▁":7,"m":8,"X":9,".":10},"merges":[]}}`
	const given, mask = "a <s> a <m> a X", `{"content":"<m>","lstrip":true,"rstrip":true,"normalized":false,"special":true}`
	plain := []int32{1, 7, 4, 5, 6, 7, 1, 7, 3, 7, 1, 7, 9}
	found := []int32{1, 7, 2, 7, 1, 7, 3, 7, 1, 7, 9}
	for _, c := range []struct {
		config, special, added string
		want                   []int32
		decoded                string
	}{
		{`{}`, "", "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁ X"},
		{`{"bos_token":"<s>"}`, "", "", found, "a ▁ ▁ a ▁ ▁ a ▁ X"},
		{`{}`, `{"bos_token":"<s>"}`, "", found, "a ▁ ▁ a ▁ ▁ a ▁ X"},
		{`{"bos_token":"<s>"}`, `{"bos_token":"<m>"}`, "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁ X"},
		{`{"bos_token":"<s>","added_tokens_decoder":{}}`, `{"bos_token":"<m>"}`, "", found, "a ▁ ▁ a ▁ ▁ a ▁ X"},
		{`{"mask_token":` + mask + `}`, "", "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁ X"},
		{`{"added_tokens_decoder":{"3":` + mask + `}}`, "", "", []int32{1, 7, 4, 5, 6, 7, 1, 3, 1, 7, 9}, "a ▁ < s > ▁ a a ▁ X"},
		{`{"additional_special_tokens":["X"]}`, "", "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁"},
		{`{"extra_special_tokens":{"foo":"X"}}`, "", "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁"},
		{`{"image_token":"X"}`, "", "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁"},
		{`{"pad_token":"[PAD]"}`, "", "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁ X"},
		{`{}`, "", `{"X":9}`, plain, "a ▁ < s > ▁ a ▁ ▁ a ▁ X"},
		{`{"clean_up_tokenization_spaces":true}`, "", "", plain, "a ▁ < s > ▁ a ▁ ▁ a ▁ X"}, // not for BPE
	} {
		files := map[string]string{"tokenizer.json": text, "tokenizer_config.json": c.config}
		if c.special != "" {
			files["special_tokens_map.json"] = c.special
		}
		if c.added != "" {
			files["added_tokens.json"] = c.added
		}
		v, err := openFolder(t, files)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		again, err := Parse(v.JSON()) // the file keeps what the folder adds
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []*Tokenizer{v, again} {
			e := v.Encode(given)
			decoded, err := v.Decode(e.IDs)
			if err != nil || !slices.Equal(e.IDs, c.want) || decoded != c.decoded {
				t.Errorf("%+v: ids are %v, text %q, %v", c, e.IDs, decoded, err)
			}
		}
	}
}

// TestStartAndEndTokensOfAFolderAreAdded has a template with the start token alone, as e5-mistral's.
func TestStartAndEndTokensOfAFolderAreAdded(t *testing.T) {
	t.Parallel()
	const text = `{"added_tokens":[{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}],"pre_tokenizer":{"type":"Whitespace"},
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}},
		"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"<s>":1,"</s>":2,"a":3}}}`
	const named = `"bos_token":"<s>","eos_token":"</s>"`
	for _, c := range []struct {
		config, note string
		want         []int32
	}{
		{`{"tokenizer_class":"LlamaTokenizerFast","add_bos_token":true,"add_eos_token":true,` + named + `}`, "", []int32{1, 3, 2}},
		{`{"tokenizer_class":"LlamaTokenizer","add_eos_token":true,` + named + `}`, "", []int32{1, 3, 2}},
		{`{"tokenizer_class":"LlamaTokenizer","add_bos_token":true,"add_eos_token":false,` + named + `}`, "", []int32{1, 3}},
		{`{"tokenizer_class":"LlamaTokenizer","add_bos_token":false,` + named + `}`, `add_bos_token is false, which is not followed: by tokenizer.json a text begins with "<s>"`, []int32{1, 3}},
		{`{"tokenizer_class":"LlamaTokenizer","add_eos_token":true,"bos_token":"a","eos_token":"</s>"}`, `are not followed beside token 1, "<s>"`, []int32{1, 3}},
		{`{"tokenizer_class":"PreTrainedTokenizerFast","add_eos_token":true,` + named + `}`, "add_eos_token is true, which is not followed: by tokenizer.json a text ends with no special token", []int32{1, 3}},
	} {
		v, err := openFolder(t, map[string]string{"tokenizer.json": text, "tokenizer_config.json": c.config})
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if notes := strings.Join(v.Notes(), "; "); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes are %q, want %q", c.config, notes, c.note)
		}
		if ids := v.Encode("a").IDs; !slices.Equal(ids, c.want) {
			t.Errorf("%s: ids are %v, want %v", c.config, ids, c.want)
		}
		if pair := v.EncodePair("a", "a").IDs; len(c.want) > 2 && !slices.Equal(pair, []int32{1, 3, 2, 1, 3, 2}) {
			t.Errorf("%s: ids of a pair are %v", c.config, pair)
		}
	}
}

// TestRulesInsideOfSequencesAreRead holds tokenizer_config.json against components that a Sequence has.
func TestRulesInsideOfSequencesAreRead(t *testing.T) {
	t.Parallel()
	const text = `{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Sequence","normalizers":[NORM]}]},
		"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},SPLIT]},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`
	const bert, level = `{"type":"BertNormalizer","lowercase":true,"strip_accents":null}`, `{"type":"ByteLevel","add_prefix_space":false}`
	for _, c := range []struct{ norm, split, config, want string }{
		{bert, level, `{"add_prefix_space":true}`, "add_prefix_space is true, but tokenizer.json has false in ByteLevel"},
		{bert, level, `{"add_prefix_space":false,"do_lower_case":true}`, ""},
		{bert, level, `{"do_lower_case":false}`, "do_lower_case is false"},
		{bert, level, `{"strip_accents":false}`, "strip_accents is false"},
		{bert, level, `{"tokenize_chinese_chars":false}`, "tokenize_chinese_chars is false"},
		{`{"type":"Lowercase"}`, level, `{"do_lower_case":false}`, "do_lower_case is false, but tokenizer.json has true in Lowercase"},
		{`{"type":"NFD"}`, level, `{"do_lower_case":true,"tokenizer_class":"BertTokenizer"}`, "do_lower_case is true, but no normalizer"},
		{bert, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`, `{"add_prefix_space":false}`, "in Metaspace"},
		{bert, `{"type":"Metaspace","replacement":"▁","prepend_scheme":"never"}`, `{"add_prefix_space":false}`, ""},
		{`{"type":"Prepend","prepend":"▁"}`, `{"type":"Digits"}`, `{"add_prefix_space":false}`, "in Prepend"},
	} {
		_, err := openFolder(t, map[string]string{"tokenizer.json": strings.NewReplacer("NORM", c.norm, "SPLIT", c.split).Replace(text), "tokenizer_config.json": c.config})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s %s: %v, want %q", c.norm, c.split, c.config, err, c.want)
		}
	}
}
