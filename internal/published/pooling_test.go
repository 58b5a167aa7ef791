package published

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	if err := os.CopyFS(dir, os.DirFS("../../pretrained/testdata/tiny")); err != nil {
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
	t.Parallel()
	for mode, want := range map[string]string{"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"} {
		m := openSentence(t, map[string]string{"1_Pooling/config.json": `{"embedding_dimension":8,"pooling_mode":"` + mode + `","include_prompt":true}`})
		d, err := m.Describe()
		if err != nil || d.Pooling.Kind != want {
			t.Errorf("%s: %+v, %v", mode, d, err)
		}
	}
}

func TestLengthOfTextsIsTheFolders(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	const lower = `{"max_seq_length":16,"do_lower_case":true}`
	if _, err := openSentence(t, map[string]string{"sentence_bert_config.json": lower}).Embed(t.Context(), []string{"The cat"}); err != nil {
		t.Error(err)
	}
	m := openSentence(t, map[string]string{"sentence_bert_config.json": lower, "tokenizer_config.json": `{"do_lower_case":false}`})
	if _, err := m.Embed(t.Context(), []string{"The cat"}); err == nil || !strings.Contains(err.Error(), "do_lower_case: is true, but the tokenizer keeps capitals") {
		t.Error(err)
	}
}

func TestLongTextsLoseTheSideThatFilesName(t *testing.T) {
	t.Parallel()
	const most = 5
	for _, c := range []struct {
		config, json string
		want         string // of the words of the text that are kept
	}{
		{`{}`, ``, "the cat sat"},
		{`{"truncation_side":"left"}`, ``, "on the mat"},
		{`{}`, `{"direction":"Left","max_length":512,"strategy":"LongestFirst","stride":0}`, "on the mat"},
		{`{"truncation_side":"right"}`, `{"direction":"Left"}`, "the cat sat"},
	} {
		files := map[string]string{"tokenizer_config.json": c.config}
		if c.json != "" {
			var parts map[string]json.RawMessage
			if err := json.Unmarshal(openSentence(t, nil).texts.words.JSON(), &parts); err != nil {
				t.Fatal(err)
			}
			parts["truncation"] = json.RawMessage(c.json)
			data, err := json.Marshal(parts)
			if err != nil {
				t.Fatal(err)
			}
			files["tokenizer.json"] = string(data)
		}
		r := &openSentence(t, files).texts
		have, all, err := r.encode("the cat sat on the mat", most)
		if want := r.words.Encode(c.want); err != nil || all != 8 || !slices.Equal(have.IDs, want.IDs) || !slices.Equal(have.Types, want.Types) {
			t.Errorf("%+v: %+v of %d, %v, want %+v", c, have, all, err, want)
		}
		have, all, err = r.encodePair("the cat sat on the mat", "on the mat", 9)
		if want := r.words.EncodePair(c.want, "on the mat"); err != nil || all != 12 || !slices.Equal(have.IDs, want.IDs) || !slices.Equal(have.Types, want.Types) {
			t.Errorf("%+v: pair %+v of %d, %v, want %+v", c, have, all, err, want)
		}
	}
}
