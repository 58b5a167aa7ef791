package pretrained

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sentenceFiles are files of a folder that pools means, beside weights and tokenizer.
var sentenceFiles = map[string]string{
	"modules.json": `[{"idx":0,"name":"0","path":"","type":"sentence_transformers.base.modules.transformer.Transformer"},
		{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.sentence_transformer.modules.pooling.Pooling"}]`,
	"1_Pooling/config.json": `{"word_embedding_dimension":8,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true}`,
}

// openSentence opens testdata/tiny beside sentenceFiles and other files.
func openSentence(t *testing.T, files map[string]string) *Model {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/tiny")); err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(sentenceFiles)
	maps.Copy(all, files)
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPoolingOfNewerFoldersIsRead(t *testing.T) {
	for mode, want := range map[string]string{"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"} {
		m := openSentence(t, map[string]string{"1_Pooling/config.json": `{"embedding_dimension":8,"pooling_mode":"` + mode + `","include_prompt":true}`})
		d, err := m.Describe()
		if err != nil || d.Pooling.Kind != want {
			t.Errorf("%s: %+v, %v", mode, d, err)
		}
	}
}

func TestLengthOfTextsIsTheFolders(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  int
	}{
		{nil, 16},
		{map[string]string{"tokenizer_config.json": `{"model_max_length":7}`}, 7},
		{map[string]string{"tokenizer_config.json": `{"model_max_length":1000000000000000019884624838656}`}, 16},
		{map[string]string{"tokenizer_config.json": `{"model_max_length":7}`, "sentence_bert_config.json": `{"max_seq_length":9,"do_lower_case":false}`}, 9},
		{map[string]string{"sentence_roberta_config.json": `{"max_seq_length":5}`}, 5},
	} {
		v, err := openSentence(t, c.files).EmbedWith(t.Context(), []string{"the cat sat on the mat"}, EmbedOptions{})
		if err != nil || v.MaxTokens != c.want {
			t.Errorf("%v: %+v, %v, want %d", c.files, v, err, c.want)
		}
	}
}

func TestLowerCaseIsTheTokenizers(t *testing.T) {
	const lower = `{"max_seq_length":16,"do_lower_case":true}`
	if _, err := openSentence(t, map[string]string{"sentence_bert_config.json": lower}).Embed(t.Context(), []string{"The cat"}); err != nil {
		t.Error(err)
	}
	m := openSentence(t, map[string]string{"sentence_bert_config.json": lower, "tokenizer_config.json": `{"do_lower_case":false}`})
	if _, err := m.Embed(t.Context(), []string{"The cat"}); err == nil || !strings.Contains(err.Error(), "do_lower_case: is true, but the tokenizer keeps capitals") {
		t.Error(err)
	}
}

func TestPoolingWithoutThePromptIsRefused(t *testing.T) {
	files := map[string]string{
		"1_Pooling/config.json":             `{"pooling_mode_mean_tokens":true,"include_prompt":false}`,
		"config_sentence_transformers.json": `{"prompts":{"query":"the "},"default_prompt_name":"query"}`,
	}
	if _, err := openSentence(t, files).Embed(t.Context(), []string{"cat"}); err == nil || !strings.Contains(err.Error(), "include_prompt") {
		t.Errorf("a prompt outside of the vector: %v", err)
	}
	files["config_sentence_transformers.json"] = `{"prompts":{"query":"the "},"default_prompt_name":null}`
	if _, err := openSentence(t, files).Embed(t.Context(), []string{"cat"}); err != nil {
		t.Error(err)
	}
}

func TestTextsThatLoseTheirBeginningAreRefused(t *testing.T) {
	m := openSentence(t, map[string]string{"tokenizer_config.json": `{"model_max_length":5,"truncation_side":"left"}`})
	if _, err := m.Embed(t.Context(), []string{"the cat sat"}); err != nil {
		t.Error(err)
	}
	if _, err := m.Embed(t.Context(), []string{"the cat sat on the mat"}); err == nil || !strings.Contains(err.Error(), "truncation_side is left") {
		t.Errorf("a text of 8 tokens: %v", err)
	}
}
