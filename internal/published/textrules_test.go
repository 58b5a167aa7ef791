package published

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readRules reads the text rules of a tiny decoder beside files of these names.
func readRules(t *testing.T, files map[string]string) (*TextRules, error) {
	t.Helper()
	dir := t.TempDir()
	writeFolder(t, dir, tinyConfigs["llama"])
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m.ReadTextRules()
}

func TestTextRulesAreReadFromTheirFiles(t *testing.T) {
	t.Parallel()
	r, err := readRules(t, nil)
	if err != nil || len(r.EndTokens) > 0 || r.ChatTemplate != "" || len(r.SpecialTokens) > 0 {
		t.Errorf("without files: %+v, %v", r, err)
	}
	r, err = readRules(t, map[string]string{
		"generation_config.json": `{"eos_token_id": [3, 5, 99], "temperature": 0.6}`,
		"tokenizer_config.json":  `{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null, "chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]}`,
	})
	if err != nil || !slices.Equal(r.EndTokens, []int32{3, 5}) || r.ChatTemplate != "y" || !maps.Equal(r.SpecialTokens, map[string]string{"bos_token": "<s>", "eos_token": "</s>"}) {
		t.Errorf("%+v, %v", r, err)
	}
	for decoder, want := range map[string]map[string]string{`"model_max_length":8`: {"bos_token": "<s>", "eos_token": "</s>"}, `"added_tokens_decoder":{}`: {"eos_token": "x"}} {
		r, err = readRules(t, map[string]string{
			"tokenizer_config.json":   `{"eos_token": "x",` + decoder + `}`,
			"special_tokens_map.json": `{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}`,
		})
		if err != nil || !maps.Equal(r.SpecialTokens, want) {
			t.Errorf("%s: %v, %v, want %v", decoder, r, err, want)
		}
	}
	r, err = readRules(t, map[string]string{
		"generation_config.json": `{"eos_token_id": 2}`,
		"tokenizer_config.json":  `{"chat_template": "old"}`,
		"chat_template.jinja":    "new",
	})
	if err != nil || !slices.Equal(r.EndTokens, []int32{2}) || r.ChatTemplate != "new" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTextRulesRefuseMalformedFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, text, want string }{
		{"generation_config.json", `{"eos_token_id": "a"}`, `eos_token_id: is "a", an integer or a list of them is needed`},
		{"tokenizer_config.json", `{"bos_token": 3}`, "bos_token: is 3, a string is needed"},
		{"tokenizer_config.json", `{"chat_template": 3}`, "chat_template: is 3, a string is needed"},
		{"chat_template.jinja", strings.Repeat("x", maxTemplate+1), "is longer than 1048576 bytes"},
	} {
		if _, err := readRules(t, map[string]string{c.file: c.text}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s %.40s: %v, want %s", c.file, c.text, err, c.want)
		}
	}
}

// FuzzTextRules reads the rules of texts from any files.
func FuzzTextRules(f *testing.F) {
	f.Add([]byte(`{"eos_token_id":[1,2]}`), []byte(`{"bos_token":{"content":"a"},"chat_template":[{"name":"default","template":"b"}]}`), []byte("c"))
	f.Add([]byte(`{"eos_token_id":-1}`), []byte(`{"bos_token":"a","chat_template":"b"}`), []byte{})
	f.Fuzz(func(t *testing.T, generation, words, template []byte) {
		m := &Model{dir: t.TempDir(), inputReader: inputReader{plan: &plan{}}}
		m.plan.config.Vocab = 4
		for name, text := range map[string][]byte{configFile: generation, generationFile: generation, tokenizerConfigFile: words, templateFile: template} {
			if err := os.WriteFile(filepath.Join(m.dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := m.ReadTextRules()
		if err != nil {
			return
		}
		for _, id := range r.EndTokens {
			if id < 0 || id > 3 {
				t.Errorf("token %d of 4 ends a text", id)
			}
		}
	})
}
